"""Run a command in a host of a testbed, and wait for its end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from testbed.client import environment
from testbed.client.runtime import Runtime
from testbed.errors import from_exit_code
from testbed.interpreters import isolated

_COMPLAINT = "testbed exec: "


def execute(runtime: Runtime, host: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a host through `testbed exec`; return its exit code and output. Raises the typed error
    if the command could not be run.
    """
    runtime.require_alive()
    words = ("-m", "testbed.exec", "--name", runtime.name, host, "--", *command)
    argv = isolated(*words, path=environment.interpreter())
    ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode and ended.stderr.startswith(_COMPLAINT):
        raise from_exit_code(ended.returncode, ended.stderr.splitlines()[-1].removeprefix(_COMPLAINT))
    return ended
