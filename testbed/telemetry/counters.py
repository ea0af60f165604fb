"""The kernel's counters of processors and of packet work. Reads only; all values count from the machine's
start.

They are the whole machine's: a program outside the testbed that takes a core shows in them, and it should.
"""

from __future__ import annotations

import errno
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

BUSY, SOFTIRQ, STEAL, IOWAIT = range(4)  # columns of Machine.cores
DROPPED, SQUEEZED = range(2)  # columns of Machine.softnet

_SOFTNET = Path("/proc/net/softnet_stat")
_PRESSURE = Path("/proc/pressure/cpu")
_NO_PRESSURE = errno.ENOENT, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM  # not built, switched off, hidden


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A reading. `cores` is (cores, 4) in seconds, `softnet` (cores, 2) in packets and times; `waiting_s` is
    the time in which at least one task that could run had no core (pressure stall information), NaN where the
    kernel does not say.
    """

    cores: npt.NDArray[np.float64]
    softnet: npt.NDArray[np.int64]
    waiting_s: float


def machine() -> Machine:
    """Return a reading of now, which takes about 0.2 ms of a core."""
    return Machine(_cores(), softnet(_SOFTNET.read_text()), _waiting_s())


def _cores() -> npt.NDArray[np.float64]:
    # `guest` is in `user` already; time stolen by a hypervisor is not this machine's to use, so it counts as
    # busy
    return np.array(
        [
            (sum((t.user, t.nice, t.system, t.irq, t.softirq, t.steal)), t.softirq, t.steal, t.iowait)
            for t in psutil.cpu_times(percpu=True)
        ]
    )


def softnet(text: str) -> npt.NDArray[np.int64]:
    """Return what /proc/net/softnet_stat says: a line per core, in hexadecimal; packets dropped, and times
    that packet work ran out of budget.
    """
    return np.array([[int(field, 16) for field in line.split()[1:3]] for line in text.splitlines()], np.int64)


def _waiting_s() -> float:
    try:
        return pressure(_PRESSURE.read_text())
    except OSError as error:
        if error.errno not in _NO_PRESSURE:
            raise
        return math.nan


def pressure(text: str) -> float:
    """Return the total of the line `some`, in seconds: `some avg10=0.00 avg60=0.00 avg300=0.00
    total=1181338471`.
    """
    some = next(line for line in text.splitlines() if line.startswith("some "))
    return int(some.rsplit("total=", 1)[1]) / 1e6
