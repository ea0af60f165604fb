"""Requests over a unix socket: one JSON object a line. Imports nothing of the project but errors.

A request is {"op": ..., other arguments}. While it is worked on, lines {"event": {...}} may come; the last line is
{"ok": true, "result": ...} or {"ok": false, "exit_code": ..., "error": "one line"}. One connection carries one request; closing it early
tells the handler so.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from testbed.errors import RequestError, TestbedError, from_exit_code

MAX_REQUEST_BYTES = 1 << 20
_REQUEST_TIMEOUT_S = 10.0

Emit = Callable[[dict[str, Any]], None]


class Handler(Protocol):
    """Answers a request with something JSON-able, or raises a TestbedError. `disconnected` is set when the client goes away."""

    def __call__(self, request: dict[str, Any], emit: Emit, disconnected: threading.Event) -> Any: ...


@contextmanager
def serve(path: Path, handler: Handler, uid: int | None = None) -> Iterator[None]:
    """Serves until the block ends, each request on a thread of its own. The socket is for root and `uid` only."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        if uid is not None and uid != os.geteuid():
            os.chown(path, uid, -1)
        listener.listen(16)
        reader, writer = os.pipe()
        acceptor = threading.Thread(
            target=_accept, args=(listener, reader, handler), name=f"serve-{path.stem}", daemon=True
        )
        acceptor.start()
        try:
            yield
        finally:
            os.write(writer, b"x")
            acceptor.join()
            os.close(reader)
            os.close(writer)
            path.unlink(missing_ok=True)


def _accept(listener: socket.socket, stop: int, handler: Handler) -> None:
    while True:
        ready, _, _ = select.select([listener.fileno(), stop], [], [])
        if stop in ready:
            return
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, handler), daemon=True).start()


def _answer(connection: socket.socket, handler: Handler) -> None:
    lock = threading.Lock()
    disconnected = threading.Event()

    def send(message: dict[str, Any]) -> None:
        with lock, suppress(OSError):
            connection.sendall(json.dumps(message).encode() + b"\n")

    def watch() -> None:
        with suppress(OSError):
            while connection.recv(4096):
                pass
        disconnected.set()

    with connection:
        connection.settimeout(_REQUEST_TIMEOUT_S)
        try:
            request = json.loads(_line(connection))
            if not isinstance(request, dict) or not isinstance(request.get("op"), str):
                raise ValueError("no op")
        except (OSError, ValueError) as error:
            send({"ok": False, "exit_code": RequestError.exit_code, "error": f"request not understood: {error}"})
            return
        connection.settimeout(None)
        threading.Thread(target=watch, daemon=True).start()
        try:
            result = handler(request, lambda event: send({"event": event}), disconnected)
        except TestbedError as error:
            send({"ok": False, "exit_code": error.exit_code, "error": str(error)})
        except Exception as error:  # a defect: the client must not hang on it, and the server's log must show it
            send({"ok": False, "exit_code": 1, "error": f"{request['op']}: {type(error).__name__}: {error}"})
            raise
        else:
            send({"ok": True, "result": result})


def _line(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(65536)
        if not piece:
            raise ValueError("the connection ended before the line did")
        data += piece
        if len(data) > MAX_REQUEST_BYTES:
            raise ValueError(f"longer than {MAX_REQUEST_BYTES} bytes")
    return data


def call(path: Path, op: str, *, on_event: Emit | None = None, timeout_s: float | None = 60.0, **arguments: Any) -> Any:
    """Asks and returns the result. Raises the error that the server raised, or TestbedError when it does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            connection.sendall(json.dumps({"op": op, **arguments}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if "event" in message:
                        if on_event:
                            on_event(message["event"])
                        continue
                    if message["ok"]:
                        return message["result"]
                    raise from_exit_code(message["exit_code"], message["error"])
        except PermissionError as error:
            raise RequestError(f"{op} at {path}: only root and the user who started the testbed may") from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise TestbedError(f"{op}: nobody serves {path}") from error
        except TimeoutError as error:
            raise TestbedError(f"{op} at {path}: no answer in {timeout_s:g} s") from error
        except ValueError as error:  # half a line: the server died while it wrote
            raise TestbedError(f"{op} at {path}: the answer is no JSON: {error}") from error
        except OSError as error:
            raise TestbedError(f"{op} at {path}: {error.strerror or error}") from error
    raise TestbedError(f"{op} at {path}: the server went away before it answered")
