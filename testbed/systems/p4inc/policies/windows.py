"""Compute the least time that each virtual port needs: P4INC-AOI, algorithm 3. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

THRESHOLD_S = 1e-3
"""t_th. The windows' order matters, not their exact length."""


def ends(
    port: Sequence[int] | NDArray[np.intp],
    gigabits: Sequence[float] | Numbers,
    update_s: Sequence[float] | Numbers,
    capacity_gbps: Sequence[float] | Numbers,
    threshold_s: float = THRESHOLD_S,
) -> Numbers:
    """Return the end of each port's ideal window, in seconds from now; 0 for a port without traffic.

    The first three arguments list each job at each of its ports: the port, D_{p,j}, and tau_j, the time
    before the end by which the data must have arrived. The end is the least time at which the port's capacity
    suffices for all: sum of D_{p,j} / (t - tau_j) <= B_p. The exact end is at most `threshold_s` earlier.
    """
    at, volume, update = np.asarray(port, np.intp), np.asarray(gigabits, float), np.asarray(update_s, float)
    capacity = np.asarray(capacity_gbps, float)
    ports = len(capacity)
    total = np.bincount(at, volume, ports)
    mean = np.divide(total, capacity, out=np.full(ports, np.inf), where=capacity > 0)
    mean[total == 0] = 0.0
    longest = np.zeros(ports)
    np.maximum.at(longest, at, update)
    # no data can arrive before the longest update would have to begin; the paper's lower bound allows that
    early: Numbers = np.maximum(mean, longest)
    late: Numbers = mean + longest
    served = np.isfinite(late)
    while True:
        open_ = served & (np.where(served, late, 0.0) - np.where(served, early, 0.0) >= threshold_s)
        if not open_.any():
            return late
        middle = (early + late) / 2
        some = open_[at]
        where = at[some]
        needed = np.bincount(where, volume[some] / (middle[where] - update[some]), ports)
        enough = needed <= capacity
        late = np.where(open_ & enough, middle, late)
        early = np.where(open_ & ~enough, middle, early)
