"""Readings of a machine's counters of processors and of packet work; all values count from the machine's
start. Pure.

They are the whole machine's: a program outside the testbed that takes a core shows in them, and it should.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BUSY, SOFTIRQ, STEAL, IOWAIT = range(4)  # columns of MachineReading.cores
DROPPED, SQUEEZED = range(2)  # columns of MachineReading.softnet


@dataclass(frozen=True, slots=True, eq=False)
class MachineReading:
    """A reading. `cores` is (cores, 4) in seconds, `softnet` (cores, 2) in packets and times; `waiting_s` is
    the time in which at least one task that could run had no core (pressure stall information), NaN where the
    kernel does not say.
    """

    cores: npt.NDArray[np.float64]
    softnet: npt.NDArray[np.int64]
    waiting_s: float
