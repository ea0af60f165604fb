"""Bring up a testbed for this process; the testbed ends with the process, also if that is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from testbed.api.down import end
from testbed.client import environment
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime, check_name
from testbed.errors import RequestError, TestbedError, from_exit_code
from testbed.interpreters import isolated

Config = str | Path | Mapping[str, Any]  # a ready-made name, a file, FILE.py:CLASS, or a file's content


def bring_up(
    config: Config,
    name: str,
    controller: str | None = None,
    log_packets: bool = False,
    scale: int | str | None = None,
) -> int:
    """Bring a testbed up through `testbed up`, in its own processes, and return its main process's pid.
    Raises the error that the command failed with; an interrupt meanwhile leaves no testbed behind.
    """
    from testbed.topology.load import SHOWN_STDIN, STDIN

    check_name(name)
    content = None
    if isinstance(config, Mapping):  # by the standard input: files that it names start in the working folder
        own = config.get("name")
        content = _yaml({**config, "name": name if own is None else own}, "configuration")
    words = ["up", "--detach", "--json", "--ends-with", str(os.getpid()), "--name", name]
    words += ["--config", str(config) if content is None else str(STDIN)]
    words += [*(["--controller", controller] if controller else [])]
    words += ["--log-packets"] if log_packets else []
    words += [] if scale is None else [f"--scale={scale}"]
    undo = partial(end, Runtime.of(name), lambda _: None)
    try:
        return int(json.loads(run_command(*words, undo=undo, content=content))["pid"])
    except TestbedError as error:
        if content is None:
            raise
        raise type(error)(str(error).replace(SHOWN_STDIN, "configuration")) from None


def run_command(*words: str, undo: Callable[[], object] = lambda: None, content: str | None = None) -> str:
    """Run another command of the project with `content` on its standard input, and return its output. Raises
    the error for its exit code, with its last line. The command has no terminal: an interrupt is passed on to
    it and its end awaited. If it had succeeded by then, calls `undo`.
    """
    argv = isolated("-m", f"testbed.{words[0]}", *words[1:], path=environment.interpreter())
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL if content is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, complaints = process.communicate(content)
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.communicate()
            if process.returncode == 0:
                undo()
            raise
    if process.returncode:
        lines = complaints.strip().splitlines() or [f"it ended with {process.returncode}"]
        message = lines[-1].removeprefix(f"testbed {words[0]}: ")
        raise from_exit_code(process.returncode, message)
    return output


@contextlib.contextmanager
def file_with(data: Any, name: str) -> Iterator[str]:
    """Yield the path of a YAML file with this content, readable by the user of the commands. The file is
    removed with the block. Raises TestbedError if it cannot be written.
    """
    text = _yaml(data, name)
    caller = Caller.of_this_process()
    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="testbed-")))
            (folder / name).write_text(text)
            if os.geteuid() == 0:
                for path in (folder / name, folder):
                    os.chown(path, caller.uid, caller.gid)
        except OSError as error:
            raise TestbedError(f"write {error.filename or name}: {error.strerror}") from error
        yield str(folder / name)


def _yaml(data: Any, what: str) -> str:
    import yaml

    from testbed.topology.yaml_text import written

    try:
        return written(data)
    except yaml.YAMLError as error:
        raise RequestError(f"{what}: it cannot be written as YAML: {error}") from error
