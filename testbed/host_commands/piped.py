"""Run a command in a host of a running testbed with pipes in the place of this process's own streams, so that
one process can run several. The command ends with this process, or when it is left.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.requests import CommandEnd, CommandRequest, asked
from testbed.errors import TestbedError
from testbed.host_commands import keeper

_END_S = 10.0
_UMASK = 0o077


class PipedCommand:
    """A command of `caller` in a host, while entered. `output` is the descriptor of its standard output."""

    def __init__(self, daemon: Path, caller: Caller, host: str, argv: Sequence[str]) -> None:
        self.host = host
        self._daemon, self._uid = daemon, caller.uid
        self._request = CommandRequest(host=host, argv=list(argv), cwd="/", environ={}, behind=caller.uid)
        self._stack = contextlib.ExitStack()
        self._ended, self._error = threading.Event(), ""
        self._control: socket.socket | None = None
        self._connection_lock = threading.Lock()
        self._is_left = False

    def __enter__(self) -> Self:
        self._input_end, self._input = os.pipe2(os.O_CLOEXEC)
        self.output, self._output_end = os.pipe2(os.O_CLOEXEC)
        for each in (self._input, self.output):
            self._stack.callback(os.close, each)
        self._thread = threading.Thread(target=self._ask, name=f"traffic {self.host}", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up: the command is ended by the keeper. Wait until the daemon has answered, so that nothing of
        it is left.
        """
        with self._connection_lock:
            self._is_left = True
            if self._control is not None:
                self._control.close()
        self._stack.close()
        self._ended.wait(_END_S)

    @property
    def failure(self) -> str:
        """Why the command ended or could not be run, as far as that is known; wait for its end."""
        self._ended.wait(_END_S)
        return self._error or "it ended without a word"

    def write(self, line: str) -> None:
        """Write a line to its standard input. Raises TestbedError if it has ended."""
        data = line.encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._input, data) :]
        except OSError:
            raise TestbedError(f"{self.host}: {self.failure}") from None

    def _ask(self) -> None:
        words = asdict(self._request)
        try:
            answer = rpc.call(
                self._daemon, "exec", on_event=self._on_event, timeout_s=None, uid=self._uid, **words
            )
            end = asked(CommandEnd, answer)
            self._error = end.failure or f"its process ended with exit code {end.exit_code}"
        except TestbedError as error:
            self._error = str(error)
        finally:
            self._close_ends()
            self._ended.set()

    def _on_event(self, _event: Any, fd: int | None) -> None:
        """Pass the command's streams to its keeper, which has started."""
        if fd is None:
            raise TestbedError("exec: the testbed passed no descriptor")
        control = socket.socket(fileno=fd)
        with self._connection_lock:
            if self._is_left:
                control.close()
                return
            streams = (self._input_end, self._output_end, self._output_end)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(control, [keeper.start_message(_UMASK, False)], streams)
            self._control = control
        self._close_ends()

    def _close_ends(self) -> None:
        """Close the command's own ends of the pipes, so that the end of the command ends the pipes."""
        ends, self._input_end, self._output_end = (self._input_end, self._output_end), -1, -1
        for each in ends:
            if each >= 0:
                os.close(each)
