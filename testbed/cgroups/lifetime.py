"""The cgroups of a testbed: made before anything of it starts, removed after all of it is gone.

    TOP/optinc-NAME-XXXXXXXX/u1h1  u2h3  ...       TOP: hierarchy.py; one for each host that has a limit
    OWN/optinc-NAME-XXXXXXXX/job-1-1  ...          OWN: the cgroup of the main process; one for each job

A lock on the folder says whose it is: it is held until the cgroups are gone, by the main process and by the
keeper (keeper.py), which removes them when the main process dies. Only root may look into the folder: whoever
can open it could hold the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.cgroups import keeper
from testbed.cgroups.hierarchy import NO_CGROUPS, REMEDY, Cgroups, Hierarchy, enclosing, find, limit, tops
from testbed.errors import HostError, RequestError
from testbed.interpreters import isolated

_GONE_S = 10.0
_LOCK_S = 2.0
_LOOK_S = 0.02
_SWEEP_S = 2.0


class HostCgroups:
    """The cgroups of the testbed `name`, with the limits of the hosts in `cpus`, in cores. A context manager.
    `folders.limits` is None without such hosts; `folders.enclosures`, in which
    testbed/emulation/enclosures.py makes jobs' cgroups, is None if the machine has none.
    """

    def __init__(self, name: str, cpus: Mapping[str, float]) -> None:
        self._name, self._cpus = name, cpus
        self.folders = NO_CGROUPS
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def __enter__(self) -> Self:
        """Make the cgroups. HostError if limits cannot be set, RequestError for more cores than there are."""
        cores = len(os.sched_getaffinity(0))
        for host, cpus in self._cpus.items():
            if cpus > cores:
                raise RequestError(f"{host}: cpus: {cpus:g}; this machine has {cores} cores for it")
        hierarchy = find() if self._cpus else None
        try:
            self._make(hierarchy)
        except OSError as error:
            self._close()
            where = error.filename or (hierarchy.top if hierarchy else "cgroups")
            raise HostError(f"{where}: {error.strerror}; {REMEDY}") from error
        except BaseException:
            self._close()
            raise
        return self

    def _make(self, hierarchy: Hierarchy | None) -> None:
        with contextlib.ExitStack() as undo:
            locks: dict[Path, int] = {}
            limits = self._made(hierarchy.top, locks, undo) if hierarchy else None
            enclosures = None
            if (own := enclosing()) is not None:
                with contextlib.suppress(OSError):  # a container's may be read-only
                    enclosures = self._made(own, locks, undo)
            if locks:
                self._keep(locks)
            undo.pop_all()
            self.folders = Cgroups(limits, enclosures)
        if hierarchy and limits:
            hierarchy.pass_on(limits)
            for host, cpus in self._cpus.items():
                os.mkdir(limits / host)
                limit(hierarchy, limits / host, cpus)

    def _made(self, top: Path, locks: dict[Path, int], undo: contextlib.ExitStack) -> Path:
        """Make and lock a cgroup of the testbed at `top`; `undo` gets the reverse actions."""
        folder = top / f"optinc-{self._name}-{secrets.token_hex(4)}"
        os.mkdir(folder, 0o700)
        undo.callback(os.rmdir, folder)
        locks[folder] = _lock(folder)
        undo.callback(os.close, locks[folder])
        return folder

    def _keep(self, locks: Mapping[Path, int]) -> None:
        """Start the keeper, which takes over the locks."""
        reader, self._pipe = os.pipe2(os.O_CLOEXEC)
        words = [str(word) for folder, lock in locks.items() for word in (lock, folder)]
        argv = isolated("-I", "-S", keeper.__file__, str(reader), *words)
        try:
            # a terminal's Ctrl-C must not reach it
            self._keeper = subprocess.Popen(
                argv,
                pass_fds=[reader, *locks.values()],
                cwd="/",
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(reader)
        for lock in locks.values():
            os.close(lock)

    def _close(self) -> None:
        """Have the keeper remove the cgroups, and wait until they are gone."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._keeper is None:
            return
        try:
            is_gone = self._keeper.wait(_GONE_S) == 0
        except subprocess.TimeoutExpired:
            is_gone = False
        self._keeper = None
        for folder in (self.folders.limits, self.folders.enclosures):
            if folder is not None and not is_gone and not keeper.remove(folder, _SWEEP_S):
                _report_left(folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def dead(name: str | None = None) -> list[Path]:
    """Return the cgroups of dead testbeds, of this name or of any: those with a free lock. Empty if this host
    has no cgroups that a testbed could have made.
    """
    pattern = re.compile(rf"optinc-{'[a-z0-9-]+' if name is None else re.escape(name)}-[0-9a-f]{{8}}")
    folders: set[Path] = set()
    for top in tops():
        for folder, below, _ in os.walk(top):
            made = [each for each in below if pattern.fullmatch(each)]
            folders.update(Path(folder, each) for each in made)
            below[:] = [each for each in below if each not in made]
    return [folder for folder in sorted(folders) if _is_free(folder)]


def sweep(name: str) -> None:
    """Remove what a testbed of this name left, if its main process and keeper died at the same time. For
    root; the caller knows that no testbed of this name is alive.
    """
    for folder in dead(name):
        if not keeper.remove(folder, _SWEEP_S):
            _report_left(folder)


def _report_left(folder: Path) -> None:
    print(f"testbed: {folder} is still there, with processes in it", file=sys.stderr)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(folder: Path) -> int:
    """Open and lock the folder. HostError if another process holds the lock for longer than a check whether
    it is free takes.
    """
    fd, deadline = _open(folder), time.monotonic() + _LOCK_S
    try:
        while not _has_locked(fd):
            if time.monotonic() > deadline:
                raise HostError(
                    f"lock {folder}: another process holds it, for {_LOCK_S:g} s; lslocks names it"
                )
            time.sleep(_LOOK_S)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _has_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_free(folder: Path) -> bool:
    try:
        fd = _open(folder)
    except (FileNotFoundError, PermissionError):  # it has just been removed, or only root may open it
        return False
    try:
        return _has_locked(fd)
    finally:
        os.close(fd)
