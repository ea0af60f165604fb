"""The kernel's counters of processors, of packet work, and of what programs take of the cores. Reads only.

A testbed has a PID namespace of its own, so that its /proc has its own processes alone, and /proc/stat has
the whole machine. A process's time goes on to its parent's `cutime` when it ends, and nothing of it is lost.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from testbed.telemetry.counters import MachineReading
from testbed.telemetry.other_programs import Spent

PROC = Path("/proc")
_SOFTNET = PROC / "net/softnet_stat"
_PRESSURE = PROC / "pressure/cpu"
_NO_PRESSURE = errno.ENOENT, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM  # not built, switched off, hidden
_SPENT = slice(11, 15)  # utime, stime, cutime, cstime of /proc/PID/stat, behind the name
_PROCESSES = slice(1, 4)  # user, nice, system of /proc/stat: packet work is counted apart


class KernelCounters:
    """The counters of the machine that this process is on."""

    def reading(self) -> MachineReading:
        return reading()

    def spent(self, at_s: float, testbeds: Collection[str]) -> Spent:
        return spent(at_s, testbeds)


def reading() -> MachineReading:
    """Return a reading of now, which takes about 0.2 ms of a core."""
    return MachineReading(_cores(), softnet(_SOFTNET.read_text()), _waiting_s())


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


def spent(at_s: float, testbeds: Iterable[str], proc: Path = PROC) -> Spent:
    """Return a reading of now, whose time is `at_s`, while these testbeds run."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    total = (proc / "stat").read_text().splitlines()[0].split()
    own = 0
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                own += sum(
                    int(each) for each in (folder / "stat").read_text().rpartition(")")[2].split()[_SPENT]
                )
    return Spent(at_s, sum(map(int, total[_PROCESSES])) * tick_s, own * tick_s, frozenset(testbeds))
