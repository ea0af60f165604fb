"""Put one question to a user's process: write a line of JSON to the socket that is its standard input, and
read a line of JSON back before a deadline. Any other behaviour of the user's code becomes a one-line error.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from testbed.errors import RequestError
from testbed.machine.process import Spawned

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_MOST_BYTES = 1 << 20  # of an answer
_PIECE_BYTES = 1 << 16


def ask(start: Callable[[int], Spawned], question: object, kind: type[T], wanted: str, within_s: float) -> T:
    """Start a process by `start(descriptor of its standard input)`, ask it one question, end its session, and
    return the answer as a `kind`, whose fields are unchecked and have defaults. RequestError says in one line
    why there is no answer; `wanted` names the answer in that message.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            try:
                process = start(theirs.fileno())
            except (OSError, subprocess.SubprocessError) as error:
                raise RequestError(f"start it: {error}") from error
        try:
            line = _answered(ours, json.dumps(question).encode() + b"\n", within_s)
        except TimeoutError as error:
            raise RequestError(f"no {wanted} within {within_s:g} s") from error
        finally:
            process.end()
    if line is None:
        raise RequestError(process.why_not() or "it ended without an answer")
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError("its answer is no JSON") from error
    if not isinstance(answer, dict):
        raise RequestError("its answer is no JSON object")
    return kind(**{name: answer[name] for name in kind.__dataclass_fields__ if name in answer})


def _answered(peer: socket.socket, question: bytes, within_s: float) -> bytes | None:
    """Return the line that the process writes back; None if it closes its end. TimeoutError after `within_s`
    seconds.
    """
    deadline, received = time.monotonic() + within_s, b""
    try:
        peer.settimeout(within_s)
        peer.sendall(question)
        while b"\n" not in received:
            peer.settimeout(max(deadline - time.monotonic(), 0.001))
            piece = peer.recv(_PIECE_BYTES)
            if not piece:
                return None
            received += piece
            if len(received) > _MOST_BYTES:
                raise RequestError(f"an answer of more than {_MOST_BYTES} bytes")
    except (BrokenPipeError, ConnectionResetError):
        return None
    return received.partition(b"\n")[0]
