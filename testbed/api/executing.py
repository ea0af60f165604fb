"""Run a command in a host of a testbed, and wait for its end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from testbed.client import environment
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError, from_exit_code
from testbed.interpreters import isolated

_COMPLAINT = "testbed exec: "


def execute(
    runtime: Runtime, host: str, command: Sequence[str], timeout_s: float | None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a host through `testbed exec`; return its exit code and output. Raises the typed error
    if the command could not be run, and TestbedError if it has not ended in time: it gets SIGHUP then.
    """
    runtime.require_alive()
    words = ("-m", "testbed.exec", "--name", runtime.name, host, "--", *command)
    argv = isolated(*words, path=environment.interpreter())
    try:
        ended = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:  # the client is gone by now, and its command is hung up for that
        raise TestbedError(
            f"{host}: {command[0]} had not ended after {timeout_s:g} s, and was ended"
        ) from None
    if ended.returncode and ended.stderr.startswith(_COMPLAINT):
        raise from_exit_code(ended.returncode, ended.stderr.splitlines()[-1].removeprefix(_COMPLAINT))
    return ended
