"""Run a command in a host of a running testbed from this process: with its standard input, output and error,
its signals, and the command's exit code. Owns this process's signals and terminal meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.requests import CommandEnd, CommandRequest, asked
from testbed.errors import TestbedError
from testbed.host_commands import keeper
from testbed.host_commands.terminal import STANDARD, Terminal

_LOOK_S = 0.3
_DRAIN_S = 1.0  # for the remaining output in an ended command's terminal
HUNG_UP = 128 + signal.SIGHUP


def attended(
    daemon: Path, host: str, argv: Sequence[str], cwd: str, environ: Mapping[str, str]
) -> tuple[int, str | None]:
    """Run the command; return its exit code, and the reason if it could not be run. Raises the daemon's
    errors.
    """
    with contextlib.ExitStack() as stack:
        terminal = stack.enter_context(Terminal()) if os.isatty(0) else None
        attendance = stack.enter_context(_Attendance(terminal))
        behind = Caller.of_this_process(environ).uid
        request = CommandRequest(host=host, argv=list(argv), cwd=cwd, environ=dict(environ), behind=behind)
        return attendance.run(daemon, request)


class _Attendance:
    """One command, from the request to its end. A context manager: leaving restores this process's signals
    and descriptors.
    """

    def __init__(self, terminal: Terminal | None) -> None:
        self._terminal = terminal
        self._control: socket.socket | None = None
        self._heard, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._end: CommandEnd | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._failure: str | None = None
        self._keys = b""
        self._release = contextlib.ExitStack()

    def __enter__(self) -> _Attendance:
        self._release.callback(os.close, self._heard)
        self._release.callback(os.close, self._wake)
        before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._release.callback(signal.set_wakeup_fd, before)
        for number in (*keeper.PASSED_ON, signal.SIGWINCH):
            handler = signal.signal(number, lambda *_: None)
            self._release.callback(signal.signal, number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        if self._control is not None:
            self._control.close()
        self._release.close()

    def run(self, daemon: Path, request: CommandRequest) -> tuple[int, str | None]:
        asking = threading.Thread(target=self._ask, args=(daemon, request), name="exec", daemon=True)
        asking.start()
        while not self._over.is_set():
            if (code := self._step()) is not None:
                return code, None
        asking.join()
        self._last_words()
        if self._error is not None:
            raise self._error
        assert self._end is not None
        return self._end.exit_code, self._end.failure or self._failure

    # ------------------------------------------------------------------ the request, on a thread of its own

    def _ask(self, daemon: Path, request: CommandRequest) -> None:
        try:
            words = asdict(request)
            answer = rpc.call(daemon, "exec", on_event=self._on_event, timeout_s=None, **words)
            self._end = asked(CommandEnd, answer)
        except TestbedError as error:
            self._error = error
        finally:
            self._over.set()
            os.write(self._wake, b"\0")

    def _on_event(self, _event: object, fd: int | None) -> None:
        """Pass the command's streams to its keeper, which has started."""
        if fd is None:
            raise TestbedError("exec: the testbed passed no descriptor")
        control = socket.socket(fileno=fd)
        mask = os.umask(0o077)
        os.umask(mask)
        streams = STANDARD if self._terminal is None else self._terminal.streams()
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # the keeper has ended, as the answer reports
            socket.send_fds(control, [keeper.start_message(mask, self._terminal is not None)], streams)
        self._control = control
        os.write(self._wake, b"\0")

    # ------------------------------------------------------------------ the loop

    def _step(self) -> int | None:
        """Wait for an event and process it; return an exit code if the command is over."""
        poll = select.poll()
        poll.register(self._heard, select.POLLIN)
        if self._control is not None:
            poll.register(self._control, select.POLLIN)
        terminal = self._terminal if self._control is not None else None
        if terminal is not None:
            terminal.close_slave()
            terminal.take()
            if not terminal.ended:
                poll.register(terminal.master, select.POLLIN | (select.POLLOUT if self._keys else 0))
            if not self._keys and terminal.is_ours():
                poll.register(0, select.POLLIN)
        # a background process is not notified when it comes to the foreground, so poll for that
        ready = dict(poll.poll(None if terminal is None or terminal.is_ours() else _LOOK_S * 1e3))
        if self._heard in ready:
            for number in os.read(self._heard, 512):
                if number and (code := self._on_signal(number)) is not None:
                    return code
        if self._control is not None and self._control.fileno() in ready:
            self._listen(self._control)
        if terminal is not None:
            if ready.get(terminal.master, 0) & (select.POLLIN | select.POLLHUP) and (data := terminal.read()):
                terminal.show(data)
            if self._keys:
                self._keys = self._keys[terminal.type(self._keys) :]
            elif 0 in ready and not self._read_keys():
                return HUNG_UP
        return None

    def _read_keys(self) -> bool:
        """Read typed keys; return False if the terminal is gone, which ends the command."""
        try:
            self._keys = os.read(0, 4096)
        except OSError:
            return False
        return bool(self._keys)

    def _on_signal(self, number: int) -> int | None:
        if number == signal.SIGWINCH:
            if self._terminal:
                self._terminal.resize()
        elif self._control is None:  # no keeper to pass it to yet
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                return 128 + number
        else:
            self._pass_on(number)
        return None

    def _pass_on(self, number: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if self._control is not None:
                self._control.send(keeper.SIGNAL + bytes([number]))

    def _listen(self, control: socket.socket) -> None:
        """Process a message from the keeper."""
        try:
            message = control.recv(keeper.LONGEST_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionResetError:
            message = b""
        if message[:1] == keeper.STOPPED:
            self._stop()
        elif message[:1] == keeper.FAILED:
            self._failure = message[1:].decode(errors="replace")
        elif not message:  # the daemon's answer follows
            self._over.wait()

    def _stop(self) -> None:
        """Stop, as the command did; once continued, continue the command."""
        if self._terminal:
            self._terminal.restore()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._pass_on(signal.SIGCONT)

    def _last_words(self) -> None:
        """Read what the keeper and the command wrote before the answer came."""
        if self._control is not None:
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                while message := self._control.recv(keeper.LONGEST_BYTES, socket.MSG_DONTWAIT):
                    if message[:1] == keeper.FAILED:
                        self._failure = message[1:].decode(errors="replace")
        if self._terminal is not None and self._control is not None:
            self._terminal.close_slave()
            poll = select.poll()
            poll.register(self._terminal.master, select.POLLIN)
            while poll.poll(_DRAIN_S * 1e3) and (data := self._terminal.read()):
                self._terminal.show(data)
