"""A disk: a folder whose files are read and written through three queues, the most urgent first.

Owns the threads that read and write, and the choice of direct I/O. From the project it imports rates, spans,
errors, the layout and checksums.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path

from workloads.luwu.checksum import checksum
from workloads.luwu.errors import DamageError, DiskError
from workloads.luwu.layout import PAGE
from workloads.luwu.rates import Meter, Queue, Rates
from workloads.luwu.spans import Span, Spans

THREADS = 3  # of a disk, and the most pieces under way
_MOST_PIECE_BYTES, _LEAST_PIECE_BYTES = 1 << 20, 1 << 16
_PIECE_S = 0.01  # about the time of a piece at a declared rate: the longest delay of a more urgent piece


@dataclass(frozen=True, slots=True)
class Purpose:
    """The purpose of a request, for its span."""

    iteration: int
    phase: str
    layer: int


@dataclass(slots=True)
class _Request:
    file: int
    name: str
    offset: int
    view: memoryview
    purpose: Purpose
    expected: int | None  # the checksum that a read must have
    asked: int = 0  # bytes that pieces were started for
    left: int = 0  # bytes that are not done yet
    start_ns: int = 0
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Piece:
    queue: Queue
    request: _Request
    start: int
    end: int


class Disk:
    """A disk and its threads. Thread-safe; `close` ends the threads."""

    def __init__(self, number: int, folder: Path, rates: Rates, spans: Spans) -> None:
        self.number = number
        self.folder = folder
        self.direct = _direct_works(folder / "lock")
        self._spans = spans
        self._meter = Meter(rates)
        declared = [
            rate
            for rate in (rates.read_parameters, rates.read_states, rates.write_states, rates.reads)
            if rate
        ]
        wanted = int(min(declared, default=float(_MOST_PIECE_BYTES / _PIECE_S)) * _PIECE_S)
        self._piece_bytes = max(_LEAST_PIECE_BYTES, min(_MOST_PIECE_BYTES, wanted)) // PAGE * PAGE
        self._waiting: dict[Queue, deque[_Request]] = {queue: deque() for queue in Queue}
        self._calls: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._closed = False
        self._changed = threading.Condition()
        self.written_bytes = self.read_bytes = 0
        self._threads = [
            threading.Thread(target=self._serve, name=f"disk {number}", daemon=True) for _ in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def open_file(self, name: str) -> int:
        return os.open(self.folder / name, os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if self.direct else 0))

    def submit(
        self,
        queue: Queue,
        file: int,
        name: str,
        offset: int,
        view: memoryview,
        purpose: Purpose,
        expected: int | None = None,
    ) -> Future[None]:
        """Queue a read into `view` or a write from it, in whole pages. The future raises DiskError;
        DamageError where a read has another checksum than `expected`.
        """
        request = _Request(file, name, offset, view, purpose, expected, left=len(view))
        with self._changed:
            if self._closed:
                request.done.set_exception(DiskError(f"{self.folder / name}: closed"))
            else:
                self._waiting[queue].append(request)
                self._changed.notify_all()
        return request.done

    def waiting(self) -> tuple[int, int, int]:
        """Return how many requests wait in each queue, the most urgent queue first."""
        with self._changed:
            reads, states, writes = (len(self._waiting[queue]) for queue in Queue)
        return reads, states, writes

    def call(self, function: Callable[[], None]) -> Future[None]:
        """Run a function on a thread of the disk, before all waiting requests."""
        done: Future[None] = Future()
        with self._changed:
            self._calls.append((function, done))
            self._changed.notify()
        return done

    def close(self) -> None:
        """Stop the threads. Pieces under way end first; waiting requests fail."""
        with self._changed:
            self._closed = True
            waiting = [request for requests in self._waiting.values() for request in requests]
            for requests in self._waiting.values():
                requests.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for request in waiting:
            _fail(request.done, DiskError(f"{self.folder / request.name}: closed"))

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._calls and (piece := self._choose(time.monotonic())) is None:
                    if self._closed:
                        return
                    self._changed.wait(self._pause_s(time.monotonic()))
                call = self._calls.popleft() if self._calls else None
            if call is not None:
                _settle(*call)
            else:
                assert piece is not None
                self._carry_out(piece)
                piece = None  # frees the request's buffer

    def _choose(self, now_s: float) -> _Piece | None:
        """Start the next piece of the most urgent queue whose rate permits it; return None where none
        does.
        """
        for queue, requests in self._waiting.items():
            if requests and self._meter.free_s(queue) <= now_s:
                request = requests[0]
                start = request.asked
                request.asked = end = min(start + self._piece_bytes, len(request.view))
                if start == 0:
                    request.start_ns = time.monotonic_ns()
                if end == len(request.view):
                    requests.popleft()
                self._meter.spend(queue, end - start, now_s)
                return _Piece(queue, request, start, end)
        return None

    def _pause_s(self, now_s: float) -> float | None:
        times = [self._meter.free_s(queue) for queue, requests in self._waiting.items() if requests]
        return max(0.0, min(times) - now_s) if times else None

    def _carry_out(self, piece: _Piece) -> None:
        request = piece.request
        try:
            if not request.done.done():
                self._move(piece)
        except OSError as problem:
            verb = "write" if piece.queue is Queue.WRITE_STATES else "read"
            _fail(
                request.done,
                DiskError(f"{verb} {self.folder / request.name}: {reason(problem, self.folder)}"),
            )
        with self._changed:
            request.left -= piece.end - piece.start
            last = request.left == 0
        if last:
            purpose = request.purpose
            self._spans.add(
                Span(
                    f"disk {self.number} {piece.queue.name.lower().replace('_', ' ')}",
                    purpose.iteration,
                    purpose.phase,
                    purpose.layer,
                    request.start_ns,
                    time.monotonic_ns(),
                    len(request.view),
                )
            )
            if request.expected is not None and not request.done.done():
                self._check(request)
            with contextlib.suppress(InvalidStateError):  # a piece of it failed, or its data are damaged
                request.done.set_result(None)

    def _check(self, request: _Request) -> None:
        if checksum(request.view) != request.expected:
            start, end = request.offset, request.offset + len(request.view)
            _fail(
                request.done,
                DamageError(
                    f"read {self.folder / request.name}: damaged between bytes {start} and {end}, whose "
                    "checksum is not that of what was written"
                ),
            )

    def _move(self, piece: _Piece) -> None:
        request, at = piece.request, piece.start
        writes = piece.queue is Queue.WRITE_STATES
        while at < piece.end:
            part = request.view[at : piece.end]
            function = os.pwritev if writes else os.preadv
            moved = function(request.file, [part], request.offset + at)
            if moved == 0:
                raise OSError(errno.EIO, f"the file ends at {request.offset + at} bytes")
            at += moved
        with self._changed:
            if writes:
                self.written_bytes += piece.end - piece.start
            else:
                self.read_bytes += piece.end - piece.start


def reason(problem: OSError, folder: Path) -> str:
    """Return the kernel's error text; for a full disk, also the bytes that are free."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            room = os.statvfs(folder)
            return f"{problem.strerror}; {room.f_bavail * room.f_frsize} bytes are free"
    return problem.strerror or str(problem)


def _direct_works(file: Path) -> bool:
    """Return whether direct I/O can read and write a page of this file, which has at least one."""
    with mmap.mmap(-1, PAGE) as page:
        try:
            fd = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
        except OSError as problem:
            if problem.errno == errno.EINVAL:
                return False
            raise
        try:
            return os.preadv(fd, [page], 0) == PAGE and os.pwritev(fd, [page], 0) == PAGE
        except OSError as problem:
            if problem.errno == errno.EINVAL:
                return False
            raise
        finally:
            os.close(fd)


def _settle(function: Callable[[], None], done: Future[None]) -> None:
    try:
        function()
    except Exception as problem:
        done.set_exception(problem)
    else:
        done.set_result(None)


def _fail(done: Future[None], problem: Exception) -> None:
    with contextlib.suppress(InvalidStateError):  # another piece of the request failed before
        done.set_exception(problem)
