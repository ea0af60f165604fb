"""The messages of the parameter-server baseline, and a connection that carries them.

Shared by `workloads.parameter_server` and `workloads.ps_client`; imports NumPy and, from the testbed, a
chunk's size only. A message is a header of whole-byte fields in network order and a payload; a payload of
gradients is little-endian binary32.
"""

from __future__ import annotations

import enum
import errno
import socket
import struct
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.wire.vector_chunks import CHUNK_BYTES

Floats = npt.NDArray[np.float32]

# kind, dtype, rank, payload bytes, sequence number of the all-reduce, elements of its vector, the chunk's
# first element
HEADER = struct.Struct("!BBHIQQQ")
FLOAT32 = 1
GRADIENT_BYTES = 4
_GONE = frozenset(
    (
        *(errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ENOTCONN),
        *(errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH),
    )
)


class Kind(enum.IntEnum):
    """The kinds of message. A payload of ranks is an array of big-endian u16."""

    HELLO = 1  # worker: joins with its rank; the payload is the number of workers (u16) and the job's name
    JOINED = 2  # server: the ranks that have sent HELLO so far; answers HELLO and ALSO
    CHUNK = 3  # worker: a contribution; server: the sum
    WHO = 4  # worker: which ranks have not pushed this chunk?
    LATE = 5  # server, in reply to WHO: the ranks
    GONE = 6  # server, on each connection, behind its sums: these ranks have left, and will never push
    REFUSED = 7  # server: the payload is the reason, in UTF-8; the connection ends
    BYE = 8  # worker: leaves without an error
    ALSO = 9  # worker: one more connection of a rank that has joined


@dataclass(frozen=True, slots=True)
class Message:
    kind: Kind
    rank: int = 0
    payload: bytes | memoryview = b""
    sequence: int = 0
    numel: int = 0
    offset: int = 0

    def header(self) -> bytes:
        size = len(self.payload)
        return HEADER.pack(self.kind, FLOAT32, self.rank, size, self.sequence, self.numel, self.offset)


def pack_ranks(ranks: set[int]) -> bytes:
    return np.array(sorted(ranks), dtype=">u2").tobytes()


def unpack_ranks(payload: bytes | memoryview) -> set[int]:
    return set(np.frombuffer(payload, dtype=">u2").tolist())


class ProtocolError(RuntimeError):
    """The other side sent a message that this protocol does not allow."""


def is_gone(problem: OSError) -> bool:
    """Return whether a connection's error means that the other side has left, or is out of reach."""
    return problem.errno in _GONE


class Channel:
    """One non-blocking connection: assembles the messages that arrive, and queues those to send."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._outgoing: deque[memoryview] = deque()
        self._header = memoryview(bytearray(HEADER.size))
        self._payload = memoryview(b"")
        self._filled = 0
        self._in_payload = False

    @property
    def unsent(self) -> bool:
        return bool(self._outgoing)

    def put(self, message: Message) -> None:
        """Queue a message; the payload's memory must not change until it is sent."""
        self._outgoing.append(memoryview(message.header()))
        if len(message.payload):
            self._outgoing.append(memoryview(message.payload))

    def flush(self) -> None:
        """Send as much as the socket accepts. Raises OSError when the connection is broken."""
        while self._outgoing:
            batch = [self._outgoing[i] for i in range(min(8, len(self._outgoing)))]
            try:
                sent = self.socket.sendmsg(batch)
            except BlockingIOError:
                return
            while self._outgoing and sent >= len(self._outgoing[0]):
                sent -= len(self._outgoing.popleft())
            if sent:
                self._outgoing[0] = self._outgoing[0][sent:]

    def receive(self) -> list[Message]:
        """Return the messages that are complete by now, up to about CHUNK_BYTES, so that no peer starves the
        others.

        Raises EOFError at the end of the stream, OSError when it broke, ProtocolError for an invalid header.
        """
        messages: list[Message] = []
        received = 0
        while received < CHUNK_BYTES:
            target = self._payload if self._in_payload else self._header
            try:
                count = self.socket.recv_into(target[self._filled :])
            except BlockingIOError:
                break
            if count == 0:
                if messages:
                    break  # return what came before the end; the next call finds the end again
                raise EOFError
            received += count
            self._filled += count
            if self._filled < len(target):
                continue
            self._filled = 0
            if self._in_payload:
                messages.append(self._message(self._payload))
                self._in_payload = False
            elif size := self._payload_bytes():
                self._payload = memoryview(bytearray(size))
                self._in_payload = True
            else:
                messages.append(self._message(memoryview(b"")))
        return messages

    def discard(self) -> None:
        """Read and discard what has arrived. Raises EOFError at the end of the stream, OSError when it
        broke.
        """
        try:
            if not self.socket.recv(CHUNK_BYTES):
                raise EOFError
        except BlockingIOError:
            return

    def _payload_bytes(self) -> int:
        kind, dtype, _, size, *_ = HEADER.unpack(self._header)
        if kind not in Kind.__members__.values() or dtype != FLOAT32 or size > CHUNK_BYTES:
            raise ProtocolError(
                f"kind {kind}, dtype {dtype}, {size} bytes: no message of the parameter server"
            )
        return int(size)

    def _message(self, payload: memoryview) -> Message:
        kind, _, rank, _, sequence, numel, offset = HEADER.unpack(self._header)
        return Message(Kind(kind), rank, payload, sequence, numel, offset)
