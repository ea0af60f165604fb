"""The control messages between workers and the optimizer node, over TCP: a worker's calls and their replies.
Parameters and gradients travel by the tree instead (workloads/luwu/nic.py).

A message is a line of JSON, with the message's type in `kind`. If it has `bytes`, so many bytes follow the
line.
"""

from __future__ import annotations

import errno
import json
import socket
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar, get_args

from testbed.wire.settings import decoded
from workloads.luwu.errors import LuwuError
from workloads.luwu.layout import Description
from workloads.luwu.rates import Rates

PULL, PUSH, CLEAR, NORM, STEP, CLOSE = "pull", "push", "clear", "norm", "step", "close"
RECORD, NOT_FINITE, STATES = "record", "not finite", "states"
_LONGEST: Final = 64 << 20  # bytes of a line, at most: a model's names and shapes
_AT_ONCE: Final = 1 << 16
# errors of a connection whose other end has left or is out of reach, or that was shut here
_GONE: Final = frozenset(
    (
        *(errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENOTCONN, errno.EBADF),
        *(errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH),
    )
)


class GoneError(LuwuError):
    """The other end of a connection has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """A worker's first message: its identity, and the model, optimizer, disks and states, which are equal on
    all workers.

    `names` are the tensors of each group, `groups` the groups' settings (`Rule.groups`). `start` is the
    iteration of the first values; `moments` says whether they include moments.
    """

    worker: int
    job: int
    generation: int
    model: Description
    dtype: str
    rule: str
    names: tuple[tuple[str, ...], ...]
    groups: str
    resume: bool
    start: int
    moments: bool
    folders: tuple[str, ...]
    rates: Rates | None
    update: str


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """The node ends, for this reason."""

    error: str


@dataclass(frozen=True, slots=True)
class ValueQuestion:
    """The node asks for a first value of a tensor: `part` 0 is its weights, 1 and 2 are its moments."""

    name: str
    part: int


@dataclass(frozen=True, slots=True)
class FirstValue:
    """A first value; its bytes follow."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """The node's store is open, at this iteration and with these settings of groups."""

    iteration: int
    groups: str
    notice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCall:
    """A worker's call, numbered per worker, with its arguments: the layer, the clipping norm, the factor, the
    groups' settings, or the file of a record.
    """

    call: str
    number: int
    layer: int | None = None
    clip_norm: float | None = None
    factor: float = 1.0
    groups: str | None = None
    file: str | None = None

    def in_words(self, layers: Sequence[str]) -> str:
        """Describe the call in words. `layers` are the names of the model's layers."""
        words = self.call
        if self.layer is not None:
            words += f" of layer {layers[self.layer]}"
        if self.clip_norm is not None:
            words += f" clipped to {self.clip_norm:g}"
        return words


@dataclass(frozen=True, slots=True)
class Exponent:
    """The exponent that a worker measured in the values that it pushes by call number `of`."""

    of: int
    exponent: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to call number `of`.

    It has the reason of a refusal, or a value, whose type depends on the call. For a push it has the scale,
    None where some worker's values are not finite.
    """

    of: int
    error: str | None = None
    value: Any = None
    scale: int | None = None


Message = Greeting | NodeFailure | ValueQuestion | FirstValue | Opened | NodeCall | Exponent | Reply
M = TypeVar("M", bound=Message)
_KINDS: Final = {kind.__name__: kind for kind in get_args(Message)}


class Connection:
    """Exchanges messages over a socket. Several threads may send; one receives."""

    def __init__(self, end: socket.socket, peer: str) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.settimeout(None)
        self.peer = peer
        self._socket = end
        self._file = end.makefile("rb", _AT_ONCE)
        self._sending = threading.Lock()

    def send(self, message: Message, blob: bytes | memoryview = b"") -> None:
        """Send a message. Raises GoneError, or LuwuError for another reason."""
        values = {each.name: getattr(message, each.name) for each in fields(message)}
        row = {"kind": type(message).__name__, **values, **({"bytes": len(blob)} if blob else {})}
        line = json.dumps(row, default=asdict).encode() + b"\n"
        try:
            with self._sending:
                self._socket.sendall(line)
                if blob:
                    self._socket.sendall(blob)
        except OSError as problem:
            raise self._failure("send to", problem) from problem

    def receive(self) -> tuple[Message, bytes]:
        """Receive a message. Raises GoneError at the end of the connection, LuwuError for an invalid
        message.
        """
        try:
            line = self._file.readline(_LONGEST)
            if not line.endswith(b"\n"):
                raise GoneError(f"{self.peer} is gone")
            row = json.loads(line)
            size, kind = int(row.pop("bytes", 0)), row.pop("kind", None)
            blob = self._file.read(size)
            if len(blob) < size:
                raise GoneError(f"{self.peer} is gone")
            if kind not in _KINDS:
                raise ValueError(f"kind {kind!r}")
            message: Message = decoded(_KINDS[kind], row)
        except OSError as problem:
            raise self._failure("receive from", problem) from problem
        except (ValueError, TypeError, AttributeError) as problem:
            raise LuwuError(f"{self.peer} sent what is no message: {problem}") from problem
        return message, blob

    def expect(self, kind: type[M]) -> tuple[M, bytes]:
        """Receive a message of this kind. Raises as `receive` does, and LuwuError for another kind."""
        message, blob = self.receive()
        if not isinstance(message, kind):
            raise LuwuError(f"{self.peer} sent a {type(message).__name__}, and no {kind.__name__}")
        return message, blob

    def _failure(self, attempt: str, problem: OSError) -> LuwuError:
        if problem.errno in _GONE:
            return GoneError(f"{self.peer} is gone")
        return LuwuError(f"{attempt} {self.peer}: {problem.strerror or problem}")

    def shut(self) -> None:
        """Shut the connection in both directions; a thread that waits in `receive` gets GoneError."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as problem:
            if problem.errno not in _GONE:
                raise

    def close(self) -> None:
        self.shut()
        self._file.close()
        self._socket.close()
