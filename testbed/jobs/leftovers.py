"""Processes of a job that left their session, and so outlived it. Known by the job's description in their
environment. Those of a session, for who has one to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

from testbed.jobs.ready import ready

_GONE_S = 5.0
_EXEC_S = 1.0
_STATE, _SESSION, _VSIZE, _ENV_END = 0, 3, 20, 48  # in /proc/PID/stat, of the fields after the program's name


def end_leftovers(variable: str, values: Collection[str], processes: Path = Path("/proc")) -> int:
    """Kill every process that this process can see whose environment has `variable` with one of `values`, and
    wait until they are gone; return how many there were. A process with such a value is the job's: it names
    the job and the worker.
    """
    wanted = {f"{variable}={value}".encode() for value in values}
    return _end(lambda folder: not wanted.isdisjoint(_environment(folder).split(b"\0")), processes)


def end_session(leader: int, processes: Path = Path("/proc")) -> int:
    """Do the same to every process in the session of this leader, which is not reaped yet."""

    def belongs(folder: Path) -> bool:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        return int(fields[_SESSION]) == leader and fields[_STATE] != "Z"

    return _end(belongs, processes)


def _end(belongs: Callable[[Path], bool], processes: Path) -> int:
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


def _environment(process: Path) -> bytes:
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
