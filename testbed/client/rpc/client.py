"""The client of testbed/client/rpc."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from testbed.client.environment import typed
from testbed.client.terminal_text import line
from testbed.errors import OwnerError, TestbedError, from_exit_code

_DYING_S = 15.0  # from a server's end until its testbed's death is written down: jobs are ended first
_LOOK_S = 0.05
_PIECE_BYTES = 1 << 16
SILENT_S = 10.0  # a healthy server says in milliseconds whether it is ready


class SilentError(TestbedError):
    """A server accepts requests but does not answer in time."""


class AbsentError(TestbedError):
    """No server listens, or it ended before it answered."""


def call(
    path: Path,
    op: str,
    *,
    on_event: Callable[[Any, int | None], None] | None = None,
    timeout_s: float | None = 60.0,
    **arguments: Any,
) -> Any:
    """Send a request, and return its result. Raises the error that the server raised, or TestbedError if it
    does not answer. `on_event` gets each event and its descriptor, if any, which it must close.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            if (
                timeout_s is not None
            ):  # this waits while the queue of connections is full; a Python socket timeout would not
                whole, rest = divmod(timeout_s, 1)
                limit = struct.pack("@ll", int(whole), int(rest * 1e6))
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            connection.connect(str(path))
            connection.settimeout(timeout_s)
            with suppress(BrokenPipeError, ConnectionResetError):  # refused early: the reply has the reason
                connection.sendall(json.dumps({"op": op, **arguments}).encode() + b"\n")
            with closing(_lines(connection)) as lines:
                for answered, fds in lines:
                    message = json.loads(answered)
                    if "event" in message:
                        passed = fds.pop(0) if "passes" in message and fds else None
                        if on_event:
                            on_event(message["event"], passed)
                        elif passed is not None:
                            os.close(passed)
                        continue
                    if message["ok"]:
                        return message["result"]
                    raise from_exit_code(message["exit_code"], line(message["error"]))
        except PermissionError as error:
            raise OwnerError(f"{op} at {path}: only root and the user who started the testbed may") from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise _absent(path, op) from error
        except (TimeoutError, BlockingIOError) as error:
            raise SilentError(f"{op} at {path}: no answer in {timeout_s:g} s") from error
        except ValueError as error:  # half a line: the server died while it wrote
            raise TestbedError(f"{op} at {path}: the answer is no JSON: {error}") from error
        except BrokenPipeError:  # from `on_event`, whose output has no reader: nothing else is written here
            raise
        except OSError as error:
            raise TestbedError(f"{op} at {path}: {error.strerror or error}") from error
    raise _gone(path, op)


def _absent(path: Path, op: str) -> TestbedError:
    """Make the error for a missing server: why its testbed died, if it did."""
    return _died(path, op, was_up=False) or AbsentError(
        f"{op}: nobody answers at testbed {path.parent.name!r}: it comes up or goes down ({path})"
    )


def _gone(path: Path, op: str) -> TestbedError:
    """Make the error for a server that went away: why its testbed died, if it did."""
    return _died(path, op, was_up=True) or AbsentError(
        f"{op} at {path}: the server went away before it answered"
    )


def _died(path: Path, op: str, was_up: bool) -> TestbedError | None:
    """Return why the testbed of a gone daemon died, waiting up to _DYING_S until that is written down; None
    if it ends normally or comes up, or the server is not a daemon.
    """
    from testbed.client.runtime import Runtime  # late: it imports callers, which import this package's peers

    runtime, deadline = Runtime(path.parent.name, path.parent), time.monotonic() + _DYING_S
    while path == runtime.socket:
        main = None
        with suppress(TestbedError):
            main = runtime.read_main()
            if last := runtime.last_words():
                words = typed("status", runtime.name)
                return TestbedError(f"{op}: testbed {runtime.name!r} is gone: {last}; more: {words}")
        was_up = was_up or (main is not None and main.state == "ready")
        if not main or not was_up or time.monotonic() > deadline:
            return None
        time.sleep(_LOOK_S)
    return None


def require_answer(path: Path, what: str, state: str = "ready") -> bool:
    """Return whether the server is in a state. Raises SilentError after SILENT_S seconds without an answer,
    so that a caller does not wait for a dead server as long as for its work.
    """
    try:
        return bool(call(path, state, timeout_s=SILENT_S))
    except SilentError as error:
        raise SilentError(
            f"{what} has not answered for {SILENT_S:g} s: it is stopped, or has no processor"
        ) from error


def _lines(connection: socket.socket) -> Generator[tuple[bytes, list[int]], None, None]:
    """Yield each line with the list of received descriptors; the consumer removes those that it takes, and
    the rest are closed at the end.
    """
    rest, fds = b"", list[int]()
    try:
        while True:
            data, passed, _, _ = socket.recv_fds(connection, _PIECE_BYTES, 1)
            for fd in passed:  # Python 3.11's recv_fds does not pass on MSG_CMSG_CLOEXEC
                os.set_inheritable(fd, False)
            fds += passed
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line, fds
            if not data:
                if rest:
                    yield rest, fds
                return
    finally:
        for fd in fds:
            os.close(fd)
