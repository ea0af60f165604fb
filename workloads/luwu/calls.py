"""The small messages between workers and the optimizer node, over TCP: which calls a worker makes, and what
comes of them. Parameters and gradients go by the tree (workloads/luwu/nic.py), and not here.

A message is a line of JSON and, where the line says `bytes`, so many after it.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
from typing import Any, Final

from workloads.luwu.errors import LuwuError

PULL, PUSH, CLEAR, NORM, STEP, CLOSE = "pull", "push", "clear", "norm", "step", "close"
RECORD, NOT_FINITE, STATES = "record", "not finite", "states"
_LONGEST: Final = 64 << 20  # a line: a model's names and shapes
_AT_ONCE: Final = 1 << 16
# of a connection whose other end has left or is out of reach, or that was ended here
_GONE: Final = frozenset(
    (
        *(errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENOTCONN, errno.EBADF),
        *(errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH),
    )
)

Message = dict[str, Any]


class GoneError(LuwuError):
    """The other end of a connection is no longer there."""


class Connection:
    """Messages over a socket. Several threads may send; one receives."""

    def __init__(self, end: socket.socket, peer: str) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.settimeout(None)
        self.peer = peer
        self._socket = end
        self._file = end.makefile("rb", _AT_ONCE)
        self._sending = threading.Lock()

    def send(self, message: Message, blob: bytes | memoryview = b"") -> None:
        """Raises GoneError, or LuwuError where it cannot be sent for another reason."""
        line = json.dumps({**message, "bytes": len(blob)} if blob else message).encode() + b"\n"
        try:
            with self._sending:
                self._socket.sendall(line)
                if blob:
                    self._socket.sendall(blob)
        except OSError as problem:
            raise self._failure("send to", problem) from problem

    def receive(self) -> tuple[Message, bytes]:
        """Raises GoneError at the end, LuwuError for what is no message."""
        try:
            line = self._file.readline(_LONGEST)
            if not line.endswith(b"\n"):
                raise GoneError(f"{self.peer} is gone")
            message = json.loads(line)
            size = int(message.pop("bytes", 0))
            blob = self._file.read(size)
        except OSError as problem:
            raise self._failure("receive from", problem) from problem
        except (ValueError, AttributeError) as problem:
            raise LuwuError(f"{self.peer} sent what is no message: {problem}") from problem
        if len(blob) < size:
            raise GoneError(f"{self.peer} is gone")
        return message, blob

    def _failure(self, attempt: str, problem: OSError) -> LuwuError:
        if problem.errno in _GONE:
            return GoneError(f"{self.peer} is gone")
        return LuwuError(f"{attempt} {self.peer}: {problem.strerror or problem}")

    def shut(self) -> None:
        """End it both ways; who waits in `receive` hears it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as problem:
            if problem.errno not in _GONE:
                raise

    def close(self) -> None:
        self.shut()
        self._file.close()
        self._socket.close()


def spoken(message: Message, model_layers: list[str]) -> str:
    """Return a call in words."""
    words = str(message["call"])
    if "layer" in message:
        words += f" of layer {model_layers[message['layer']]}"
    if message.get("clip_norm") is not None:
        words += f" clipped to {message['clip_norm']:g}"
    return words
