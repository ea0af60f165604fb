"""Processes of a job that left their session, and so outlived it. Known by the job's description in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from testbed.jobs.ready import ready

_GONE_S = 5.0


def end_leftovers(variable: str, values: Collection[str], processes: Path = Path("/proc")) -> int:
    """Kills every process that this one can see whose environment has `variable` with one of `values`, and waits until they
    are gone; how many there were. A process that has one is the job's: the value names the job and the worker."""
    wanted = {f"{variable}={value}".encode() for value in values}
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
            # Read after the number is held: the process that it names now is the one that is killed.
            if not wanted.isdisjoint((folder / "environ").read_bytes().split(b"\0")):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                undo.pop_all()
                pidfds.append(pidfd)
    deadline = time.monotonic() + _GONE_S
    for pidfd in pidfds:
        ready([pidfd], deadline - time.monotonic())
        os.close(pidfd)
    return len(pidfds)
