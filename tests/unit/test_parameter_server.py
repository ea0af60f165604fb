"""The parameter server on loopback: exact sums in the order of rank, and who is missing said by name."""

from __future__ import annotations

import errno
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.jobs.environment import PS_PORT_BASE
from testbed.telemetry.traffic import EPHEMERAL
from testbed.wire import spreading
from testbed.wire.vector_chunks import LEAST, MOST, PARTS, chunk_of
from workloads import ps_client
from workloads.parameter_server import MAX_CONNECTIONS, Server
from workloads.ps_client import (
    AHEAD,
    AHEAD_BYTES,
    CONNECTIONS,
    MissingWorkersError,
    ParameterServerError,
    PsClient,
    named,
)
from workloads.ps_protocol import HEADER, Channel, Floats, Kind, Message, ProtocolError, pack_ranks

Address = tuple[str, int]
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0


class Running:
    """A server in a thread of its own."""

    def __init__(self, workers: int, job: str = "7") -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = listener.getsockname()
        self._server = Server(listener, workers, job)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="server")
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._server.step(0.02)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._server.close()


@pytest.fixture
def start() -> Iterator[Callable[[int], Address]]:
    servers: list[Running] = []

    def started(workers: int) -> Address:
        servers.append(Running(workers))
        return servers[-1].address

    yield started
    for server in servers:
        server.close()


def together(workers: int, work: Callable[[int], object]) -> list[Future[object]]:
    """`work(rank)` for all ranks at the same time; all have ended when this returns."""
    with ThreadPoolExecutor(workers) as pool:
        return [pool.submit(work, rank) for rank in range(workers)]


def in_rank_order(vectors: list[Floats]) -> Floats:
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total += vector
    return total


def test_sums_are_those_of_the_order_of_rank(start: Callable[[int], Address]) -> None:
    workers, rounds = 3, 5
    address = start(workers)
    lengths = [1, 7, MOST, MOST + 1, 3 * MOST + 61]
    random = np.random.default_rng(5)
    # magnitudes far apart: another order of addition would give other sums
    pushed = [
        [(random.standard_normal(n) * 10.0 ** (3 * r)).astype("f4") for r in range(workers)] for n in lengths
    ]

    def work(rank: int) -> list[Floats]:
        arrays = [pushed[i][rank].copy() for i in range(rounds)]
        with PsClient(address, rank, workers, DEADLINE_S, job="7") as client:
            for array in arrays:
                client.allreduce_(array)
        return arrays

    results = [future.result() for future in together(workers, work)]
    for result in results:
        assert isinstance(result, list)
        for i in range(rounds):
            np.testing.assert_array_equal(result[i], in_rank_order(pushed[i]))


@pytest.mark.hypothesis
@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32), workers=st.integers(2, 4), late_ms=st.lists(st.integers(0, 20), min_size=4)
)
def test_a_sum_of_any_magnitudes_is_of_all_however_late_they_are(
    seed: int, workers: int, late_ms: list[int]
) -> None:
    """Blocks of magnitudes that are log-uniform, zeros, and now and then an infinity: the sum is that of the
    order of rank to the bit, and the workers' exact sum but for a rounding of each addition.
    """
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 3 * MOST))
    exponents = random.uniform(-60, 60, (workers, -(-size // 64))).repeat(64, 1)[:, :size]
    is_there = random.random(exponents.shape) < 0.8
    pushed = (random.uniform(-1, 1, exponents.shape) * 2.0**exponents * is_there).astype("f4")
    if random.random() < 0.3:
        pushed[random.integers(workers), random.integers(size)] = np.inf
    running = Running(workers)

    def work(rank: int) -> Floats:
        time.sleep(late_ms[rank] / 1e3)
        array: Floats = pushed[rank].copy()
        with PsClient(running.address, rank, workers, DEADLINE_S, job="7") as client:
            client.allreduce_(array)
        return array

    try:
        results = [future.result() for future in together(workers, work)]
    finally:
        running.close()
    is_finite = np.isfinite(pushed).all(0)
    whole = pushed[:, is_finite].astype(np.float64)
    bound = (workers - 1) * 2.0**-24 * np.abs(whole).sum(0) + 2.0**-149
    for result in results:
        assert isinstance(result, np.ndarray)
        np.testing.assert_array_equal(result, in_rank_order(list(pushed)))
        assert (np.abs(result[is_finite] - whole.sum(0)) <= bound).all()


def test_a_vector_is_sent_while_the_one_before_is_waited_for() -> None:
    first, second = np.full(5, 1, np.float32), np.full(7, 2, np.float32)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(PsClient, listener.getsockname(), 0, 1, DEADLINE_S)
        servers = welcomed(listener)
        with connecting.result() as client:
            client.submit(first)
            finishing = pool.submit(client.finish)
            said = [heard(servers)]
            client.submit(second)  # the other thread waits for the first one's sum, of which nothing has come
            said.append(heard(servers))
            assert [message.sequence for _, message in said] == [1, 2]
            assert {channel for channel, _ in said} == set(servers)  # by the one with nothing under way
            for channel, message in said:
                doubled = (np.frombuffer(message.payload, "<f4") * 2).data.cast("B")
                channel.put(Message(Kind.CHUNK, 0, doubled, message.sequence, message.numel, message.offset))
                channel.flush()
            finishing.result()
            client.finish()
        for server in servers:
            server.socket.close()
    assert first.tolist() == [2.0] * 5
    assert second.tolist() == [4.0] * 7


@pytest.mark.parametrize("size", [3, PARTS * LEAST, PARTS * MOST])
def test_a_worker_is_no_more_than_so_much_ahead_of_its_sums(size: int) -> None:
    vectors = [np.ones(size, np.float32), np.ones(size, np.float32)]
    chunks = 2 * len(range(0, size, chunk_of(size)))
    chunk_bytes = 4 * min(size, chunk_of(size))
    ahead = CONNECTIONS * max(AHEAD, -(-AHEAD_BYTES // CONNECTIONS // chunk_bytes))
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(PsClient, listener.getsockname(), 0, 1, DEADLINE_S)
        servers = welcomed(listener)
        with connecting.result() as client:
            for vector in vectors:
                client.submit(vector)
            summing = pool.submit(lambda: [client.finish() for _ in vectors])
            pushed: list[tuple[Channel, Message]] = []
            for answered in range(chunks):
                due = min(chunks, answered + ahead)
                while ready := arrived(servers, 0.01 if len(pushed) >= due else DEADLINE_S):
                    pushed += [(channel, message) for channel in ready for message in channel.receive()]
                assert len(pushed) <= answered + ahead
                channel, chunk = pushed[answered]
                channel.put(Message(Kind.CHUNK, 0, chunk.payload, chunk.sequence, chunk.numel, chunk.offset))
                while channel.unsent:
                    channel.flush()
            summing.result()
        for server in servers:
            server.socket.close()
    assert {len([1 for channel, _ in pushed if channel is server]) for server in servers} == {chunks // 2}


def test_sums_that_one_connection_holds_up_come_before_the_news_that_their_worker_left() -> None:
    array = np.ones(2 * LEAST, np.float32)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(PsClient, listener.getsockname(), 0, 1, DEADLINE_S)
        servers = welcomed(listener)
        with connecting.result() as client:
            client.submit(array)
            summing = pool.submit(client.finish)
            said = [heard(servers), heard(servers)]
            (first, mine), (other, late) = sorted(said, key=lambda each: servers.index(each[0]))
            for channel, message in ((first, mine), (first, None), (other, late), (other, None)):
                if message is None:
                    channel.put(Message(Kind.GONE, payload=pack_ranks({1})))
                else:
                    channel.put(
                        Message(
                            Kind.CHUNK, 0, message.payload, message.sequence, message.numel, message.offset
                        )
                    )
                channel.flush()
                if channel is first and message is None:
                    with pytest.raises(TimeoutError):
                        summing.result(0.1)
            summing.result(DEADLINE_S)
        for server in servers:
            server.socket.close()


def test_a_worker_that_loses_one_connection_has_left(start: Callable[[int], Address]) -> None:
    address = start(2)

    is_known = threading.Event()

    def work(rank: int) -> None:
        with PsClient(address, rank, 2, DEADLINE_S) as client:
            client.allreduce_(np.ones(3, np.float32))
            if rank == 1:
                client._links[1].channel.socket.shutdown(socket.SHUT_RDWR)
                assert is_known.wait(DEADLINE_S)
            else:
                with pytest.raises(MissingWorkersError) as raised:
                    client.allreduce_(np.ones(3, np.float32))
                assert raised.value.ranks == {1}
                is_known.set()

    for future in together(2, work):
        future.result()


def test_one_more_connection_is_of_a_worker_that_has_said_hello(start: Callable[[int], Address]) -> None:
    stranger = Channel(socket.create_connection(start(1)))
    stranger.put(Message(Kind.ALSO, 0))
    stranger.flush()
    refused = next(messages(stranger))
    assert refused.kind is Kind.REFUSED
    assert b"one more connection of worker 0" in bytes(refused.payload)
    stranger.socket.close()


def test_a_worker_has_so_many_connections_and_no_more(start: Callable[[int], Address]) -> None:
    address = start(1)
    channels = []
    for number in range(MAX_CONNECTIONS + 1):
        channels.append(Channel(socket.create_connection(address)))
        kind = Kind.ALSO if number else Kind.HELLO
        channels[-1].put(Message(kind, 0, b"" if number else struct.pack("!H", 1)))
        channels[-1].flush()
        if not number:
            assert next(messages(channels[0])).kind is Kind.JOINED
    refused = next(messages(channels[-1]))
    assert bytes(refused.payload) == b"worker 0 has 8 connections already"
    for channel in channels:
        channel.socket.close()


def test_the_lower_port_of_a_connection_is_the_servers_and_each_circuit_has_ports() -> None:
    highest = PS_PORT_BASE + 999  # a job's number is added, modulo 1000
    assert highest < min(ps_client.SOURCE_PORTS)
    assert max(ps_client.SOURCE_PORTS) < EPHEMERAL
    for rank in range(64):
        for number in range(CONNECTIONS):
            ports = list(ps_client.source_ports(("127.0.0.1", highest), rank, number))
            assert len(ports) >= 10  # some are of connections that have just ended


def test_a_server_that_starts_late_takes_no_ports_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = []

    def refused(address: Address, timeout: float, source_address: tuple[str, int]) -> socket.socket:
        sources.append(source_address[1])
        raise OSError(errno.EADDRINUSE if len(sources) == 3 else errno.ECONNREFUSED, "no")

    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(ps_client, "CONNECT_RETRY_S", 0.001)
    with pytest.raises(ParameterServerError, match="connect"):
        PsClient(("127.0.0.1", 31_499), 0, 1, 0.2)
    first, second, *_ = ps_client.source_ports(("127.0.0.1", 31_499), 0, 0)
    assert len(sources) > 30
    assert sources == [first] * 3 + [second] * (len(sources) - 3)


@pytest.mark.parametrize("circuits", [2, 3, 4])
def test_connections_fall_on_different_circuits(circuits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ps_client, "SOURCE_PORTS", ps_client.SOURCE_PORTS[:500])
    ends = 2 * int(IPv4Address("127.0.0.1")) + 4711
    taken = [
        [
            spreading.circuit_of(
                spreading.bucket(ends + next(ps_client.source_ports(("127.0.0.1", 4711), rank, number))),
                circuits,
            )
            for number in range(CONNECTIONS)
        ]
        for rank in range(4)
    ]
    assert all(len(set(own)) == CONNECTIONS for own in taken)
    each = Counter(circuit for own in taken for circuit in own)
    assert max(each.values()) - min(each.values()) <= (circuits == 3)
    if circuits == 2:
        assert Counter(own[0] for own in taken) == {0: 2, 1: 2}


def welcomed(listener: socket.socket) -> list[Channel]:
    """Be the server of a worker that is alone, and return its connections."""
    channels = []
    for kind in (Kind.HELLO, *(Kind.ALSO,) * (CONNECTIONS - 1)):
        channel = Channel(listener.accept()[0])
        assert next(messages(channel)).kind is kind
        channel.put(Message(Kind.JOINED, payload=pack_ranks({0})))
        channel.flush()
        channels.append(channel)
    return channels


def arrived(channels: list[Channel], timeout_s: float) -> list[Channel]:
    sockets = {channel.socket: channel for channel in channels}
    return [sockets[each] for each in select.select(list(sockets), [], [], timeout_s)[0]]


def heard(channels: list[Channel]) -> tuple[Channel, Message]:
    """Return the next chunk by any connection, and the connection."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for channel in arrived(channels, DEADLINE_S):
            chunks = channel.receive()
            assert len(chunks) <= 1
            if chunks:
                return channel, chunks[0]
    raise AssertionError("nothing was said")


def messages(channel: Channel) -> Iterator[Message]:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        select.select([channel.socket], [], [], max(0.0, deadline - time.monotonic()))
        assert time.monotonic() < deadline, "nothing was said"
        yield from channel.receive()


def test_chunks_are_parts_of_a_vector_within_limits() -> None:
    assert [chunk_of(length) for length in (1, 131_072, 131_200, 10**9)] == [1024, 1024, 1025, MOST]


def test_a_second_group_of_workers_is_served(start: Callable[[int], Address]) -> None:
    address = start(2)

    def work(rank: int) -> float:
        array = np.full(3, rank + 1, np.float32)
        with PsClient(address, rank, 2, DEADLINE_S) as client:
            client.allreduce_(array)
        return float(array[0])

    for _ in range(3):
        assert [future.result() for future in together(2, work)] == [3.0, 3.0]


def test_a_worker_that_dies_is_named_to_the_others(start: Callable[[int], Address]) -> None:
    workers, dies = 3, 1
    address = start(workers)
    both_wait = threading.Barrier(workers)

    def work(rank: int) -> float:
        array = np.ones(2 * MOST + 5, np.float32)
        client = PsClient(address, rank, workers, DEADLINE_S)
        client.allreduce_(array)
        both_wait.wait(DEADLINE_S)
        if rank == dies:
            for link in client._links:
                link.channel.socket.close()  # as the kernel does for a killed process: no farewell
            return 0.0
        began = time.monotonic()
        with pytest.raises(MissingWorkersError, match=r"worker 1 left \(all-reduce 2\)") as raised:
            client.allreduce_(array)
        assert raised.value.ranks == {dies}
        with pytest.raises(MissingWorkersError):  # and it stays so
            client.allreduce_(array)
        client.close()
        return time.monotonic() - began

    for future in together(workers, work):
        took = future.result()
        assert isinstance(took, float)
        assert took < DEADLINE_S / 2  # told, not timed out


def test_a_worker_that_is_too_late_is_named(
    start: Callable[[int], Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workloads.ps_client.ANSWER_S", DEADLINE_S)  # for the server to say who
    address = start(2)
    given_up = threading.Event()

    def work(rank: int) -> None:
        with PsClient(address, rank, 2, DEADLINE_S) as client:
            client._timeout_s = 0.2
            if rank == 1:
                assert given_up.wait(DEADLINE_S)
                return
            with pytest.raises(MissingWorkersError, match=r"no gradients from worker 1 for 0.2 s") as raised:
                client.allreduce_(np.zeros(10, np.float32))
            assert raised.value.ranks == {1}
            given_up.set()

    for future in together(2, work):
        future.result()


def test_workers_that_never_come_are_named(start: Callable[[int], Address]) -> None:
    with pytest.raises(MissingWorkersError, match=r"after 2 s workers 0, 2 never came"):
        PsClient(start(3), 1, 3, 2.0)  # in which the server has to tell who came


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(
            ParameterServerError, match=rf"parameter server 127\.0\.0\.1 port {port}: connect: .*refused"
        ):
            PsClient(("127.0.0.1", port), 0, 1, 0.2)


@pytest.mark.parametrize(
    ("rank", "workers", "job", "why"),
    [
        (0, 3, "7", "worker 0 says 3 workers, this server sums 2"),
        (2, 2, "7", "rank 2 of 2 workers"),
        (0, 2, "8", "worker 0 is of job 8, this server is job 7's"),
    ],
)
def test_a_wrong_hello_is_refused(
    start: Callable[[int], Address], rank: int, workers: int, job: str, why: str
) -> None:
    with pytest.raises(ParameterServerError, match=why):
        PsClient(start(2), rank, workers, DEADLINE_S, job)


def test_vectors_of_different_lengths_are_refused(start: Callable[[int], Address]) -> None:
    address = start(2)

    def work(rank: int) -> str:
        client = PsClient(address, rank, 2, DEADLINE_S)
        with pytest.raises(ParameterServerError) as raised:
            client.allreduce_(np.zeros(5 + rank, np.float32))
        client.close()
        return str(raised.value)

    lines = [str(future.result()) for future in together(2, work)]
    # whoever came second is refused with the reason; the other hears that it left
    assert any("pushes 6 gradients" in line or "pushes 5 gradients" in line for line in lines)
    assert any(f"worker {rank} left" in line for rank in range(2) for line in lines)


@pytest.mark.parametrize(
    "array", [np.zeros(4, np.float64), np.zeros((2, 2), np.float32), np.zeros(8, np.float32)[::2]]
)
def test_only_contiguous_float32_vectors_are_taken(start: Callable[[int], Address], array: Floats) -> None:
    with (
        PsClient(start(1), 0, 1, DEADLINE_S) as client,
        pytest.raises(ValueError, match="1-D array of float32"),
    ):
        client.allreduce_(array)


@settings(max_examples=30, deadline=None)
@given(nonsense=st.binary(min_size=HEADER.size, max_size=3 * HEADER.size))
@example(nonsense=Message(Kind.HELLO, 0, b"x").header() + b"x")
@example(nonsense=Message(Kind.HELLO, 0).header())
@example(nonsense=Message(Kind.CHUNK, 0).header())
def test_nonsense_does_not_bring_the_server_down(nonsense: bytes) -> None:
    running = Running(1)
    try:
        with socket.create_connection(running.address) as stranger:
            stranger.sendall(nonsense)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(DEADLINE_S)
            while stranger.recv(4096):
                pass
        array = np.ones(3, np.float32)
        with PsClient(running.address, 0, 1, DEADLINE_S) as client:
            client.allreduce_(array)
    finally:
        running.close()


def test_a_channel_puts_together_what_arrives_in_pieces() -> None:
    message = Message(Kind.CHUNK, 3, b"payload!", sequence=2, numel=9, offset=1)
    stream = message.header() + b"payload!"

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sender,
    ):
        accepted, _ = listener.accept()
        channel = Channel(accepted)
        got: list[Message] = []
        for byte in stream:
            sender.sendall(bytes([byte]))
        deadline = time.monotonic() + DEADLINE_S
        while not got and time.monotonic() < deadline:
            got += channel.receive()
        assert [(m.kind, m.rank, bytes(m.payload), m.sequence, m.numel, m.offset) for m in got] == [
            (Kind.CHUNK, 3, b"payload!", 2, 9, 1)
        ]
        sender.sendall(struct.pack("!BB", 99, 1) + bytes(HEADER.size - 2))
        assert select.select([accepted], [], [], DEADLINE_S)[0]
        with pytest.raises(ProtocolError, match="kind 99"):
            channel.receive()
        accepted.close()


def test_named() -> None:
    assert named({1}) == "worker 1"
    assert named({10, 2}) == "workers 2, 10"


def test_the_command_serves_and_ends_on_sigterm() -> None:
    command = [sys.executable, "-m", "workloads.parameter_server", "--bind", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(
        [*command, "--workers", "1", "--job", "9"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        ready = server.stdout.readline()
        assert ready.startswith("parameter server of job 9: ready on 127.0.0.1 port ")
        array = np.arange(5, dtype=np.float32)
        with PsClient(("127.0.0.1", int(ready.split()[-1])), 0, 1, DEADLINE_S, "9") as client:
            client.allreduce_(array)
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0
    assert array.tolist() == [0, 1, 2, 3, 4]


def test_an_address_that_cannot_be_bound_is_one_line() -> None:
    command = [sys.executable, "-m", "workloads.parameter_server", "--bind", "192.0.2.1", "--port", "1"]
    ended = subprocess.run(
        [*command, "--workers", "1", "--job", "9"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == 1
    assert "listen on 192.0.2.1 port 1" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
