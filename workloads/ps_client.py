"""A worker's side of the parameter-server baseline. Imports NumPy, `workloads.ps_protocol`, and of the
testbed the rule by which connections are spread.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address
from typing import Self

import numpy as np

from testbed.wire import spreading
from testbed.wire.vector_chunks import chunk_of
from workloads.ps_protocol import (
    GRADIENT_BYTES,
    Channel,
    Floats,
    Kind,
    Message,
    ProtocolError,
    unpack_ranks,
)

# Of a worker. Each takes the circuit that its ports say: where there are several, a chunk goes by each.
CONNECTIONS = 2
# Pushed by one connection, and their sums are to come: a worker that pushed on would take the server's link
# from one who is behind. Small chunks are more, or a sum's way there and back would be longer than what is
# under way.
AHEAD = 4
# Of all workers by all their connections, so that a queue of 256 full segments, which a link has unless told
# otherwise, holds them: TCP that loses a part waits for it.
AHEAD_BYTES = 256 * 1024
CONNECT_RETRY_S = 0.05
# above every job's server's, so that a flow's lower port is the server's (testbed/telemetry/traffic.py), and
# below those that the kernel gives out
SOURCE_PORTS = range(31_500, 32_768)
_NO_WAY = errno.ENETUNREACH, errno.EHOSTUNREACH
ANSWER_S = 2.0  # for the server to say who is late, or to take a farewell


class ParameterServerError(RuntimeError):
    """The parameter server cannot be reached, has gone, or has refused this worker."""


class MissingWorkersError(ParameterServerError):
    """Workers have left or are too late. `ranks` names them."""

    def __init__(self, message: str, ranks: frozenset[int]) -> None:
        super().__init__(message)
        self.ranks = ranks


@dataclass(slots=True, eq=False)
class _Link:
    """One of a worker's connections. A chunk's sum comes by the one that the chunk went by."""

    channel: Channel
    ahead_bytes: int  # its part of AHEAD_BYTES
    awaited: int = 0  # chunks pushed whose sums are to come
    awaited_bytes: int = 0
    is_taken: bool = False  # the server has said that it knows whose it is
    gone: set[int] = field(default_factory=set)  # ranks of which the server has said so here

    @property
    def has_room(self) -> bool:
        return self.awaited < AHEAD or self.awaited_bytes < self.ahead_bytes


class PsClient:
    """One worker's connections. Vectors come in the same order on all workers; a vector that is submitted
    while another is waited for is sent behind it. A chunk goes by the connection on which least is under
    way; at most `AHEAD` chunks, or its part of `AHEAD_BYTES`, are pushed by each before their sums are there.
    `submit` is called by one thread at a time, so are the other calls.

    After an error the connections are of no use: every later call raises the same error.
    """

    def __init__(
        self, address: tuple[str, int], rank: int, workers: int, timeout_s: float, job: str = ""
    ) -> None:
        """Connects, waits until all workers have, and makes the further connections.

        `timeout_s` bounds this wait and, later, every span in which no sum arrives. Raises
        MissingWorkersError, naming them, or ParameterServerError.
        """
        self._where = f"parameter server {address[0]} port {address[1]}"
        self._rank = rank
        self._timeout_s = timeout_s
        self._started = self._sequence = 0  # the latest all-reduce under way, and the one waited for
        self._received = 0
        self._joined: set[int] = set()
        self._gone: set[int] = set()
        self._late: set[int] | None = None
        self._failure: ParameterServerError | None = None
        self._coming: deque[Floats] = deque()  # submitted, and not started yet
        self._arrays: dict[int, Floats] = {}
        self._pending: dict[int, set[int]] = {}  # offsets of chunks whose sums are to come
        self._unpushed: deque[Message] = deque()
        self._ahead_bytes = AHEAD_BYTES // (workers * CONNECTIONS)
        first = Channel(self._connect(address, 0, time.monotonic() + timeout_s))
        self._links = [_Link(first, self._ahead_bytes)]
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._first.socket, selectors.EVENT_READ, self._links[0])
        self._selector.register(self._woken, selectors.EVENT_READ)
        try:
            self._join(set(range(workers)), struct.pack("!H", workers) + job.encode())
            for number in range(1, CONNECTIONS):
                self._connect_also(address, number)
        except BaseException:
            self._hang_up()
            raise

    @property
    def _first(self) -> Channel:
        return self._links[0].channel

    def allreduce_(self, array: Floats) -> None:
        """`submit` and `finish`."""
        self.submit(array)
        self.finish()

    def set_timeout(self, timeout_s: float) -> None:
        """Have spans without a sum be this long at most from now on."""
        self._timeout_s = timeout_s

    def submit(self, array: Floats) -> None:
        """Gives a contiguous 1-D binary32 array to be replaced by its sum over all workers, added in the
        order of rank.
        """
        if (
            array.dtype != np.float32
            or array.ndim != 1
            or not array.flags.c_contiguous
            or not array.flags.writeable
        ):
            raise ValueError("all-reduce takes a writable, contiguous, 1-D array of float32")
        self._coming.append(array)
        try:
            self._waker.send(b"+")
        except BlockingIOError:
            pass  # it is full, and wakes anyway
        except OSError:
            if self._failure is None and self._waker.fileno() >= 0:
                raise  # else it is closed, and `finish` says why

    def finish(self) -> None:
        """Waits for the oldest array submitted and not finished.

        Raises MissingWorkersError or ParameterServerError; the array then holds sums in part.
        """
        if self._failure is not None:
            raise self._failure
        self._start_coming()
        self._sequence += 1
        pending = self._pending[self._sequence]
        while pending:
            if not self._wait(partial(self._more_than, self._received), self._timeout_s):
                self._raise_late()
        del self._pending[self._sequence], self._arrays[self._sequence]

    def _start_coming(self) -> None:
        while self._coming:
            array = self._coming.popleft()
            self._started += 1
            payload, length = array.data.cast("B"), chunk_of(len(array))
            offsets = range(0, len(array), length)
            self._arrays[self._started], self._pending[self._started] = array, set(offsets)
            for offset in offsets:
                # the sum of a chunk may replace it at once: it exists only after all of the chunk was sent
                chunk = payload[offset * GRADIENT_BYTES : (offset + length) * GRADIENT_BYTES]
                self._unpushed.append(
                    Message(Kind.CHUNK, self._rank, chunk, self._started, len(array), offset)
                )
        self._push()

    def _push(self) -> None:
        while self._unpushed:
            link = min(self._links, key=lambda link: link.awaited_bytes)
            if not link.has_room:
                return
            chunk = self._unpushed.popleft()
            link.channel.put(chunk)
            link.awaited += 1
            link.awaited_bytes += len(chunk.payload)

    def _more_than(self, received: int) -> bool:
        return self._received > received

    def close(self) -> None:
        """Leaves in good order; a second call does nothing."""
        if self._first.socket.fileno() < 0:
            return
        if self._failure is None:
            self._first.put(Message(Kind.BYE, self._rank))
            try:
                self._wait(lambda: not self._first.unsent, ANSWER_S, lonely=True)
            except ParameterServerError as failure:
                self._failure = failure  # it went first; there is nobody to take leave of
        self._hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, address: tuple[str, int], number: int, deadline: float) -> socket.socket:
        """The server may start later than its workers: a refused connection is tried again until the
        deadline.
        """
        ports = source_ports(address, self._rank, number)
        source = ("", next(ports, 0))
        while True:
            try:
                return socket.create_connection(
                    address, timeout=max(deadline - time.monotonic(), CONNECT_RETRY_S), source_address=source
                )
            except OSError as problem:
                if problem.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL) and source[1]:
                    source = ("", next(ports, 0))
                    continue
                if time.monotonic() >= deadline:
                    raise ParameterServerError(f"{self._where}: connect: {problem}") from problem
                time.sleep(CONNECT_RETRY_S)

    def _connect_also(self, address: tuple[str, int], number: int) -> None:
        channel = Channel(self._connect(address, number, time.monotonic() + self._timeout_s))
        link = _Link(channel, self._ahead_bytes)
        self._links.append(link)
        self._selector.register(link.channel.socket, selectors.EVENT_READ, link)
        link.channel.put(Message(Kind.ALSO, self._rank))
        if not self._wait(lambda: link.is_taken, self._timeout_s, lonely=True):
            raise ParameterServerError(f"{self._where}: no answer for {self._timeout_s:g} s")

    def _join(self, everybody: set[int], hello: bytes) -> None:
        self._first.put(Message(Kind.HELLO, self._rank, hello))
        if not self._wait(lambda: self._joined >= everybody, self._timeout_s):
            absent = everybody - self._joined
            if absent == everybody:
                raise ParameterServerError(f"{self._where}: no answer for {self._timeout_s:g} s")
            raise MissingWorkersError(
                f"{self._where}: after {self._timeout_s:g} s {named(absent)} never came", frozenset(absent)
            )

    def _wait(self, done: Callable[[], bool], timeout_s: float, lonely: bool = False) -> bool:
        """Sends and receives until `done()`; False after `timeout_s`. Absent workers are an error, unless
        `lonely`.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                for link in self._links:
                    link.channel.flush()
                if (
                    done()
                ):  # first: one who has its last sums may have left already, and that is in good order
                    return True
                self._fail_if_alone(lonely)
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                for link in self._links:
                    writing = selectors.EVENT_WRITE if link.channel.unsent else 0
                    self._selector.modify(link.channel.socket, selectors.EVENT_READ | writing, link)
                for key, _ in self._selector.select(remaining):
                    if key.fileobj is self._woken:
                        self._woken.recv(4096)
                        self._start_coming()
                    else:
                        for message in key.data.channel.receive():
                            self._take(key.data, message)
        except (EOFError, OSError, ProtocolError) as problem:
            self._failure = ParameterServerError(
                f"{self._where}: {str(problem) or 'it has closed the connection'} ({self._doing()})"
            )
            raise self._failure from problem

    def _fail_if_alone(self, lonely: bool) -> None:
        if self._failure is None and self._gone and not lonely:
            self._failure = MissingWorkersError(
                f"{self._where}: {named(self._gone)} left ({self._doing()})", frozenset(self._gone)
            )
        if self._failure is not None:
            raise self._failure

    def _take(self, link: _Link, message: Message) -> None:
        if message.kind is Kind.CHUNK:
            size = len(message.payload) // GRADIENT_BYTES
            if message.offset not in self._pending.get(message.sequence, ()):
                raise ProtocolError(
                    f"a sum that nobody waits for: {message.offset} of all-reduce {message.sequence}"
                )
            array = self._arrays[message.sequence]
            array[message.offset : message.offset + size] = np.frombuffer(message.payload, dtype="<f4")
            self._pending[message.sequence].remove(message.offset)
            self._received += 1
            link.awaited -= 1
            link.awaited_bytes -= len(message.payload)
            self._push()
        elif message.kind is Kind.JOINED:
            self._joined = unpack_ranks(message.payload)
            link.is_taken = True
        elif message.kind is Kind.GONE:
            # the first to leave is the cause; those who give up on its account leave after it
            link.gone = unpack_ranks(message.payload)
            # by each connection, or last sums could still be on their way by another
            self._gone = self._gone or set.intersection(*(each.gone for each in self._links))
        elif message.kind is Kind.LATE:
            self._late = unpack_ranks(message.payload)
        elif message.kind is Kind.REFUSED:
            self._failure = ParameterServerError(
                f"{self._where}: {bytes(message.payload).decode('utf-8', 'replace')}"
            )
        else:
            raise ProtocolError(f"{message.kind.name} is not for a server to say")

    def _raise_late(self) -> None:
        """Asks the server whose contribution it lacks. Always raises."""
        self._late = None
        numel, first = len(self._arrays[self._sequence]), min(self._pending[self._sequence])
        self._first.put(Message(Kind.WHO, self._rank, b"", self._sequence, numel, first))
        answered = self._wait(lambda: self._late is not None, ANSWER_S)
        others: set[int] = (self._late or set()) - {self._rank}
        if answered and others:
            self._failure = MissingWorkersError(
                f"{self._where}: no gradients from {named(others)} for {self._timeout_s:g} s "
                f"({self._doing()})",
                frozenset(others),
            )
        else:
            self._failure = ParameterServerError(
                f"{self._where}: no sum for {self._timeout_s:g} s ({self._doing()}), and it does not say who "
                f"is missing"
            )
        raise self._failure

    def _doing(self) -> str:
        return f"all-reduce {self._sequence}" if self._sequence else "at the start"

    def _hang_up(self) -> None:
        self._selector.close()
        for end in (*(link.channel.socket for link in self._links), self._waker, self._woken):
            end.close()


def source_ports(address: tuple[str, int], rank: int, number: int) -> Iterator[int]:
    """Ports for a worker's connection of this number, best first, by which the two of each worker take
    different circuits where there are several, and those of any workers with consecutive ranks fall evenly
    on them (testbed.wire.spreading): a hash of ports that nobody chose would put two of four on each of
    two circuits in three of eight cases. First connections alone, which carry vectors of one chunk, fall
    evenly on two. None where the own address is not known.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)  # sends nothing
        except OSError as problem:
            if isinstance(problem, socket.gaierror) or problem.errno in _NO_WAY:
                return
            raise
        own = probe.getsockname()[0]
    place = (rank * CONNECTIONS + (number + rank) % CONNECTIONS) % spreading.BUCKETS
    wanted = int(f"{place:0{spreading.BUCKET_BITS}b}"[::-1], 2)
    ends = int(IPv4Address(own)) + int(IPv4Address(socket.gethostbyname(address[0]))) + address[1]
    yield from (port for port in SOURCE_PORTS if spreading.bucket(ends + port) == wanted)


def named(ranks: set[int]) -> str:
    """`worker 1` or `workers 1, 3`."""
    return f"worker{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"
