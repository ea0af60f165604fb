"""The kernel's hierarchy of cgroups that limits the use of cores, of version 1 or 2: where it is, and how a
limit is set there and read back.

What a testbed makes stands at the top of the hierarchy, wherever the command that made it runs, so that every
other command finds it. Owns no life of a cgroup (held.py). Imports nothing but errors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from testbed.errors import HostError, SettingError

MOUNTS = Path("/proc/self/mountinfo")
PERIOD_US = 100_000  # the kernel's own; a share is given out anew in each
REMEDY = (
    "cpus of hosts needs the cpu controller of cgroups, writable: a whole machine, or a container with it"
)


class Hierarchy(Protocol):
    """The difference between the versions. `top` is where cgroups are made."""

    @property
    def top(self) -> Path: ...

    @property
    def version(self) -> int: ...

    def pass_on(self, folder: Path) -> None:
        """Have the cgroups that are made in this one be limited on their own. OSError where it cannot."""

    def write(self, folder: Path, quota_us: int) -> None:
        """Let what is in a cgroup use so much of the cores in every period. OSError where it cannot."""

    def read(self, folder: Path) -> tuple[str, str]:
        """Return the quota and the period that a cgroup has, as the kernel says them."""


@dataclass(frozen=True, slots=True)
class Version1:
    """A hierarchy of the controller cpu, in which every cgroup has a limit."""

    top: Path
    version: int = 1

    def pass_on(self, folder: Path) -> None:
        pass

    def write(self, folder: Path, quota_us: int) -> None:
        _write(folder / "cpu.cfs_period_us", str(PERIOD_US))
        _write(folder / "cpu.cfs_quota_us", str(quota_us))

    def read(self, folder: Path) -> tuple[str, str]:
        quota, period = ((folder / f"cpu.cfs_{which}_us").read_text() for which in ("quota", "period"))
        return quota.strip(), period.strip()


@dataclass(frozen=True, slots=True)
class Version2:
    """The one hierarchy of all controllers, in which a cgroup has a limit if the one above passes cpu on."""

    top: Path
    version: int = 2

    def pass_on(self, folder: Path) -> None:
        _write(folder / "cgroup.subtree_control", "+cpu")

    def write(self, folder: Path, quota_us: int) -> None:
        _write(folder / "cpu.max", f"{quota_us} {PERIOD_US}")

    def read(self, folder: Path) -> tuple[str, str]:
        quota, period = (folder / "cpu.max").read_text().split()
        return quota, period


def find(mounts: Path = MOUNTS) -> Hierarchy:
    """Return the hierarchy that has the controller cpu. HostError where none has that a testbed could use.

    Of a hybrid host it is the one of version 1: a controller is in one hierarchy at a time.
    """
    second: Path | None = None
    for line in mounts.read_text().splitlines():
        where, _, what = line.partition(" - ")
        kind, _, options = what.split(" ", 2)
        folder = Path(where.split()[4].replace("\\040", " "))
        if not _is_seen(folder, where.split()[2]):
            continue
        if kind == "cgroup" and "cpu" in options.split(","):
            return Version1(folder)
        second = folder if kind == "cgroup2" else second
    if second is None:
        raise HostError(f"no cgroups are mounted; {REMEDY}")
    passed = second / "cgroup.subtree_control"
    if "cpu" not in passed.read_text().split():
        raise HostError(f"{passed} has no cpu, and so nothing below it; {REMEDY}")
    return Version2(second)


def _is_seen(folder: Path, device: str) -> bool:
    """Return whether a mount of this device is what is at its folder, and no other mount hides it."""
    try:
        number = folder.stat().st_dev
    except OSError:
        return False
    return device == f"{os.major(number)}:{os.minor(number)}"


def limit(hierarchy: Hierarchy, folder: Path, cpus: float) -> None:
    """Let what is in a cgroup use so many cores at most. SettingError where it did not take effect."""
    wanted = round(cpus * PERIOD_US)
    hierarchy.write(folder, wanted)
    if (read := hierarchy.read(folder)) != (str(wanted), str(PERIOD_US)):
        raise SettingError(
            f"cgroup {folder}: {wanted} of {PERIOD_US} us were asked for, and {' of '.join(read)} read"
        )


def members(folder: Path) -> Path:
    """Return the file of a cgroup that a process's number, or 0 for the writer's own, is written into."""
    return folder / "cgroup.procs"


def _write(path: Path, text: str) -> None:
    """Write a file that is there: one that is not is none of the kernel's."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
