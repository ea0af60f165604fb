"""The kernel's hierarchy of cgroups, version 1 or 2, that limits the use of cores: find it, set limits, and
read them back.

Limits are at the top of the hierarchy, wherever the command runs; cgroups that only hold processes together
are below the command's own cgroup. Owns no cgroup's life (lifetime.py). Of the project, imports only errors.
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
PERIOD_US = 100_000  # the kernel's default; each period has a new quota
_QUIET = ("", "pids", "freezer", "name=systemd")  # "": version 2; others: controllers of version 1
_GONE_S, _LOOK_S = 5.0, 0.005
REMEDY = (
    "cpus of hosts needs the cpu controller of cgroups, writable: a whole machine, or a container with it"
)


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The cgroups of a testbed, made by lifetime.py: the folder of those of hosts with a limit, by host name,
    and the folder in which jobs' are made. None: not available.
    """

    limits: Path | None = None
    enclosures: Path | None = None


NO_CGROUPS = Cgroups()


class Hierarchy(Protocol):
    """The differences between the versions. `top` is where cgroups are made."""

    @property
    def top(self) -> Path: ...

    @property
    def version(self) -> int: ...

    def pass_on(self, folder: Path) -> None:
        """Allow limits on cgroups made in this one. OSError if impossible."""

    def write(self, folder: Path, quota_us: int) -> None:
        """Limit the core time of a cgroup's processes in every period. OSError if impossible."""

    def read(self, folder: Path) -> tuple[str, str]:
        """Return a cgroup's quota and period, as the kernel prints them."""


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
    """The single hierarchy of all controllers, in which a cgroup has a limit if its parent delegates cpu."""

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
    """Return the hierarchy with the controller cpu. HostError if a testbed can use none.

    On a hybrid host it is the one of version 1: a controller is in one hierarchy at a time.
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
    """Return this process's own cgroup in a hierarchy where a cgroup below it does not affect the processes
    in it: in version 2, without controllers there; or of a controller of version 1 that only counts. None if
    the machine has none.
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
    """Return the mount points of the hierarchies in which a testbed may have made cgroups."""
    quiet = {"cpu", *_QUIET}
    return [each.folder for each in _mounted(mounts) if each.is_second or quiet & {*each.controllers}]


def end_members(folder: Path) -> int:
    """Kill the processes in a cgroup, wait until they are gone, and return their number."""
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
        try:  # all at once, including those started meanwhile
            _write(folder / "cgroup.kill", "1")
        except OSError:  # version 1, or a kernel before 5.14
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
    return len(ended)


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted hierarchy: the mount point, the mounted part, and in version 1 its controllers."""

    folder: Path
    root: str
    is_second: bool
    controllers: tuple[str, ...]

    def below(self, path: str | None) -> Path | None:
        """Return the folder of the cgroup at a path of the hierarchy; None if it is not mounted here."""
        if path is None or "/.." in path:
            return None
        relative = os.path.relpath(path, self.root)
        folder = self.folder if relative == "." else self.folder / relative
        return folder if not relative.startswith("..") and os.access(folder, os.W_OK) else None


def _mounted(mounts: Path) -> Iterator[_Mount]:
    """Yield the mounted hierarchies that are not hidden by other mounts."""
    for line in mounts.read_text().splitlines():
        where, _, what = line.partition(" - ")
        kind, _, options = what.split(" ", 2)
        _, _, device, root, at, *_ = where.split()
        folder = Path(at.replace("\\040", " "))
        if kind in ("cgroup", "cgroup2") and _is_seen(folder, device):
            is_second = kind == "cgroup2"
            yield _Mount(folder, root, is_second, () if is_second else tuple(options.split(",")))


def _is_seen(folder: Path, device: str) -> bool:
    """Return whether a mount of this device is visible at its folder, not hidden by another mount."""
    try:
        number = folder.stat().st_dev
    except OSError:
        return False
    return device == f"{os.major(number)}:{os.minor(number)}"


def limit(hierarchy: Hierarchy, folder: Path, cpus: float) -> None:
    """Limit the cores that a cgroup's processes may use. SettingError if that did not take effect."""
    wanted = round(cpus * PERIOD_US)
    hierarchy.write(folder, wanted)
    if (read := hierarchy.read(folder)) != (str(wanted), str(PERIOD_US)):
        raise SettingError(
            f"cgroup {folder}: {wanted} of {PERIOD_US} us were asked for, and {' of '.join(read)} read"
        )


def members(folder: Path) -> Path:
    """Return the file of a cgroup into which to write a process's number, or 0 for the writer itself."""
    return folder / "cgroup.procs"


def _write(path: Path, text: str) -> None:
    """Write to an existing file: the kernel made no other."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
