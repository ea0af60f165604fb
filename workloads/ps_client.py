"""A worker's side of the parameter-server baseline. Imports NumPy, `workloads.ps_protocol` and, from the
testbed, the rules by which connections are spread and vectors are cut into chunks.
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

# Connections of a worker. The ports of a connection select its circuit, so that several circuits are used.
CONNECTIONS = 2
# Chunks that one connection has pushed and has no sums of yet. A worker that pushed more would take the
# server's link from a slower worker. More chunks are allowed while they are small (AHEAD_BYTES): otherwise
# the bytes under way would not fill a round trip.
AHEAD = 4
# Bytes under way, of all workers on all their connections. They fit in a queue of 256 full segments, a link's
# default: TCP stalls when it loses one.
AHEAD_BYTES = 256 * 1024
CONNECT_RETRY_S = 0.05
# above the ports of all jobs' servers, so that a flow's lower port is the server's
# (testbed/telemetry/traffic.py), and below the kernel's ephemeral ports
SOURCE_PORTS = range(31_500, 32_768)
_NO_WAY = errno.ENETUNREACH, errno.EHOSTUNREACH
ANSWER_S = 2.0  # for the server to answer which workers are late, or to receive BYE


class ParameterServerError(RuntimeError):
    """The parameter server cannot be reached, has gone, or has refused this worker."""


class MissingWorkersError(ParameterServerError):
    """Workers have left or are too late; `ranks` names them."""

    def __init__(self, message: str, ranks: frozenset[int]) -> None:
        super().__init__(message)
        self.ranks = ranks


@dataclass(slots=True, eq=False)
class _Link:
    """One of a worker's connections. A chunk's sum returns on the connection that pushed the chunk."""

    channel: Channel
    ahead_bytes: int  # this connection's share of AHEAD_BYTES
    awaited: int = 0  # chunks pushed, sums not received yet
    awaited_bytes: int = 0
    is_taken: bool = False  # the server has assigned the connection to this worker
    gone: set[int] = field(default_factory=set)  # ranks that the server has reported here as gone

    @property
    def has_room(self) -> bool:
        return self.awaited < AHEAD or self.awaited_bytes < self.ahead_bytes


class PsClient:
    """One worker's connections to the parameter server.

    Vectors come in the same order on all workers. A vector that is submitted during the wait for another is
    sent behind it. A chunk goes by the connection with the fewest bytes under way. A connection pushes at
    most `AHEAD` chunks, or its share of `AHEAD_BYTES` if that is more, before their sums arrive. One thread
    at a time calls `submit`, and one the other methods.

    After an error the connections are useless: every later call raises the same error.
    """

    def __init__(
        self, address: tuple[str, int], rank: int, workers: int, timeout_s: float, job: str = ""
    ) -> None:
        """Connect, wait until all workers have connected, and open the further connections.

        `timeout_s` bounds this wait and, later, every time span in which no sum arrives. Raises
        MissingWorkersError, naming the workers, or ParameterServerError.
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
        self._coming: deque[Floats] = deque()  # submitted, not started yet
        self._arrays: dict[int, Floats] = {}
        self._pending: dict[int, set[int]] = {}  # offsets of chunks without sums yet
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
        """Submit a vector and wait for its sum."""
        self.submit(array)
        self.finish()

    def set_timeout(self, timeout_s: float) -> None:
        """Set the longest time span without a sum from now on, in seconds."""
        self._timeout_s = timeout_s

    def submit(self, array: Floats) -> None:
        """Queue a contiguous 1-D binary32 array, to be replaced by its sum over all workers, added in the
        order of rank. Raises ValueError for any other array.
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
            pass  # the socket is full of wake-ups already
        except OSError:
            if self._failure is None and self._waker.fileno() >= 0:
                raise  # else the client is closed, and `finish` raises why

    def finish(self) -> None:
        """Wait for the oldest array that is submitted and not finished.

        Raises MissingWorkersError or ParameterServerError; some parts of the array then hold sums.
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
                # its sum may overwrite a chunk at once: the server makes it only after it has the whole chunk
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
        """Say goodbye to the server and close all connections; a second call does nothing."""
        if self._first.socket.fileno() < 0:
            return
        if self._failure is None:
            self._first.put(Message(Kind.BYE, self._rank))
            try:
                self._wait(lambda: not self._first.unsent, ANSWER_S, lonely=True)
            except ParameterServerError as failure:
                self._failure = failure  # the server has gone already
        self._hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, address: tuple[str, int], number: int, deadline: float) -> socket.socket:
        """Connect from a chosen source port. A refused connection is tried again until the deadline, since
        the server may start later than its workers. Raises ParameterServerError.
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
        """Send and receive until `done()`; return False after `timeout_s`. Workers that have left are an
        error, unless `lonely`.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                for link in self._links:
                    link.channel.flush()
                # before the check for absent workers: a worker that has its last sums may rightly leave
                if done():
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
                            self._handle(key.data, message)
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

    def _handle(self, link: _Link, message: Message) -> None:
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
            # the first worker to leave is the cause; others give up because of it and leave later
            link.gone = unpack_ranks(message.payload)
            # reported on every connection: until then, last sums may be on their way on another one
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
        """Ask the server which contributions the oldest chunk lacks, and raise an error that names these
        workers.
        """
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
    """Yield source ports for a worker's connection of this number.

    By these ports (testbed.wire.spreading) the two connections of each worker take different circuits where
    there are several, and those of any workers with consecutive ranks are spread evenly. A hash of arbitrary
    ports would put two of four connections on each of two circuits in three of eight cases. First connections
    alone, which carry vectors of one chunk, are spread evenly on two circuits. Yields nothing where the own
    address is not known.
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
    """Return `worker 1` or `workers 1, 3`."""
    return f"worker{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"
