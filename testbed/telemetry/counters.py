"""Readings of the machine's counters of processors and packet processing; all count from its boot. Pure.

They cover the whole machine: a program outside the testbed that uses a core shows in them, as it should.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BUSY, SOFTIRQ, STEAL, IOWAIT = range(4)  # columns of MachineReading.cores
DROPPED, SQUEEZED = range(2)  # columns of MachineReading.softnet


@dataclass(frozen=True, slots=True, eq=False)
class MachineReading:
    """A reading. `cores` is (cores, 4), in seconds; `softnet` is (cores, 2), in packets and occurrences.
    `waiting_s` is the time in which at least one runnable task had no core (pressure stall information); NaN
    if the kernel does not report it.
    """

    cores: npt.NDArray[np.float64]
    softnet: npt.NDArray[np.int64]
    waiting_s: float
