"""The cgroups of a testbed's hosts: made before anything of it starts, removed after all of it is gone.

    TOP/optinc-NAME-XXXXXXXX/u1h1  u2h3  ...       TOP: hierarchy.py; one for each host that has a limit

A lock on the folder says whose it is: it is held until the cgroups are gone, by the main process and by the
keeper (keeper.py), which removes them when the main process dies. Only root may look into the folder: whoever
can open it could hold the lock.
"""

from __future__ import annotations

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
from testbed.cgroups.hierarchy import REMEDY, Hierarchy, find, limit
from testbed.errors import HostError, RequestError
from testbed.interpreters import isolated

_GONE_S = 10.0
_LOCK_S = 2.0
_LOOK_S = 0.02
_SWEEP_S = 2.0


class HostCgroups:
    """The cgroups of the testbed `name`, with what the hosts in `cpus` may use, in cores. A context manager;
    without such hosts it makes nothing. `folder` has one for each host, by its name.
    """

    def __init__(self, name: str, cpus: Mapping[str, float]) -> None:
        self._name, self._cpus = name, cpus
        self.folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def __enter__(self) -> Self:
        """Raises HostError where cgroups cannot be made, RequestError for more cores than there are."""
        if not self._cpus:
            return self
        cores = len(os.sched_getaffinity(0))
        for host, cpus in self._cpus.items():
            if cpus > cores:
                raise RequestError(f"{host}: cpus: {cpus:g}; this machine has {cores} cores for it")
        hierarchy = find()
        try:
            self._make(hierarchy)
        except OSError as error:
            self._close()
            raise HostError(f"{error.filename or hierarchy.top}: {error.strerror}; {REMEDY}") from error
        except BaseException:
            self._close()
            raise
        return self

    def _make(self, hierarchy: Hierarchy) -> None:
        self.folder = folder = hierarchy.top / f"optinc-{self._name}-{secrets.token_hex(4)}"
        os.mkdir(folder, 0o700)
        try:
            self._keep(folder, _lock(folder))
        except BaseException:
            os.rmdir(folder)
            raise
        hierarchy.pass_on(folder)
        for host, cpus in self._cpus.items():
            os.mkdir(folder / host)
            limit(hierarchy, folder / host, cpus)

    def _keep(self, folder: Path, lock: int) -> None:
        """Start the keeper, which has the lock from now on."""
        reader, self._pipe = os.pipe2(os.O_CLOEXEC)
        argv = isolated("-I", "-S", keeper.__file__, str(reader), str(lock), str(folder))
        try:
            # a terminal's Ctrl-C is not for it
            self._keeper = subprocess.Popen(
                argv, pass_fds=[reader, lock], cwd="/", stdin=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            os.close(reader)
            os.close(lock)

    def _close(self) -> None:
        """Have the keeper remove what was made, and see it gone."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._keeper is None or self.folder is None:
            return
        try:
            is_gone = self._keeper.wait(_GONE_S) == 0 or keeper.remove(self.folder, _SWEEP_S)
        except subprocess.TimeoutExpired:
            is_gone = False
        self._keeper = None
        if not is_gone:
            _report_left(self.folder)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def dead(name: str | None = None) -> list[Path]:
    """Return the cgroups of dead testbeds, of that name or of any: those whose lock is free. None where this
    host has no cgroups that one could have made.
    """
    pattern = re.compile(rf"optinc-{'[a-z0-9-]+' if name is None else re.escape(name)}-[0-9a-f]{{8}}")
    try:
        folders = [folder for folder in find().top.iterdir() if pattern.fullmatch(folder.name)]
    except (HostError, FileNotFoundError, PermissionError):
        return []
    return [folder for folder in folders if _is_free(folder)]


def sweep(name: str) -> None:
    """Remove what a testbed of that name left, whose main process and keeper died at once. For root, who
    knows that none of that name lives.
    """
    for folder in dead(name):
        if not keeper.remove(folder, _SWEEP_S):
            _report_left(folder)


def _report_left(folder: Path) -> None:
    print(f"testbed: {folder} is still there, with processes in it", file=sys.stderr)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(folder: Path) -> int:
    """Return the open folder, locked. HostError where another process has the lock for longer than it takes
    to look whether it is free.
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
    except (FileNotFoundError, PermissionError):  # it has just gone, or is for root to look at
        return False
    try:
        return _has_locked(fd)
    finally:
        os.close(fd)
