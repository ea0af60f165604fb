"""The parameter-server baseline: `python -m workloads.parameter_server --bind IP --port P --workers W --job
ID`.

Owns the server's side; imports NumPy, `workloads.ps_protocol` and, from the testbed, a chunk's size only.

A vector travels in chunks. As soon as all workers have pushed a chunk, the server sums it and sends the sum
to all of them, so that push and pull overlap as in BytePS. Contributions are added in the order of rank,
never of arrival: the same inputs give the same sums to the last bit. One thread serves all connections, with
a queue of unsent messages for each, so that a slow worker delays no other's push. A worker may have several
connections; a sum goes back on the connection that its contribution came on.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import signal
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from testbed.wire.vector_chunks import CHUNK_BYTES
from workloads.ps_protocol import (
    GRADIENT_BYTES,
    Channel,
    Floats,
    Kind,
    Message,
    ProtocolError,
    is_gone,
    pack_ranks,
)

MAX_RANKS = 1024
MAX_CONNECTIONS = 8  # of a worker


@dataclass(slots=True)
class _Chunk:
    """A chunk that some workers have not pushed yet: the contributions so far, by rank."""

    numel: int
    first_rank: int
    parts: dict[int, Floats] = field(default_factory=dict)
    channels: list[Channel] = field(default_factory=list)  # on which the contributions came


class Server:
    """Sums for one group of workers at a time; when the last worker of a group has left, the next group may
    connect.
    """

    def __init__(self, listener: socket.socket, workers: int, job: str) -> None:
        self._listener = listener
        self._workers = workers
        self._job = job
        self._selector = selectors.DefaultSelector()
        self._ranks: dict[Channel, int | None] = {}  # None until its HELLO
        self._further: set[Channel] = set()  # a rank's connections after its first
        self._gone: set[int] = set()
        self._refused: set[Channel] = set()
        self._chunks: dict[tuple[int, int], _Chunk] = {}
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> NoReturn:
        """Serve until the process ends."""
        while True:
            self.step(None)

    def step(self, timeout_s: float | None) -> None:
        """Handle the sockets that are ready; wait for that no longer than `timeout_s`."""
        for key, events in self._selector.select(timeout_s):
            if key.fileobj is self._listener:
                self._accept()
                continue
            channel: Channel = key.data
            if channel not in self._ranks and channel not in self._refused:
                continue  # an earlier event of this step dropped its worker
            try:
                if events & selectors.EVENT_READ and channel in self._refused:
                    channel.discard()
                elif events & selectors.EVENT_READ:
                    for message in channel.receive():
                        self._handle(channel, message)
                if events & selectors.EVENT_WRITE and (channel in self._ranks or channel in self._refused):
                    channel.flush()
            except EOFError:
                self._drop(channel)
            except OSError as problem:
                if not is_gone(problem):
                    raise
                self._drop(channel)
            except ProtocolError as problem:
                self._refuse(channel, str(problem))
        for channel in [*self._ranks, *self._refused]:
            self._watch(channel)

    def close(self) -> None:
        for channel in [*self._ranks, *self._refused]:
            channel.socket.close()
        self._listener.close()
        self._selector.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        channel = Channel(connection)
        self._ranks[channel] = None
        self._selector.register(connection, selectors.EVENT_READ, channel)

    def _watch(self, channel: Channel) -> None:
        """Ask for writability only while messages wait to be sent."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.unsent else 0)
        if self._selector.get_key(channel.socket).events != wanted:
            self._selector.modify(channel.socket, wanted, channel)

    def _handle(self, channel: Channel, message: Message) -> None:
        if channel not in self._ranks:
            return
        rank = self._ranks[channel]
        if message.kind is Kind.HELLO and rank is None:
            self._welcome(channel, message)
        elif message.kind is Kind.ALSO and rank is None:
            self._connect_also(channel, message.rank)
        elif rank is None:
            raise ProtocolError(f"{message.kind.name} before HELLO")
        elif message.kind is Kind.CHUNK:
            self._add(channel, rank, message)
        elif message.kind is Kind.WHO:
            chunk = self._chunks.get((message.sequence, message.offset))
            late = set(range(self._workers)) - set(chunk.parts) if chunk else set()
            self._say(channel, Message(Kind.LATE, payload=pack_ranks(late), sequence=message.sequence))
        elif message.kind is Kind.BYE:
            self._drop(channel)
        else:
            raise ProtocolError(f"{message.kind.name} is not for a worker to say")

    def _welcome(self, channel: Channel, message: Message) -> None:
        if len(message.payload) < 2:
            raise ProtocolError("HELLO without a number of workers")
        (workers,) = struct.unpack("!H", message.payload[:2])
        job = bytes(message.payload[2:]).decode("utf-8", "replace")
        joined = {rank for rank in self._ranks.values() if rank is not None}
        if workers != self._workers:
            raise ProtocolError(
                f"worker {message.rank} says {workers} workers, this server sums {self._workers}"
            )
        if job and job != self._job:
            raise ProtocolError(f"worker {message.rank} is of job {job}, this server is job {self._job}'s")
        if message.rank >= workers:
            raise ProtocolError(f"rank {message.rank} of {workers} workers")
        if message.rank in joined | self._gone:
            raise ProtocolError(f"worker {message.rank} has been here before")
        self._ranks[channel] = message.rank
        payload = pack_ranks(joined | {message.rank})
        for other in self._members():
            self._say(other, Message(Kind.JOINED, payload=payload))
        if self._gone:
            self._say(channel, Message(Kind.GONE, payload=pack_ranks(self._gone)))

    def _connect_also(self, channel: Channel, rank: int) -> None:
        connections = self._connections(rank)
        if not connections:
            raise ProtocolError(f"one more connection of worker {rank}, which has not said hello")
        if len(connections) >= MAX_CONNECTIONS:
            raise ProtocolError(f"worker {rank} has {MAX_CONNECTIONS} connections already")
        self._ranks[channel] = rank
        self._further.add(channel)
        joined = {owner for owner in self._ranks.values() if owner is not None}
        self._say(channel, Message(Kind.JOINED, payload=pack_ranks(joined)))
        if self._gone:
            self._say(channel, Message(Kind.GONE, payload=pack_ranks(self._gone)))

    def _add(self, channel: Channel, rank: int, message: Message) -> None:
        length, rest = divmod(len(message.payload), GRADIENT_BYTES)
        if rest or message.offset + length > message.numel:
            raise ProtocolError(
                f"{len(message.payload)} bytes at {message.offset} of {message.numel} gradients"
            )
        part = np.frombuffer(message.payload, dtype="<f4")
        place = (message.sequence, message.offset)
        chunk = self._chunks.setdefault(place, _Chunk(message.numel, rank))
        if chunk.numel != message.numel or any(len(other) != len(part) for other in chunk.parts.values()):
            raise ProtocolError(
                f"all-reduce {message.sequence}: worker {rank} pushes {message.numel} gradients, "
                f"worker {chunk.first_rank} {chunk.numel}"
            )
        if rank in chunk.parts:
            raise ProtocolError(
                f"worker {rank} pushes twice at {message.offset} of all-reduce {message.sequence}"
            )
        chunk.parts[rank] = part
        chunk.channels.append(channel)
        if len(chunk.parts) == self._workers:
            del self._chunks[place]
            self._answer(message, chunk)
        elif self._gone:
            self._say_gone(rank)

    def _answer(self, message: Message, chunk: _Chunk) -> None:
        total = chunk.parts[0].copy()
        for rank in range(1, self._workers):
            total += chunk.parts[rank]
        result = Message(
            Kind.CHUNK,
            payload=total.data.cast("B"),
            sequence=message.sequence,
            numel=message.numel,
            offset=message.offset,
        )
        for channel in chunk.channels:
            if channel in self._ranks:  # else the worker has left
                self._say(channel, result)

    def _say(self, channel: Channel, message: Message) -> None:
        channel.put(message)
        with contextlib.suppress(OSError):  # the socket's next event finds it broken, and drops it
            channel.flush()

    def _refuse(self, channel: Channel, why: str) -> None:
        """Refuse a worker: send the reason, then read and discard what it still sends until it hangs up.

        Closing a socket with unread data sends a reset, which can overtake the reason.
        """
        rank = self._ranks[channel]
        for each in self._connections(rank) or [channel]:
            self._forget(each)
            self._refused.add(each)
        self._say(channel, Message(Kind.REFUSED, payload=why.encode()[:CHUNK_BYTES]))
        self._left(rank)

    def _drop(self, channel: Channel) -> None:
        """Close all connections of a channel's worker: a worker that lost one of them has left."""
        rank = self._ranks.get(channel)
        for each in self._connections(rank) or [channel]:
            self._selector.unregister(each.socket)
            each.socket.close()
            self._forget(each)
        self._left(rank)

    def _forget(self, channel: Channel) -> None:
        self._ranks.pop(channel, None)
        self._further.discard(channel)
        self._refused.discard(channel)

    def _left(self, rank: int | None) -> None:
        """Tell the other workers that this one has left. If it was the last one, clear the state for the next
        group.
        """
        if rank is None:
            return
        self._gone.add(rank)
        members = self._members()
        if not members:
            self._gone.clear()
            self._chunks.clear()
        for other in members:
            self._say_gone(self._ranks[other])

    def _say_gone(self, rank: int | None) -> None:
        """Send a worker the ranks that have left, on each of its connections, so that earlier sums arrive
        before.
        """
        for channel in self._connections(rank):
            self._say(channel, Message(Kind.GONE, payload=pack_ranks(self._gone)))

    def _connections(self, rank: int | None) -> list[Channel]:
        """Return a worker's connections, its first one first."""
        if rank is None:
            return []
        return [channel for channel, owner in self._ranks.items() if owner == rank]

    def _members(self) -> list[Channel]:
        """Return the first connection of each worker."""
        return [
            channel
            for channel, rank in self._ranks.items()
            if rank is not None and channel not in self._further
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Sums gradients for the workers of one job.")
    parser.add_argument("--bind", required=True, metavar="IP")
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--workers", required=True, type=int)
    parser.add_argument("--job", required=True, metavar="ID")
    args = parser.parse_args()
    if not 1 <= args.workers <= MAX_RANKS:
        parser.error(f"--workers is 1 to {MAX_RANKS}, not {args.workers}")
    try:
        listener = socket.create_server((args.bind, args.port), backlog=args.workers * MAX_CONNECTIONS)
    except (OSError, OverflowError) as problem:
        sys.exit(f"parameter server: listen on {args.bind} port {args.port}: {problem}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(
        f"parameter server of job {args.job}: ready on {args.bind} port {listener.getsockname()[1]}",
        flush=True,
    )
    try:
        Server(listener, args.workers, args.job).serve()
    except OSError as problem:
        sys.exit(f"parameter server: serve {args.bind} port {args.port}: {problem}")


if __name__ == "__main__":
    main()
