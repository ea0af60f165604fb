"""The company that a testbed has on its machine: what programs outside of it take of the cores, and the other
testbeds that run. Reads only.

A testbed has a PID namespace of its own, so that its /proc has its own processes alone, and /proc/stat has
the whole machine. A process's time goes on to its parent's `cutime` when it ends, and nothing of it is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_SPENT = slice(11, 15)  # utime, stime, cutime, cstime of /proc/PID/stat, behind the name
_PROCESSES = slice(1, 4)  # user, nice, system of /proc/stat: packet work is counted apart


@dataclass(frozen=True, slots=True)
class Spent:
    """A reading: the seconds of cores that all programs took since the machine's start, those of them that
    this testbed's did, and the testbeds that run.
    """

    at_s: float
    all_s: float
    own_s: float
    testbeds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Company:
    """The cores that programs outside of the testbed took, as a mean, and the other testbeds that ran."""

    cores: float = 0.0
    testbeds: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return what there was; empty where there was nothing."""
        parts = [f"programs outside of this testbed took {self.cores:.2f} cores"] if self.cores else []
        if self.testbeds:
            parts.append(f"other testbeds ran: {', '.join(self.testbeds)}")
        return "; ".join(parts)


def spent(at_s: float, testbeds: Callable[[], Iterable[str]], proc: Path = PROC) -> Spent:
    """Return a reading of now, whose time is `at_s`."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    total = (proc / "stat").read_text().splitlines()[0].split()
    own = 0
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                own += sum(
                    int(each) for each in (folder / "stat").read_text().rpartition(")")[2].split()[_SPENT]
                )
    return Spent(at_s, sum(map(int, total[_PROCESSES])) * tick_s, own * tick_s, frozenset(testbeds()))


def company(before: Spent, after: Spent, name: str) -> Company:
    """Return the company of the testbed of that name between two readings."""
    others_s = (after.all_s - before.all_s) - (after.own_s - before.own_s)
    cores = max(0.0, others_s) / max(after.at_s - before.at_s, 1e-3)
    return Company(cores, tuple(sorted((before.testbeds | after.testbeds) - {name})))
