"""`testbed down`: asks a testbed to end, sees it gone, and ends it by force when it does not go."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.client.runtime import Runtime

ASK_S = 25.0  # longer than the main process waits for its daemon
FORCE_S = 10.0


def main(argv: list[str]) -> int:
    """Return the exit code; see testbed/errors.py."""
    from testbed.client import rpc
    from testbed.client.runtime import DEFAULT_NAME, Runtime, sweep
    from testbed.errors import TestbedError

    parser = argparse.ArgumentParser(
        prog="testbed down", description="End a testbed and all that runs on it."
    )
    parser.add_argument("--name", default=DEFAULT_NAME, help="of the testbed (default)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    runtime = Runtime.of(arguments.name)
    if not runtime.alive() and os.geteuid() == 0:
        sweep(arguments.name)
    runtime.require_alive()
    pid = runtime.read_main().get("pid")
    try:
        rpc.call(runtime.socket, "down", timeout_s=5.0)
    except TestbedError:  # not up yet, or stuck: its main process takes a signal at any time
        _signal_main(runtime, pid, signal.SIGTERM)
    if not _gone(runtime, ASK_S):
        print(f"testbed down: not ended after {ASK_S:g} s: killing pid {pid}", file=sys.stderr)
        _signal_main(runtime, pid, signal.SIGKILL)
        if not _gone(runtime, FORCE_S):
            raise TestbedError(
                f"testbed {runtime.name!r} is still there after its main process (pid {pid}) was killed"
            )
        sweep(arguments.name)
    down = {"name": runtime.name, "pid": pid, "state": "down"}
    print(json.dumps(down) if arguments.json else f"testbed {runtime.name!r} is down")
    return 0


def _gone(runtime: Runtime, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while runtime.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _signal_main(runtime: Runtime, pid: object, number: signal.Signals) -> None:
    """Signal the main process, if the process of this number has the testbed's lock open: numbers are used
    again.
    """
    from testbed.errors import HostError, TestbedError

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


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
