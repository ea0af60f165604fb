"""Additional OpenFlow connections to a bridge, by its management socket, for changes of many flows.

Open vSwitch processes at most 50 messages of a connection before it visits all its bridges again, which takes
10 to 15 ms with 250 bridges: 500 flows on one connection took ten such turns. It processes as many messages
of each further connection in the same turn.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.errors import TestbedError

PER_TURN = 48  # messages per connection, without its barrier
MOST = 16  # connections
REPLY_TIMEOUT_S = 10.0
_VERSION = 4  # of OpenFlow 1.3 on the wire
_HELLO, _ERROR, _ECHO_REQUEST, _ECHO_REPLY, _BARRIER_REQUEST, _BARRIER_REPLY = 0, 1, 2, 3, 20, 21
_HEAD, _ERROR_BODY = struct.Struct("!BBHI"), struct.Struct("!HH")


def _message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return _HEAD.pack(_VERSION, kind, _HEAD.size + len(body), xid) + body


class _Connection:
    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._xid = 0
        try:
            self._socket.settimeout(REPLY_TIMEOUT_S)
            self._socket.connect(str(path))
            self._socket.sendall(_message(_HELLO, 0))
        except OSError:
            self.close()
            raise
        self._received = self._socket.makefile("rb")

    def begin(self, messages: Sequence[bytes]) -> None:
        """Send messages, followed by a barrier."""
        self._xid += 1
        self._socket.sendall(b"".join((*messages, _message(_BARRIER_REQUEST, self._xid))))

    def finish(self) -> Iterator[str]:
        """Wait for the barrier, and yield the errors that arrive before it."""
        while True:
            _, kind, length, xid = _HEAD.unpack(self._read(_HEAD.size))
            body = self._read(length - _HEAD.size)
            if kind == _BARRIER_REPLY and xid == self._xid:
                return
            if kind == _ERROR:
                error, code = _ERROR_BODY.unpack_from(body)
                yield f"OpenFlow error type {error} code {code}"
            elif kind == _ECHO_REQUEST:
                self._socket.sendall(_message(_ECHO_REPLY, xid, body))

    def _read(self, size: int) -> bytes:
        read = self._received.read(size)
        if len(read) < size:
            raise ConnectionResetError("the connection has ended")
        return read

    def close(self) -> None:
        self._socket.close()


class Management:
    """The additional connections to one bridge."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connections: list[_Connection] = []
        self._using = threading.Lock()

    def open(self, messages: int) -> None:
        """Open the connections for this many messages in advance: Open vSwitch accepts one per turn. `send`
        reports a failure.
        """
        with self._using, contextlib.suppress(OSError):
            self._connect(messages)

    def send(self, messages: Sequence[bytes]) -> list[str]:
        """Send flow modifications, which must not depend on each other's order; wait until the bridge has
        made all, and return its refusals. TestbedError if it cannot be reached.
        """
        try:
            with self._using:
                return self._sent(messages)
        except OSError as error:
            self.close()  # the remaining connections may have answers under way
            raise TestbedError(f"set flows by {self._path.name}: {error.strerror or error}") from error

    def _sent(self, messages: Sequence[bytes]) -> list[str]:
        count = self._connect(len(messages))
        busy = self._connections[:count]
        for place, connection in enumerate(busy):
            connection.begin(messages[place::count])
        return [text for connection in busy for text in connection.finish()]

    def _connect(self, messages: int) -> int:
        count = min(MOST, -(-messages // PER_TURN))
        while len(self._connections) < count:
            self._connections.append(_Connection(self._path))
        return count

    def close(self) -> None:
        """Close all connections."""
        with self._using:
            for connection in self._connections:
                connection.close()
            self._connections = []
