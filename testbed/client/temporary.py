"""Run a testbed for the time of a block, and other testbed commands, each as a process."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import IO

from testbed.client.output import UNREAD
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError, from_exit_code
from testbed.interpreters import isolated

END_S = 15.0  # how long a terminated command may take before it is killed
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def running(name: str, config: str, *more: str) -> Iterator[None]:
    """Run a testbed of this name until the block ends: normally, by an error, Ctrl-C, SIGTERM or SIGHUP. If
    this process is killed, the testbed ends with it. `more`: further words for `testbed up`.
    """
    began, ended = time.monotonic(), 0
    with handling(ENDING, _interrupt):
        try:
            words = ("up", "--detach", "--ends-with", str(os.getpid()), "--name", name, "--config", config)
            if code := command(*words, *more):
                raise from_exit_code(code, f"bring up {config}: it failed; its lines are above")
            yield
        finally:
            # a signal would ask for what already happens; `down` inherits the ignored signals
            with handling(ENDING, signal.SIG_IGN):
                if Runtime.of(name).alive():
                    ended = command("down", "--name", name)
                    print(f"up for {time.monotonic() - began:.0f} s", flush=True)
    if ended:
        raise TestbedError(f"take {name} down: exit code {ended}")


def command(*words: str, output: IO[bytes] | None = None) -> int:
    """Run another testbed command and return its exit code; its output is shown as it comes, or goes to a
    file. An interrupt of this process terminates it. Raises BrokenPipeError if the reader of our common
    output has gone.
    """
    argv = isolated("-m", f"testbed.{words[0]}", *words[1:])
    with subprocess.Popen(argv, stdout=output, stderr=output) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    if code == UNREAD:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    return code


@contextlib.contextmanager
def handling(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None] | signal.Handlers
) -> Iterator[None]:
    """Set these signals' handler until the block ends."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
