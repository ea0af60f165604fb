"""The kernel's hierarchy of cgroups that limits the use of cores, of version 1 or 2: where it is, and how a
limit is set there and read back.

Limits stand at the top of the hierarchy, wherever the command that made them runs; what only keeps processes
together stands below the command's own cgroup. Owns no life of a cgroup (lifetime.py). Imports nothing but
errors.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from testbed.errors import HostError, SettingError

MOUNTS = Path("/proc/self/mountinfo")
OWN = Path("/proc/self/cgroup")
PERIOD_US = 100_000  # the kernel's own; a share is given out anew in each
_QUIET = ("", "pids", "freezer", "name=systemd")  # version 2, and controllers of version 1
_GONE_S, _LOOK_S = 5.0, 0.005
REMEDY = (
    "cpus of hosts needs the cpu controller of cgroups, writable: a whole machine, or a container with it"
)


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The cgroups of a testbed that lifetime.py makes: the folder of those of hosts that have a limit, by
    their names, and that in which jobs' are made. None: there is none.
    """

    limits: Path | None = None
    enclosures: Path | None = None


NO_CGROUPS = Cgroups()


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
    for mount in _mounted(mounts):
        if "cpu" in mount.controllers:
            return Version1(mount.folder)
        second = mount.folder if mount.is_second else second
    if second is None:
        raise HostError(f"no cgroups are mounted; {REMEDY}")
    passed = second / "cgroup.subtree_control"
    if "cpu" not in passed.read_text().split():
        raise HostError(f"{passed} has no cpu, and so nothing below it; {REMEDY}")
    return Version2(second)


def enclosing(mounts: Path = MOUNTS, own: Path = OWN) -> Path | None:
    """Return the cgroup of this process, of a hierarchy in which one that is made below it changes nothing
    for what is in it: of version 2, where it has no controllers there, or of a controller of version 1 that
    only counts. None where this machine gives none.
    """
    seen = list(_mounted(mounts))
    paths: dict[str, str] = {}
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)  # of version 2: ""
    for wanted in _QUIET:
        for mount in seen:
            fits = wanted in mount.controllers if wanted else mount.is_second
            if fits and (folder := mount.below(paths.get(wanted))) is not None:
                return folder
    return None


def tops(mounts: Path = MOUNTS) -> list[Path]:
    """Return where the hierarchies are mounted in which a testbed may have made cgroups."""
    quiet = {"cpu", *_QUIET}
    return [each.folder for each in _mounted(mounts) if each.is_second or quiet & {*each.controllers}]


def end_members(folder: Path) -> int:
    """Kill what is in a cgroup, and wait until it is gone; return how many processes there were."""
    ended: set[int] = set()
    deadline = time.monotonic() + _GONE_S
    while time.monotonic() < deadline:
        try:
            left = [pid for line in members(folder).read_text().split() if (pid := int(line))]
        except FileNotFoundError:
            break
        if not left:
            break
        ended.update(left)
        try:  # all at once, whatever they start meanwhile
            _write(folder / "cgroup.kill", "1")
        except OSError:  # of version 1, or a kernel before 5.14
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
    return len(ended)


@dataclass(frozen=True, slots=True)
class _Mount:
    """A hierarchy that is mounted: where, what of it, and its controllers, in version 1."""

    folder: Path
    root: str
    is_second: bool
    controllers: tuple[str, ...]

    def below(self, path: str | None) -> Path | None:
        """Return the folder of the cgroup at a path of the hierarchy; None where it is not mounted here."""
        if path is None or "/.." in path:
            return None
        relative = os.path.relpath(path, self.root)
        folder = self.folder if relative == "." else self.folder / relative
        return folder if not relative.startswith("..") and os.access(folder, os.W_OK) else None


def _mounted(mounts: Path) -> Iterator[_Mount]:
    """Return the hierarchies that can be seen where they are mounted."""
    for line in mounts.read_text().splitlines():
        where, _, what = line.partition(" - ")
        kind, _, options = what.split(" ", 2)
        _, _, device, root, at, *_ = where.split()
        folder = Path(at.replace("\\040", " "))
        if kind in ("cgroup", "cgroup2") and _is_seen(folder, device):
            is_second = kind == "cgroup2"
            yield _Mount(folder, root, is_second, () if is_second else tuple(options.split(",")))


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
