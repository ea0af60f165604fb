"""One connection of a server: it reads the request within a time and a size, runs the handler in a thread of
its own, and sends events and the reply.

Owns the thread that reads and writes. Senders append to a bounded buffer and continue: only this thread waits
for a client that is stopped, is slow, or never reads.
"""

from __future__ import annotations

import enum
import json
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from testbed.client.rpc.peer import Peer
from testbed.errors import RequestError, TestbedError, disk_is_full

MAX_REQUEST_BYTES = 1 << 20
REQUEST_S = 10.0  # from the connection to the end of the request's line
# Bounds on unread data: output beyond the first is dropped, and any event beyond the second, but never the
# reply.
BACKLOG_BYTES, MOST_BACKLOG_BYTES = 1 << 20, 4 << 20
_PIECE_BYTES = 1 << 16


class Emit(Protocol):
    """Send an event, with a descriptor if given, which stays the caller's. Never blocks."""

    def __call__(self, event: dict[str, Any], fd: int | None = None) -> None: ...


class Handler(Protocol):
    """Answer a request with data that json can encode, or with JSON (bytes, one line); raises a TestbedError.
    `disconnected` is set when the client goes away. `emit` may be called from any thread and never blocks.
    """

    def __call__(
        self, request: dict[str, Any], peer: Peer, emit: Emit, disconnected: threading.Event
    ) -> Any: ...


class Phase(enum.Enum):
    """The state of a connection."""

    ASKING = "sends its request"
    WORKING = "is worked for"
    ANSWERED = "has its reply to read"
    CLOSED = "is closed"


class Connection:
    """A connection. Its own thread calls `run`; any thread may call the other methods. `closed` is called
    once, when both its client and its handler are done.
    """

    def __init__(
        self, connection: socket.socket, peer: Peer, handler: Handler, closed: Callable[[Connection], None]
    ) -> None:
        self._socket, self._peer, self._handler, self._closed = connection, peer, handler, closed
        self._socket.setblocking(False)
        self._disconnected = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()  # guards the fields below
        self.state = Phase.ASKING
        self.since = time.monotonic()  # when it entered that state
        self._backlog: deque[tuple[bytes, int | None]] = deque()  # lines, each with a descriptor that it owns
        self._backlog_bytes = 0
        self._missed_lines = self._missed_bytes = 0
        self._threads = 1

    def run(self) -> None:
        """Serve the request, from its first byte to the reply's last."""
        try:
            if self.state is Phase.ASKING:
                self._begin()
            self._pump()
        finally:
            with self._lock:
                self.state = Phase.CLOSED
                for _, fd in self._backlog:
                    _close_fd(fd)
                self._backlog.clear()
                os.close(self._wake)
                self._close()
            self._disconnected.set()
            self._leave()

    def _close(self) -> None:
        """Close the socket after reading what the client still sends, at most a kernel buffer: with unread
        data the client would see an error in place of the reply's end.
        """
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)
            while self._socket.recv(_PIECE_BYTES):
                pass
        self._socket.close()

    def _begin(self) -> None:
        try:
            request = self._request()
        except RecursionError:
            self.refuse("request not understood: nested too deeply")
        except (OSError, ValueError) as error:
            self.refuse(f"request not understood: {error}")
        else:
            if request is not None and self._change_state(Phase.WORKING):
                self._threads += 1
                try:
                    threading.Thread(target=self._work, args=(request,), name="request", daemon=True).start()
                except RuntimeError:  # the system has no more threads to give
                    self._threads -= 1
                    self.refuse("no thread can be started on this machine: ask again")

    def _leave(self) -> None:
        """Note that a thread is done; the last one reports the connection as over."""
        with self._lock:
            self._threads -= 1
            last = self._threads == 0
        if last:
            self._closed(self)

    def refuse(self, why: str, exit_code: int = RequestError.exit_code) -> None:
        """Send this error as the reply."""
        self._reply(_refusal(exit_code, why))

    def start(self) -> None:
        """Start the thread that runs the connection. If the system can start no thread, close the
        connection.
        """
        try:
            threading.Thread(target=self.run, name="connection", daemon=True).start()
        except RuntimeError:
            self.give_up()
            self.run()

    def give_up(self) -> None:
        """Close the connection, whatever its client has read; its thread ends soon."""
        self._change_state(Phase.CLOSED)

    # ------------------------------------------------------------------ the request

    def _request(self) -> dict[str, Any] | None:
        """Read the request; None if the server gave the connection up. Raises ValueError or OSError for a
        malformed one.
        """
        pieces: list[bytes] = []
        size = 0
        deadline = self.since + REQUEST_S
        while not pieces or b"\n" not in pieces[-1]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ValueError(f"its line did not end within {REQUEST_S:g} s")
            self._poll(select.POLLIN, left_s)
            if self.state is Phase.CLOSED:
                return None
            with suppress(BlockingIOError):
                pieces.append(self._socket.recv(_PIECE_BYTES))
                if not pieces[-1]:
                    raise ValueError("the connection ended before the line did")
                size += len(pieces[-1])
            if size > MAX_REQUEST_BYTES:
                raise ValueError(f"longer than {MAX_REQUEST_BYTES} bytes")
        line, _, _ = b"".join(pieces).partition(b"\n")
        request = json.loads(line, parse_constant=_no_number)
        if not isinstance(request, dict) or not isinstance(request.get("op"), str):
            raise ValueError("no op")
        return request

    def _work(self, request: dict[str, Any]) -> None:
        try:
            result = self._handler(request, self._peer, self._emit, self._disconnected)
            encoded = result if isinstance(result, bytes) else json.dumps(result).encode()
            answer = b'{"ok": true, "result": %b}' % encoded
        except TestbedError as error:
            self.refuse(str(error), error.exit_code)
        except Exception as error:
            if isinstance(error, OSError) and (full := disk_is_full(error)):
                self.refuse(str(full), full.exit_code)
                return
            # a defect: the client must not hang, and the server's log must show it
            traceback.print_exc(file=sys.stderr)
            self.refuse(f"{request['op']}: {type(error).__name__}: {error}", 1)
        else:
            self._reply(answer)
        finally:
            self._leave()

    # ------------------------------------------------------------------ what goes to the client

    def _emit(self, event: dict[str, Any], fd: int | None = None) -> None:
        line = json.dumps({"event": event} | ({} if fd is None else {"passes": True})).encode() + b"\n"
        with self._lock:
            if self.state is not Phase.WORKING:
                return
            if self._missed_lines and self._backlog_bytes <= BACKLOG_BYTES // 2:
                self._report_missed()
            bound = BACKLOG_BYTES if "output" in event else MOST_BACKLOG_BYTES
            if self._backlog_bytes + len(line) > bound or (self._missed_lines and "output" in event):
                self._missed_lines += 1
                self._missed_bytes += len(str(event.get("output", "")).encode(errors="replace"))
                return
            self._put(line, None if fd is None else os.dup(fd))

    def _reply(self, line: bytes) -> None:
        with self._lock:
            if self.state is Phase.CLOSED:
                return
            if self._missed_lines:
                self._report_missed()
            self._put(line + b"\n")
            self.state, self.since = Phase.ANSWERED, time.monotonic()

    def _report_missed(self) -> None:
        missed = {"lines": self._missed_lines, "bytes": self._missed_bytes}
        self._missed_lines = self._missed_bytes = 0
        self._put(json.dumps({"event": {"missed": missed}}).encode() + b"\n")

    def _put(self, line: bytes, fd: int | None = None) -> None:
        if not self._backlog:
            os.eventfd_write(self._wake, 1)
        self._backlog.append((line, fd))
        self._backlog_bytes += len(line)

    def _pump(self) -> None:
        """Send the backlog until the reply is in the kernel's buffer, or the client or the server gives
        up.
        """
        reading, piece = True, b""
        passed: int | None = None
        while True:
            with self._lock:
                if self.state is Phase.CLOSED:
                    return _close_fd(passed)
                if not piece and self._backlog:
                    piece, passed = self._next_piece()
                if not piece and self.state is Phase.ANSWERED:
                    return
            ready = self._poll((select.POLLIN if reading else 0) | (select.POLLOUT if piece else 0), None)
            if ready & select.POLLIN and reading:
                reading = self._read_more()
            if ready & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                return _close_fd(passed)
            if ready & select.POLLOUT and piece:
                try:
                    piece = piece[
                        socket.send_fds(self._socket, [piece], [] if passed is None else [passed]) :
                    ]
                except BlockingIOError:
                    continue
                except OSError:  # the client went away
                    return _close_fd(passed)
                _close_fd(passed)  # it was sent with the first byte
                passed = None

    def _next_piece(self) -> tuple[bytes, int | None]:
        """Take the next lines off the backlog, with the descriptor that goes with them: a line with a
        descriptor begins a piece.
        """
        line, fd = self._backlog.popleft()
        taken, size = [line], len(line)
        while self._backlog and size < _PIECE_BYTES and self._backlog[0][1] is None:
            taken.append(self._backlog.popleft()[0])
            size += len(taken[-1])
        self._backlog_bytes -= size
        return b"".join(taken), fd

    def _read_more(self) -> bool:
        """Return whether to read on, and note if the client has closed its side. Data after a request is
        ignored, and reading stops there.
        """
        try:
            if self._socket.recv(_PIECE_BYTES):
                return False
        except BlockingIOError:
            return True
        except OSError:
            pass
        self._disconnected.set()
        return False

    def _poll(self, events: int, timeout_s: float | None) -> int:
        """Wait until the socket is ready or another thread wakes this one; return the socket's ready
        events.
        """
        poll = select.poll()
        poll.register(self._socket, events)
        poll.register(self._wake, select.POLLIN)
        ready = dict(poll.poll(None if timeout_s is None else timeout_s * 1e3))
        if self._wake in ready:
            with suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        return ready.get(self._socket.fileno(), 0)

    def _change_state(self, state: Phase) -> bool:
        """Change the state; return False if it is closed already."""
        with self._lock:
            if self.state is Phase.CLOSED:
                return False
            self.state, self.since = state, time.monotonic()
            os.eventfd_write(self._wake, 1)
            return True


def _refusal(exit_code: int, error: str) -> bytes:
    return json.dumps({"ok": False, "exit_code": exit_code, "error": error}).encode()


def _close_fd(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")
