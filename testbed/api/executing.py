"""Run a command in a host of a testbed, and wait for its end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from testbed.client import environment
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError, from_exit_code
from testbed.interpreters import isolated

_COMPLAINT = "testbed exec: "
_END_S = 5.0  # for a command that was asked to end


def execute(
    runtime: Runtime, host: str, command: Sequence[str], timeout_s: float | None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a host through `testbed exec`; return its exit code and output. Raises the typed error
    if the command could not be run, and TestbedError if it has not ended in time: it is ended then.
    """
    runtime.require_alive()
    words = ("-m", "testbed.exec", "--name", runtime.name, host, "--", *command)
    argv = isolated(*words, path=environment.interpreter())
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            last = _end(process)
            late = f"{command[0]} had not ended after {timeout_s:g} s, and was ended"
            raise TestbedError(f"{host}: {late}{f'; its last line: {last}' if last else ''}") from None
        except BaseException:
            process.kill()  # its command is hung up then
            raise
    ended = subprocess.CompletedProcess(argv, process.returncode, output, errors)
    if ended.returncode and ended.stderr.startswith(_COMPLAINT):
        raise from_exit_code(ended.returncode, ended.stderr.splitlines()[-1].removeprefix(_COMPLAINT))
    return ended


def _end(process: subprocess.Popen[str]) -> str:
    """End a command: by SIGTERM, which `testbed exec` passes on, then by its client's end. Return the last
    line that it wrote.
    """
    process.terminate()
    try:
        output, errors = process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return ""
    lines = (errors or output or "").strip().splitlines()
    return lines[-1] if lines else ""
