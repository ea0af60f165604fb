"""End a testbed: request its end, wait for it, and kill its main process if it does not end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from testbed.client import rpc
from testbed.client.environment import typed
from testbed.client.runtime import Runtime, remove_dead, sweep
from testbed.errors import HostError, TestbedError

ASK_S = 25.0  # longer than the main process waits for its daemon
FORCE_S = 10.0
DEAD = "dead"


@dataclass(frozen=True, slots=True)
class EndedTestbed:
    """A testbed that has ended: `state` is "down", or DEAD if it had died before."""

    name: str
    pid: int | None
    state: str


def end(runtime: Runtime, say: Callable[[str], None]) -> EndedTestbed:
    """End a testbed and all that runs on it; return its name and its main process's pid when it is gone.
    Reports through `say` before it kills the process. For a testbed that has died, removes the files that it
    left, and returns the state DEAD. Raises HostError, with the remedy, if this needs root.
    """
    if not runtime.alive() and (last := runtime.last_words()):
        if os.geteuid() != 0:
            remedy = f"to remove what it left: sudo {typed('down', runtime.name)}"
            raise HostError(f"testbed {runtime.name!r} is not running: {last}; {remedy}")
        remove_dead(runtime.name)
        return EndedTestbed(runtime.name, last.pid, DEAD)
    if not runtime.alive() and os.geteuid() == 0:
        sweep(runtime.name)
    runtime.require_alive()
    main = runtime.read_main()
    pid = main.pid if main else None
    try:
        rpc.call(runtime.socket, "down", timeout_s=5.0)
    except TestbedError:  # not up yet, or stuck: its main process handles a signal at any time
        _signal_main(runtime, pid, signal.SIGTERM)
    if not _gone(runtime, ASK_S):
        say(f"not ended after {ASK_S:g} s: killing pid {pid}")
        _signal_main(runtime, pid, signal.SIGKILL)
        if not _gone(runtime, FORCE_S):
            raise TestbedError(
                f"testbed {runtime.name!r} is still there after its main process (pid {pid}) was killed"
            )
        sweep(runtime.name)
    return EndedTestbed(runtime.name, pid, "down")


def _gone(runtime: Runtime, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while runtime.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _signal_main(runtime: Runtime, pid: object, number: signal.Signals) -> None:
    """Signal the main process, after a check that this process has the testbed's lock file open: the kernel
    reuses pids.
    """
    if not isinstance(pid, int):
        raise TestbedError(f"testbed {runtime.name!r} is starting and has not said its pid yet: try again")
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not runtime.held_by(pid):
            raise TestbedError(f"testbed {runtime.name!r}: pid {pid} does not hold its lock; not signalled")
        signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, FileNotFoundError):  # it, or its lock, has just gone
        return
    except PermissionError:
        raise HostError(
            f"end testbed {runtime.name!r}: its main process (pid {pid}) is root's: use sudo"
        ) from None
    finally:
        os.close(pidfd)
