"""Processes that outlived what they belong to: those of which something holds are found and ended, whoever
their parents are.
"""

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
    """Kill every process in the session of this leader, which is not reaped yet, and wait until they are
    gone; return how many there were.
    """

    def belongs(folder: Path) -> bool:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        return int(fields[_SESSION]) == leader and fields[_STATE] != "Z"

    return end_those(belongs, processes)


def end_those(belongs: Callable[[Path], bool], processes: Path = Path("/proc")) -> int:
    """Kill every process that this process can see of whose folder in /proc `belongs` holds, and wait until
    they are gone; return how many there were.
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
            # Looked at after the number is held: the process that it names now is the one that is killed.
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
    """Return a process's environment. In the middle of execve(2) it has none for a moment, though who started
    it goes on already: that moment is waited for. A thread of the kernel and a process that has ended have
    no memory, and a process without an environment has an end of it all the same.
    """
    deadline = time.monotonic() + _EXEC_S
    while not (environment := (process / "environ").read_bytes()) and time.monotonic() < deadline:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        if fields[_VSIZE] == "0" or fields[_ENV_END] != "0":
            break
        time.sleep(0.001)
    return environment


def users_of(process: Path) -> set[int]:
    """Return the user ids of a process: real, effective, saved, and for files."""
    for line in (process / "status").read_text().splitlines():
        name, *ids = line.split()
        if name == "Uid:":
            return {int(uid) for uid in ids}
    return set()
