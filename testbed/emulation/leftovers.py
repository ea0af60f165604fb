"""Find and kill processes that outlived their owners, by a predicate, whoever their parents are."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from testbed.machine.ready import ready

_GONE_S = 5.0
_EXEC_S = 1.0
_STATE, _SESSION, _VSIZE, _ENV_END = 0, 3, 20, 48  # in /proc/PID/stat, of the fields after the program's name


def end_session(leader: int, processes: Path = Path("/proc")) -> int:
    """Kill every process in this leader's session (the leader is not reaped yet), wait until they are gone,
    and return their number.
    """

    def belongs(folder: Path) -> bool:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        return int(fields[_SESSION]) == leader and fields[_STATE] != "Z"

    return end_those(belongs, processes)


def end_those(belongs: Callable[[Path], bool], processes: Path = Path("/proc")) -> int:
    """Kill every visible process for whose folder in /proc `belongs` returns true, wait until they are gone,
    and return their number.
    """
    pidfds = []
    for folder in processes.iterdir():
        if not folder.name.isdigit():
            continue
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError),
            contextlib.ExitStack() as undo,
        ):
            pidfd = os.pidfd_open(int(folder.name))
            undo.callback(os.close, pidfd)
            # Checked after opening the pidfd: so the process that was checked is the one that is killed.
            if belongs(folder):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                undo.pop_all()
                pidfds.append(pidfd)
    deadline = time.monotonic() + _GONE_S
    for pidfd in pidfds:
        ready([pidfd], deadline - time.monotonic())
        os.close(pidfd)
    return len(pidfds)


def environment_of(process: Path) -> bytes:
    """Read a process's environment. During execve(2) it is empty for a moment, although the starter already
    continues: wait for that to pass. A kernel thread and an ended process have no memory; a process without
    an environment still has an end address of it.
    """
    deadline = time.monotonic() + _EXEC_S
    while not (environment := (process / "environ").read_bytes()) and time.monotonic() < deadline:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        if fields[_VSIZE] == "0" or fields[_ENV_END] != "0":
            break
        time.sleep(0.001)
    return environment


def users_of(process: Path) -> set[int]:
    """Return the user ids of a process: real, effective, saved, and of the file system."""
    for line in (process / "status").read_text().splitlines():
        name, *ids = line.split()
        if name == "Uid:":
            return {int(uid) for uid in ids}
    return set()
