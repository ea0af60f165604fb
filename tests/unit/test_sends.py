"""Sends that the kernel refuses: what each errno means, and that nothing is lost, repeated or counted twice
for it. The kernel's answers are planted into copies of the compiled endpoint and timers (planted_sends.c).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed import native
from testbed.aggregation.packets import AS_USUAL
from testbed.daemon.process import Daemon
from testbed.dataplanes.xdp.places import XdpSwitch
from testbed.systems.job_options import JobOptions
from testbed.systems.trio.contract import BLOCK
from testbed.systems.trio.parts import TimedBlocks
from testbed.systems.trio.xdp import timers as block_timers
from testbed.systems.trio.xdp.table import BlockTable
from testbed.systems.trio.xdp.timers import MappedTable, Timers
from testbed.topology.addresses import Dpid
from testbed.wire import mapping, spec
from testbed.wire.codec import Header
from testbed.wire.frame import Frame
from tests.forests import p4inc
from tests.limits import CALL_S
from tests.unit import owned_wire
from tests.unit.endpoint_wire import DISAGREE, DONE, JOB, LATE_S, QUIET, REFUSED, End, Rack, rack
from tests.unit.owned_wire import LANES, ends
from tests.unit.test_admission import Tor, World
from tests.unit.test_block_timers import BUCKETS, RECORD, SERIAL, Table, entry
from workloads import endpoint, quantiser
from workloads.endpoint import Endpoint
from workloads.luwu import nic
from workloads.luwu.errors import LuwuError

ROOT = Path(__file__).resolve().parents[2]
FULL, LOST, FAILED = range(3)
MEANINGS = {
    **dict.fromkeys((errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM), FULL),
    **dict.fromkeys((errno.ENETDOWN, errno.ENETUNREACH), LOST),
    **dict.fromkeys((errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNREFUSED), LOST),
}
ERRNOS = sorted(errno.errorcode)
PASSING = sorted(MEANINGS)
FAILING = [code for code in ERRNOS if code not in MEANINGS]
MAX_BURST = 64

# by the first datagram's header, how many there are and whether the kernel is to cut it: how many leave, or
# the errno, negative
Answer = Callable[[bytes, int, bool], int]
_ANSWER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)


class Kernel:
    """A compiled library, and the kernel's answers to its sends: all are taken, if nothing is planted."""

    def __init__(self, path: Path) -> None:
        self.path, self.library = path, ctypes.CDLL(str(path), use_errno=True)
        self._hook = ctypes.c_void_p.in_dll(self.library, "planted_send")
        self._kept: list[object] = []  # what a thread may be in still
        self.bursts = self.singles = 0  # calls

    def plant(self, answer: Answer, head_bytes: int = spec.HEADER_BYTES) -> None:
        @_ANSWER
        def answered(first: int, count: int, is_burst: int) -> int:
            if is_burst:
                self.bursts += 1
            else:
                self.singles += 1
            return answer(ctypes.string_at(first, head_bytes), count, bool(is_burst))

        self.bursts = self.singles = 0
        self._kept.append(answered)
        self._hook.value = ctypes.cast(answered, ctypes.c_void_p).value

    def plant_script(self, *answers: int) -> deque[int]:
        """Answer by this script, call after call; then take all. Return what of it is left."""
        left = deque(answers)
        self.plant(lambda _first, count, _is_burst: left.popleft() if left else count, 0)
        return left

    def reset(self) -> None:
        self._hook.value = None


def compiled(made: Path, sources: Sequence[Path]) -> Kernel:
    digests = " ".join(str(library.digest()) for library in native.LIBRARIES)
    argv = ["cc", "-shared", "-fPIC", "-O1", "-fno-strict-aliasing", f'-D{native.MACRO}="{digests}"']
    argv += [f"-Wl,--wrap={name}" for name in ("sendmsg", "sendmmsg")]
    planted = Path(__file__).with_name("planted_sends.c")
    subprocess.run([*argv, *sources, planted, "-o", made, "-lm"], check=True, timeout=60)
    return Kernel(made)


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    native = sorted((ROOT / "workloads" / "native").glob("*.c"))
    return compiled(tmp_path_factory.mktemp("planted") / "endpoint.so", native)


@pytest.fixture
def kernel(endpoints: Kernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setattr(endpoint, "_LIBRARY", endpoints.path)
    monkeypatch.setattr(nic, "_LIBRARY", endpoints.path)
    endpoints.reset()
    yield endpoints
    endpoints.reset()


# ---------------------------------------------------------------- a socket


class Sends(ctypes.Structure):
    """struct sends."""

    _fields_ = (("fd", ctypes.c_int), ("error", ctypes.c_int), ("single_until_ns", ctypes.c_int64))


class Burst(ctypes.Structure):
    """struct packets."""

    _fields_ = (
        *(("first", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("stride", ctypes.c_size_t)),
        ("count", ctypes.c_uint32),
    )


class Wire:
    """A socket that sends packets of so many bytes, of which each is another, and the one where they come."""

    def __init__(self, kernel: Kernel, size: int = 96, stride: int = 96) -> None:
        self._kernel, self._size, self._stride = kernel, size, stride
        self.ours, self.theirs = owned_wire.udp(), owned_wire.udp()
        self.theirs.setblocking(False)
        self._content = np.random.default_rng(5).integers(0, 256, MAX_BURST * stride, np.uint8)
        ip, port = self.theirs.getsockname()
        family = int(socket.AF_INET).to_bytes(2, sys.byteorder)
        self._to = family + port.to_bytes(2, "big") + socket.inet_aton(ip) + bytes(8)  # struct sockaddr_in
        self.sends = Sends(self.ours.fileno(), 0, 0)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.ours.close()
        self.theirs.close()

    def packet(self, at: int) -> bytes:
        return self._content[at * self._stride :][: self._size].tobytes()

    def send(self, count: int, tos: int = 0) -> int:
        packets = Burst(self._content.ctypes.data, self._size, self._stride, count)
        taken = self._kernel.library.sends_packets(
            ctypes.byref(self.sends), self._to, ctypes.byref(packets), tos
        )
        return int(taken)

    def came(self) -> list[bytes]:
        """Return all packets that came since: over loopback they come while they are sent."""
        packets = []
        with contextlib.suppress(BlockingIOError):
            while True:
                packets.append(self.theirs.recv(1 << 16))
        return packets


def test_every_errno_has_its_meaning(kernel: Kernel) -> None:
    for code in ERRNOS:
        due = MEANINGS.get(code, FAILED)
        assert kernel.library.planted_meaning(code) == due, errno.errorcode[code]


@pytest.mark.parametrize(("size", "stride"), [(96, 96), (32, 96)], ids=["beside each other", "apart"])
def test_a_burst_that_the_kernel_does_not_cut_leaves_singly(kernel: Kernel, size: int, stride: int) -> None:
    """No burst is tried within the second; then one is, and if that leaves all do."""
    second_ns = 10**9
    with Wire(kernel, size, stride) as wire:
        due = [wire.packet(at) for at in range(MAX_BURST)]
        assert len(set(due)) == MAX_BURST
        kernel.plant_script(-errno.EIO)
        before = time.monotonic_ns()
        assert wire.send(MAX_BURST) == MAX_BURST
        assert before + second_ns <= wire.sends.single_until_ns <= time.monotonic_ns() + second_ns
        assert wire.came() == due
        for count in (2, 13, 1):
            assert wire.send(count) == count
            assert wire.came() == due[:count]
        assert (kernel.bursts, kernel.singles) == (1, 4)
        for tries in (2, 3):
            wire.sends.single_until_ns = time.monotonic_ns() - 1
            assert wire.send(MAX_BURST) == MAX_BURST
            assert wire.came() == due
            assert (kernel.bursts, kernel.singles) == (tries, 4)
        assert wire.sends.error == 0


def test_a_burst_is_taken_whole_later_or_lost(kernel: Kernel) -> None:
    with Wire(kernel) as wire:
        for code, meaning in MEANINGS.items():
            kernel.plant_script(-code)
            assert wire.send(7) == (0 if meaning == FULL else 7), errno.errorcode[code]
            assert (kernel.bursts, kernel.singles) == (1, 0)
        assert wire.came() == []
        assert (wire.sends.error, wire.sends.single_until_ns) == (0, 0)


def test_packets_that_leave_singly_are_counted_up_to_a_full_socket(kernel: Kernel) -> None:
    full = [code for code, meaning in MEANINGS.items() if meaning == FULL]
    with Wire(kernel) as wire:
        wire.sends.single_until_ns = time.monotonic_ns() + 10**12
        for code in full:
            left = kernel.plant_script(3, 2, -code)
            assert wire.send(11) == 5, errno.errorcode[code]
            assert wire.came() == [wire.packet(at) for at in range(5)]
            assert not left
            kernel.plant_script(-code)
            assert wire.send(11) == 0
        assert wire.came() == []
        assert wire.sends.error == 0


def test_what_is_lost_among_single_packets_is_gone_and_the_others_leave(kernel: Kernel) -> None:
    lost = [code for code, meaning in MEANINGS.items() if meaning == LOST]
    with Wire(kernel) as wire:
        wire.sends.single_until_ns = time.monotonic_ns() + 10**12
        for code in lost:
            kernel.plant_script(3, -code, 1, -code, -code)
            assert wire.send(11) == 11, errno.errorcode[code]
            assert wire.came() == [wire.packet(at) for at in (0, 1, 2, 4, 7, 8, 9, 10)]
        kernel.plant_script(-lost[0], 2, -errno.EAGAIN)
        assert wire.send(5) == 3
        assert wire.came() == [wire.packet(1), wire.packet(2)]
        assert wire.sends.error == 0


@pytest.mark.parametrize("by", ["burst", "single", "marked"])
def test_any_other_error_is_the_end_and_the_first_one_stays(kernel: Kernel, by: str) -> None:
    with Wire(kernel) as wire:
        due = [] if by == "burst" else [wire.packet(at) for at in range(3)]
        for code in FAILING:
            wire.sends.error, wire.sends.single_until_ns = 0, 0
            if by == "burst":
                answers = [-code] if code != errno.EIO else [-code, -code]  # singly neither
            else:
                wire.sends.single_until_ns = time.monotonic_ns() + 10**12 if by == "single" else 0
                answers = [3, -code]
            left = kernel.plant_script(*answers, -errno.EXDEV)
            assert wire.send(7, tos=int(by == "marked")) == -1, errno.errorcode[code]
            assert wire.sends.error == code
            for count in (1, 7):
                assert wire.send(count) == -1
                assert wire.sends.error == code
            kernel.library.sends_note(ctypes.byref(wire.sends), errno.EXDEV)
            assert wire.sends.error == code
            assert len(left) == 1, "nothing is tried any more"
            assert wire.came() == due


# ---------------------------------------------------------------- a worker's endpoint


def is_sent_later(first: bytes) -> bool:
    """Return whether a packet is sent later, if not now: no repetition, which is lost then."""
    return not Header.unpack(first).flags & spec.Flag.RETRANSMIT


def is_data(first: bytes) -> bool:
    return Header.unpack(first).fragment < mapping.FIRST_VOTE


def vectors(workers: int, count: int) -> list[list[np.ndarray]]:
    """Small ones, several of which are in a burst, and a large one; each has values that become zeros."""
    chance = np.random.default_rng(workers)
    lengths = [int(length) for length in chance.integers(spec.LANES, 3 * spec.LANES, count)] + [6_007]
    magnitudes = 10.0 ** np.arange(-36, 0, 12)
    return [
        [
            (chance.standard_normal(length) * np.resize(magnitudes, length)).astype(np.float32)
            for length in lengths
        ]
        for _ in range(workers)
    ]


def summed(given: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    return [quantiser.summed([each.copy() for each in those])[0] for those in zip(*given, strict=True)]


def require_sums(given: Sequence[Sequence[np.ndarray]], due: Sequence[np.ndarray]) -> None:
    for each in given:
        for got, right in zip(each, due, strict=True):
            assert np.array_equal(got.view(np.uint32), right.view(np.uint32))


def ran(workers: int, count: int, kind: type[Rack] = Rack) -> tuple[list[str], list[tuple[int, ...]]]:
    """Sum vectors, which come out right: what was wrong on the wire, and each worker's counters."""
    given = vectors(workers, count)
    due = summed(given)
    with rack(workers, kind=kind) as network:
        events = network.run(given)
        counters = [network.counters(end) for end in network.ends]
    assert events == [[(DONE, 0)] * (count + 1)] * workers
    require_sums(given, due)
    return network.wrong, [(each.pushed, each.scaled, each.zeroed, each.left_out) for each in counters]


@pytest.mark.parametrize("workers", [2, 3])
def test_a_job_whose_bursts_are_all_refused_sums_as_ever(kernel: Kernel, workers: int) -> None:
    wrong, before = ran(workers, 5)
    assert wrong == []
    kernel.plant(lambda _first, count, is_burst: -errno.EIO if is_burst else count)
    assert ran(workers, 5) == ([], before)
    assert kernel.bursts >= workers


@pytest.mark.parametrize("cuts", [True, False], ids=["bursts", "singly"])
@pytest.mark.parametrize("seed", [1, 2])
def test_sockets_that_are_full_at_random_change_no_sum_and_no_counter(
    kernel: Kernel, seed: int, cuts: bool
) -> None:
    """Repetitions leave: they are as lost."""
    workers, count, chance, refused = 2, 40, random.Random(seed), 0
    _, before = ran(workers, count)

    def answer(first: bytes, count: int, is_burst: bool) -> int:
        nonlocal refused
        if is_burst and not cuts:
            return -errno.EIO
        if not is_sent_later(first):
            return count
        taken = 0 if chance.random() < 0.5 else chance.randint(1, count)
        refused += taken < count
        return taken or -errno.EAGAIN

    kernel.plant(answer)
    wrong, after = ran(workers, count)
    assert wrong[:5] == []
    assert after == before
    assert refused > 10
    assert before[0][2] > 0


class Lossy(Rack):
    """One whose workers count as sent what is lost before it comes to the switch."""

    def wait_for_pushes(self, end: End) -> None:
        pass


def test_repetitions_that_find_a_full_socket_are_sent_again(kernel: Kernel) -> None:
    chance = random.Random(3)
    _, before = ran(2, 20)
    kernel.plant(lambda _first, count, _burst: -errno.ENOBUFS if chance.random() < 0.3 else count)
    wrong, after = ran(2, 20, Lossy)
    flag = re.compile(rf"^worker \d: tree 0, fragment \d+: flags {int(spec.Flag.RETRANSMIT)} the 1. time$")
    assert [line for line in wrong if not flag.match(line)] == []
    assert after == before


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOBUFS])
def test_votes_wait_for_a_socket_that_takes_nothing_for_a_while(kernel: Kernel, code: int) -> None:
    """They leave as soon as it takes something, as pushes and not as repetitions. Meanwhile the worker sleeps
    between its tries, and tells of the silence: it may be for ever.
    """
    given = vectors(2, 1)
    due = summed(given)
    kernel.plant(lambda _first, _count, _is_burst: -code)
    with rack(2) as network:
        for end, those in zip(network.ends, given, strict=True):
            for vector in those:
                network.submit(end, vector)
        for _ in range(3):
            assert network.step(network.ends[0])[0] == QUIET
        tries, pushed = kernel.bursts + kernel.singles, network.counters(network.ends[0]).pushed
        kernel.reset()
        events = network.run([[], []], settled=len(due))
    assert events == [[(DONE, 0)] * len(due)] * 2
    assert network.wrong == []
    require_sums(given, due)
    assert pushed == 0
    assert 2 <= tries < 300


def refused_from(kernel: Kernel, number: int, code: int = errno.EPERM) -> None:
    """Have the kernel refuse all sends from the one of this number on."""
    calls = itertools.count()
    kernel.plant(lambda _first, count, _is_burst: -code if next(calls) >= number else count)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["the vote", "data", "a repetition"])
def test_a_socket_that_refuses_for_good_ends_the_job(kernel: Kernel, number: int) -> None:
    vector = np.ones(5 * spec.LANES, np.float32)
    refused_from(kernel, number)
    with rack(2, absent=[1]) as network:
        network.vote_for(1, vector)
        for _ in range(2):
            network.submit(network.ends[0], vector.copy())
        events = [settled(network) for _ in range(2)]
    assert events == [(REFUSED, errno.EPERM)] * 2
    assert network.wrong == []


def settled(network: Rack) -> tuple[int, int]:
    """Have the first worker work until a vector is settled; the event and its detail."""
    deadline = time.monotonic() + LATE_S
    while (event := network.step(network.ends[0]))[0] == QUIET:
        assert time.monotonic() < deadline
    return event


def test_nothing_is_taken_of_vectors_that_were_handed_back(kernel: Kernel) -> None:
    """The result of a vote comes when its vector has been refused."""
    vector = np.ones(5 * spec.LANES, np.float32)
    kernel.plant(lambda first, count, _is_burst: -errno.EPERM if is_data(first) else count)
    with rack(2, absent=[1]) as network:
        network.vote_for(1, vector)
        for _ in range(3):
            network.submit(network.ends[0], vector.copy())
        events = [settled(network) for _ in range(2)]
        network.result_for(0, tree=0, fragment=mapping.FIRST_VOTE + 1)
        events.append(settled(network))
    assert events == [(REFUSED, errno.EPERM)] * 3


def test_a_refusal_ends_vectors_that_another_break_lets_come_to_their_end(kernel: Kernel) -> None:
    """The scales of the first are there, and the votes on the second disagree, before any data leave."""
    vector = np.ones(5 * spec.LANES, np.float32)
    kernel.plant(lambda first, count, _is_burst: -errno.EPERM if is_data(first) else count)
    with rack(2, absent=[1]) as network:
        network.vote_for(1, vector)
        network.result_for(0, tree=0, fragment=mapping.FIRST_VOTE + 1)  # on a length of 0
        for _ in range(3):
            network.submit(network.ends[0], vector.copy())
        events = [settled(network) for _ in range(3)]
    assert events == [(REFUSED, errno.EPERM)] * 3


def test_a_refusal_hides_no_disagreement(kernel: Kernel) -> None:
    """It comes with the repetition of a vote, before that vote's result."""
    refused_from(kernel, 1)
    with rack(2, absent=[1]) as network:
        network.submit(network.ends[0], np.ones(5 * spec.LANES, np.float32))
        assert network.step(network.ends[0])[0] == QUIET
        assert kernel.singles == 2
        network.result_for(0, tree=0, fragment=mapping.FIRST_VOTE)  # on a length of 0
        assert settled(network) == (DISAGREE, 1)


def test_what_a_worker_raises_whose_sends_are_refused(kernel: Kernel) -> None:
    vector = np.ones(5 * spec.LANES, np.float32)
    refused_from(kernel, 1)
    with rack(2, absent=[1]) as network:
        network.vote_for(1, vector)
        worker = endpoint_of(network, network.ends[0])
        for _ in range(3):
            worker.submit(vector.copy())
        for _ in range(3):
            with pytest.raises(OSError, match=rf"job {JOB}: worker 0 sends gradients: ") as raised:
                worker.finish()
            assert raised.value.errno == errno.EPERM
            assert os.strerror(errno.EPERM) in str(raised.value)


def endpoint_of(network: Rack, end: End) -> Endpoint:
    """Return the Python half of a worker."""
    made = Endpoint.__new__(Endpoint)
    made._job, made._worker, made._workers, made._lanes = JOB, end.number, network.workers, network.width
    made._library, made._handle = endpoint.library(), end.handle
    made._under_way, made._room = deque(), threading.Semaphore(8)
    made._finished, made._broken, made.timeout_s = 0, None, 30.0
    return made


# ---------------------------------------------------------------- ends of an owned tree


def test_bursts_over_many_requests_go_on_where_a_full_socket_cut_them(kernel: Kernel) -> None:
    """The socket is full until all are asked for; then now and then."""
    chance, opened, cut = random.Random(4), threading.Event(), 0
    sizes = [4 * count for count in (1, LANES, LANES - 1, 2 * LANES, 3 * LANES + 5, 7, 2) * 9]
    starts = [sum(sizes[:at]) for at in range(len(sizes))]

    def answer(first: bytes, count: int, is_burst: bool) -> int:
        nonlocal cut
        if owned_wire.HEADER.unpack_from(first)[owned_wire.OP] != owned_wire.PARAMETERS:
            return count
        if not opened.is_set():
            return -errno.EAGAIN
        if is_burst:
            return chance.choice((-errno.EIO, -errno.EAGAIN, count))
        taken = chance.randint(0, count)
        cut += 0 < taken < count
        return taken or -errno.EAGAIN

    kernel.plant(answer)
    with ends(2, sum(sizes)) as (_, owner, nics):
        owner.memory[:] = random.Random(6).randbytes(len(owner.memory))
        given = [owner.give("parameters", at, size) for at, size in zip(starts, sizes, strict=True)]
        pulls = [end.get("pull", at, size) for at, size in zip(starts, sizes, strict=True) for end in nics]
        opened.set()
        for each in (*given, *pulls):
            each.wait(CALL_S)
        for end in nics:
            assert bytes(end.memory) == bytes(owner.memory)
        assert cut > 3


@pytest.mark.parametrize("number", [0, 3])
def test_ends_whose_sends_are_refused_say_so(kernel: Kernel, number: int) -> None:
    refused_from(kernel, number)
    size = 4 * LANES * 64
    with ends(1, size) as (_, owner, (worker,)):
        for each in (worker.get("pull", 0, size), owner.give("parameters", 0, size)):
            with pytest.raises(
                LuwuError, match=r"^the NIC sends: Operation not permitted: nothing more is sent"
            ):
                each.wait(CALL_S)


# ---------------------------------------------------------------- timers of block records


@pytest.fixture(scope="module")
def ticking(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    source = ROOT / "testbed" / "systems" / "trio" / "xdp" / "native" / "timers.c"
    return compiled(tmp_path_factory.mktemp("planted") / "timers.so", [source])


@pytest.fixture
def ticks(ticking: Kernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """The kernel, for what timers send."""
    monkeypatch.setattr(block_timers, "_LIBRARY", ticking.path)
    block_timers.library.cache_clear()
    ticking.reset()
    yield ticking
    ticking.reset()
    block_timers.library.cache_clear()


class Ticked:
    """Timers of a table in memory, and where their ticks come."""

    def __init__(self, age_out_ms: float) -> None:
        self.table = Table()
        ours, self.comes = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.comes.settimeout(LATE_S)
        block_bytes = BLOCK.dtype(spec.LANES).itemsize
        self.timers = Timers(MappedTable(*self.table.fds, BUCKETS, block_bytes), 12, ours, 16)
        self.timers.set(RECORD, SERIAL, 9, entry(age_out_ms))

    def __enter__(self) -> Ticked:
        return self

    def __exit__(self, *_: object) -> None:
        self.timers.close()
        self.comes.close()
        for fd in self.table.fds:
            os.close(fd)

    def failure(self) -> str:
        deadline = time.monotonic() + LATE_S
        while (why := self.timers.failure()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return why


def test_a_tick_that_finds_no_way_now_goes_by_the_next_scan(ticks: Kernel) -> None:
    """It would come after seconds by the block's own time, which each tick doubles."""
    ticks.plant_script(*(-code for code in PASSING))
    with Ticked(100.0) as ticked:
        ticked.table.wait(13, 7, 1, slot=1)
        ages = [Frame.parse(ticked.comes.recv(1 << 16)).header.age for _ in range(2)]
        ticked.table.done(13)
        counts = ticked.timers.counts()
        assert ticked.timers.failure() is None
    assert counts.unsent == len(PASSING)
    assert counts.ticks >= 2
    assert 100 <= ages[0] < 1000
    assert 99 <= ages[1] - ages[0] < 600, "once the timeout, as after a first tick"


def test_ticks_that_the_kernel_refuses_for_good_stop_the_timers(ticks: Kernel) -> None:
    for code in FAILING:
        left = ticks.plant_script(1, -code, -errno.EXDEV)
        with Ticked(2.0) as ticked:
            for number in (*range(100), 500):  # more than go by one call
                ticked.table.wait(number, number, 1, slot=1)
            assert re.match(rf"^send ticks by \S+: {re.escape(os.strerror(code))}$", ticked.failure())
            counts = ticked.timers.counts()
            assert counts.ticks == 1
            assert counts.unsent >= 1
            assert len(left) == 1, "nothing is sent any more"
            assert ticked.timers.counts() == counts


class Timed(Tor):
    """A place in memory that sums by blocks, and the reason why its timers stopped."""

    why: str | None = None

    def part(self, _program: str) -> object | None:
        return self

    def counts(self, _number: int, _tree: int) -> None:
        return None

    def failure(self) -> str | None:
        return self.why


def test_a_switchs_part_says_why_its_timers_stopped() -> None:
    switch: Any = XdpSwitch.__new__(XdpSwitch)
    switch._parts = {}
    assert switch.part("blocks") is None
    table: Any = BlockTable.__new__(BlockTable)
    switch._parts[BlockTable] = table
    table._timers = None
    part = switch.part("blocks")
    assert isinstance(part, TimedBlocks)
    assert part.failure() is None
    table._timers = SimpleNamespace(failure=lambda: "it is so")
    assert part.failure() == "it is so"


def test_jobs_whose_blocks_age_where_timers_stopped_are_named() -> None:
    world = World(4, [{"hosts": 6}, {"hosts": 2}])
    place = Timed("u1", world.log)
    world.all._switches = {**world.tors, Dpid(1): place}
    ages, blocks = JobOptions(age_out_ms=50.0).packets, {"xdp": "blocks"}
    for job, hosts, packets, programs in (
        (1, [(1, 1), (1, 2)], ages, blocks),
        (2, [(1, 3), (1, 4)], AS_USUAL, blocks),
        (3, [(1, 5), (1, 6)], AS_USUAL, None),
        (4, [(2, 1), (2, 2)], ages, blocks),
    ):
        world.all.admit(job, 1, p4inc(hosts), packets=packets, programs=programs)
    assert world.all.failures() == {}
    place.why = "send ticks by c: Operation not permitted"
    assert world.all.failures() == {
        1: "its blocks age out no more: u1: send ticks by c: Operation not permitted"
    }
    world.all.release(1)
    assert world.all.failures() == {}


def test_the_daemon_fails_the_jobs_of_a_place_whose_timers_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, failed = iter([False, False, True]), []
    daemon: Any = Daemon.__new__(Daemon)
    daemon._end, daemon._controller_restarts = None, 0
    daemon._main = SimpleNamespace(wants_end=lambda *_, **__: next(looks))
    places = SimpleNamespace(failures=lambda: {3: "its blocks age out no more: u1: Operation not permitted"})
    daemon._network = SimpleNamespace(watch=list, places=places, controller_restarts=0)
    daemon._jobs = SimpleNamespace(fail_now=lambda *call: failed.append(call))
    daemon._starts = SimpleNamespace(watch=lambda: None)
    monkeypatch.setattr(Daemon, "_follow_circuits", lambda _: None)
    daemon._watch()
    assert failed == [(3, "its blocks age out no more: u1: Operation not permitted")] * 2
