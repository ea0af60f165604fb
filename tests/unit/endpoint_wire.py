"""Compiled endpoints on loopback around the reference model: each worker's pushes go to a model switch, its
results to a model host.

The workers' packets are checked: every push must follow docs/protocol.md, in its slot and within the window;
`wrong` lists violations. No root.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from testbed.aggregation.entries import NO_IP, Entry, Sender
from testbed.reference_model.output_ports import Emission
from testbed.reference_model.pull import Puller, PullSide
from testbed.wire import frame, mapping, recovery, rings, spec
from testbed.wire.codec import Header
from testbed.wire.endpoint import Event, Vector
from testbed.wire.frame import Frame
from testbed.wire.recovery import Found
from testbed.wire.votes import LENGTH_LANES, Ballot
from tests.vectors.run import Model
from workloads import quantiser
from workloads.endpoint import Counters, _Settings, _Way, library

JOB, GENERATION, BASE, SIZE = 5, 9, 90, 48
DATA_SLOTS = SIZE - mapping.VOTE_SLOTS
LIMIT = DATA_SLOTS // 2
TOR_IP = "10.0.1.254"
IDLE, DONE, QUIET, NOT_FINITE, DISAGREE, IMPOSSIBLE, OVERTAKEN, LACKING, REFUSED = Event
LATE_S = 30.0
_RESULT_BYTES = rings.RESULT.dtype(spec.LANES).itemsize
_TREE = 2**32  # fragments of tree t count from t * _TREE here
_AT = {name: rings.RESULT.offset(name) for name in ("contributors", "flags", "lanes")}
_WAKE_AT, _NOTICES = (rings.WAKE.offset(name) for name in ("wake_at", "notices"))


def worker_ip(worker: int) -> str:
    return f"10.0.1.{worker + 1}"


@dataclass(slots=True)
class End:
    """One worker: its endpoint, the memory that it shares with its host, and the packets that it sent."""

    number: int
    handle: int
    ring: mmap.mmap
    wake: mmap.mmap
    address: Any
    side: PullSide
    progress: np.ndarray
    keep: tuple[Any, ...]
    pushes: dict[int, int] = field(default_factory=dict)  # fragment -> how often
    lanes: dict[int, np.ndarray] = field(default_factory=dict)  # fragment -> the lanes pushed
    questions: list[tuple[int, int]] = field(default_factory=list)  # (first fragment, count)
    had: set[int] = field(default_factory=set)  # data fragments whose results it has
    done: list[int] = field(default_factory=list)  # by tree: the first fragment without a result
    voted: set[int] = field(default_factory=set)  # votes that it pushed and has no results of
    pushed: int = 0  # fragments of the first tree
    crowd: int = 0  # most fragments and votes together under way in the first tree
    vectors: list[np.ndarray] = field(default_factory=list)  # the submitted vectors
    # by vector, the contributors of its fragments
    contributors: list[np.ndarray] = field(default_factory=list)


Change = Callable[[Frame], Frame]


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of a group's workers in the network, and the number of its first tree; the model treats it as
    a job of its own.
    """

    ranks: tuple[int, ...]
    first: int

    def within(self, header: Header) -> Header:
        """Return a header with the model's numbers. ValueError where it names no worker or tree of the
        group.
        """
        if header.tree < self.first:
            raise ValueError(f"tree {header.tree} of a group whose first is {self.first}")
        return replace(header, worker=self.ranks.index(header.worker), tree=header.tree - self.first)


def in_tree(tree: int, fragment: int) -> int:
    """Return the number used here for a tree's fragment."""
    return tree * _TREE + fragment


class Rack:
    """Endpoints of one job, the model switch between them, and a network that loses a share of all packets
    and may change results on their way to workers.
    """

    base = BASE  # the base of the first tree's segment
    entry_fields: Mapping[str, Any] = {}  # more fields of the trees' entries, and of the endpoints' settings
    settings_fields: Mapping[str, Any] = {}
    # accepted verdicts on pushes
    expected = frozenset(("aggregated", "completed", "duplicate", "resent", "asked"))

    def __init__(
        self,
        workers: int,
        loss: float,
        seed: int,
        absent: Sequence[int],
        shares: Sequence[float],
        lanes: int,
        change: Change,
        takes_empties: bool,
        group: Group | None = None,
        queue_packets: int = 0,
        asks: bool = False,
    ) -> None:
        self._queue_packets, self._asks = queue_packets, asks
        self._takes_empties = takes_empties
        self.workers, self._loss, self._random = workers, loss, random.Random(seed)
        self.width, self._change, self.trees = lanes, change, len(shares)
        self._group = group or Group(tuple(range(workers)), 0)
        self.ballot = Ballot.of(workers, lanes)
        self._pattern = mapping.pattern(shares)
        self.wrong: list[str] = []
        self._library, self._stop = library(), threading.Event()
        self._switch = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._switch.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._switch.bind(("127.0.0.1", 0))
        self._switch.settimeout(0.05)
        self._places = mapping.places(JOB, DATA_SLOTS)
        self._model = Model(TOR_IP, 256)
        members = (1 << workers) - 1
        for tree in range(self.trees):
            entry = Entry(
                tree=tree,
                generation=GENERATION,
                workers=members,
                places=0,
                number=0,
                base=self.base + tree * SIZE,
                size=SIZE,
                up_base=0,
                result_base=self.base + tree * SIZE,
                self_ip=TOR_IP,
                up_ip=NO_IP,
                group_ip="239.192.0.5",
                lanes=lanes,
                **self.entry_fields,
            )
            self._model.set_group(JOB, tree, range(1, workers + 1))
            self._model.admit(JOB, entry)
        for worker in range(workers):
            self._model.bind(worker + 1, [Sender(JOB, worker)])
        self.ends = [self._opened(worker) for worker in range(workers) if worker not in absent]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _opened(self, worker: int) -> End:
        page = mmap.PAGESIZE
        fds = [os.memfd_create(name) for name in ("ring", "wake")]
        entries = SIZE * self.trees
        os.ftruncate(fds[0], (_RESULT_BYTES * entries + page - 1) // page * page)
        os.ftruncate(fds[1], page)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        event, progress = os.eventfd(0, os.EFD_NONBLOCK), np.zeros(1, np.uint64)
        rate = np.zeros(1)  # the link's rate: 0, unknown
        cells, tops = self.ballot.cells(), self.ballot.tops()
        address = int.from_bytes(socket.inet_aton("127.0.0.1"), "little")
        ways = (_Way * self.trees)(
            *(
                _Way(address, self.base + tree * SIZE, self._queue_packets, self._takes_empties)
                for tree in range(self.trees)
            )
        )
        settings = _Settings(
            ring_fd=fds[0],
            wake_fd=fds[1],
            socket_fd=udp.fileno(),
            event_fd=event,
            job=JOB,
            worker=worker,
            sender=self._group.ranks[worker],
            first_tree=self._group.first,
            workers=self.workers,
            generation=GENERATION,
            lanes=self.width,
            slots=SIZE,
            vote_slots=mapping.VOTE_SLOTS,
            ring_entries=entries,
            ring_lanes=spec.LANES,
            first_vote=mapping.FIRST_VOTE,
            port=self._switch.getsockname()[1],
            trees=self.trees,
            ways=ctypes.addressof(ways),
            parts=self._pattern.size,
            pattern=self._pattern.ctypes.data,
            places=self._places.ctypes.data,
            progress=progress.ctypes.data,
            rate_mbps=1000.0 if self._queue_packets else 0.0,
            rate_now=rate.ctypes.data,
            cells=cells.ctypes.data,
            tops=tops.ctypes.data,
            buckets=tops.size,
            count_bits=self.ballot.bits,
            block_fragments=self.ballot.block_fragments,
            page_blocks=self.ballot.page_blocks,
            asks=self._asks,
            **self.settings_fields,
        )
        handle = self._library.endpoint_open(ctypes.byref(settings))
        assert handle
        assert not self._library.endpoint_open(ctypes.byref(settings)), (
            "the memory of another process was taken"
        )
        bases = tuple(self.base + tree * SIZE for tree in range(self.trees))
        side = PullSide(
            Puller(JOB, GENERATION, bases, SIZE, self.width, worker_ip(worker), "02:00:00:00:00:01")
        )
        memory = (mmap.mmap(fds[0], 0), mmap.mmap(fds[1], page))
        for fd in fds:  # both sides have mapped it
            os.close(fd)
        keep = (udp, event, settings, ways, rate, cells, tops)
        return End(worker, handle, *memory, udp.getsockname(), side, progress, keep, done=[0] * self.trees)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for end in self.ends:
            self._library.endpoint_close(end.handle)
            os.close(end.keep[1])  # the eventfd
        self._switch.close()

    # ------------------------------------------------------------------ a worker

    def run(
        self,
        vectors: Sequence[Sequence[np.ndarray]],
        raw: bool = False,
        quiet: int = 10**9,
        own: Sequence[slice] | None = None,
        settled: int = 0,
        kept: slice | None = None,
    ) -> list[list[tuple[int, int]]]:
        """Sum vectors (by worker, then in order) in place. Return, by worker and vector, the event and its
        detail.

        Ends after `quiet` timer events. With `own` (a slice by worker) vectors are gathered; of sums each
        worker keeps the slice `kept`. `settled`: how many vectors submitted before are awaited too.
        """
        events: list[list[tuple[int, int]]] = [[] for _ in self.ends]

        def work(at: int, end: End) -> None:
            for vector in vectors[at]:
                self.submit(end, vector, raw, own[at] if own else None, kept)
            deadline, silences = time.monotonic() + LATE_S, 0
            while (
                len(events[at]) < len(vectors[at]) + settled
                and time.monotonic() < deadline
                and silences < quiet
            ):
                event, detail = self.step(end)
                silences += event == QUIET
                if event != QUIET:
                    events[at].append((event, detail))

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(self.ends)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for end in self.ends:
            self.wait_for_pushes(end)
        return events

    def submit(
        self,
        end: End,
        vector: np.ndarray,
        raw: bool = False,
        own: slice | None = None,
        kept: slice | None = None,
        lost: np.ndarray | None = None,
    ) -> None:
        """Submit a vector to a worker's endpoint: to be summed in place, keeping the bytes `kept`, or to be
        gathered, with the bytes `own` its own. `lost` receives the rounding errors.
        """
        kind = Vector.GATHERED if own else Vector.LANES if raw else Vector.FLOATS
        own = own or kept or slice(0, vector.nbytes)
        of = np.zeros(max(1, -(-vector.size // self.width)), np.uint32)
        end.contributors.append(of)
        end.vectors.append(vector)
        self._library.endpoint_submit(
            *(end.handle, vector.ctypes.data, vector.size, kind, own.start, own.stop, of.ctypes.data),
            None if lost is None else lost.ctypes.data,
        )

    def step(self, end: End) -> tuple[int, int]:
        """Let a worker run until a vector is settled or a timer expires. Return the event and its detail."""
        number, detail, silent = ctypes.c_uint64(), ctypes.c_uint32(), ctypes.c_int64()
        event = self._library.endpoint_run(
            end.handle, ctypes.byref(number), ctypes.byref(detail), ctypes.byref(silent)
        )
        return event, detail.value

    def addresses(self, end: End) -> tuple[int, int, int, int]:
        """Return a worker's `Endpoint.addresses`."""
        submit, run = (
            ctypes.cast(each, ctypes.c_void_p).value or 0
            for each in (self._library.endpoint_submit, self._library.endpoint_run)
        )
        return end.handle, submit, run, self.width

    def wait_for_pushes(self, end: End) -> None:
        """Wait until the switch has handled everything that the worker sent."""
        counters, deadline = self.counters(end), time.monotonic() + LATE_S
        sent = counters.pushed + counters.retransmitted
        while sum(end.pushes.values()) < sent:
            assert time.monotonic() < deadline, f"worker {end.number} sent {sent} packets, {end.pushes} came"
            time.sleep(0.001)

    def asked_by(self, end: End) -> list[tuple[int, int]]:
        """Return a worker's questions, once the switch has handled all of them."""
        counters, deadline = self.counters(end), time.monotonic() + LATE_S
        while len(end.questions) < counters.asked:
            assert time.monotonic() < deadline, f"worker {end.number} asked {counters.asked} times"
            time.sleep(0.001)
        return end.questions

    def counters(self, end: End) -> Counters:
        counters = Counters()
        self._library.endpoint_counters(end.handle, ctypes.byref(counters))
        return counters

    def notify(self, worker: int) -> None:
        """Store a notice for this worker."""
        end = self.ends[worker]
        struct.pack_into("=I", end.wake, _NOTICES, struct.unpack_from("=I", end.wake, _NOTICES)[0] + 1)

    def vote_for(self, worker: int, vector: np.ndarray, number: int = 0, raw: bool = False) -> None:
        """Send the votes of an absent worker on a vector of floats: from vote `number` on, as many as there
        are slots for. Raw lanes have one vote, on their length.
        """
        votes = quantiser.pages(vector, self.ballot)[: 1 if raw else mapping.VOTE_SLOTS]
        if raw:
            votes[0][LENGTH_LANES:] = 0
        for at, lanes in enumerate(votes, number):
            header = Header(
                spec.Op.PUSH, JOB, worker, 1, GENERATION, self.base + DATA_SLOTS + at,
                mapping.FIRST_VOTE + at, self.width, lanes=self.width,
            )  # fmt: skip
            data = Frame(header, lanes, worker_ip(worker), TOR_IP).pack()
            self.came(header, str(self._model.receive(data, worker + 1)[0]))

    def result_for(self, worker: int, tree: int, fragment: int) -> None:
        """Deliver a result of zeros, as of a ticked sum, to a worker that may not have pushed its part."""
        slot = BASE + tree * SIZE + self._offset(fragment)
        header = Header(
            spec.Op.RESULT, JOB, 0, 1, GENERATION, slot, fragment, self.width,
            tree=tree, flags=spec.Flag.DEGRADED, lanes=self.width,
        )  # fmt: skip
        lanes = np.zeros(self.width, np.uint32)
        self._arrive(worker, Frame(header, lanes, TOR_IP, worker_ip(worker)).pack())

    def leave(self, worker: int) -> None:
        """Stop new blocks from waiting for this worker."""
        self._model.leave(JOB, 0, 1 << worker)

    # ------------------------------------------------------------------ switch and hosts

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                payload = self._switch.recv(1 << 16)
            except TimeoutError:
                payload = b""
            try:
                if payload:
                    self._take(payload)
                self.passes()
            except Exception as error:  # fail the test instead of losing the thread
                self.wrong.append(f"{type(error).__name__}: {error}")

    def passes(self) -> None:
        """Do nothing; a subclass may act on the time that has passed."""

    def _take(self, payload: bytes) -> None:
        header = self._group.within(Header.unpack(payload))
        lanes = np.frombuffer(payload, ">u4", offset=spec.HEADER_BYTES).astype(np.uint32)
        end = next(end for end in self.ends if end.number == header.worker)
        if header.op == spec.Op.QUESTION:
            self._watch_question(end, header, lanes)
        else:
            self._watch(end, header, lanes)
        if self._random.random() < self._loss:
            return
        data = Frame(header, lanes, worker_ip(header.worker), TOR_IP).pack()
        verdict, emissions = self._model.receive(data, header.worker + 1)
        self.came(header, str(verdict))
        if verdict not in self.expected:
            self.wrong.append(f"worker {header.worker}: fragment {header.fragment}: {verdict}")
        self.emit(emissions)

    def came(self, header: Header, verdict: str) -> None:
        """Handle the verdict on a push; does nothing here."""

    def emit(self, emissions: Iterable[Emission]) -> None:
        """Deliver the frames that leave the switch, except those that are lost."""
        for emission in emissions:
            for port in emission.ports or ():
                if self._random.random() >= self._loss:
                    self._arrive(port - 1, emission.data)

    def answer(
        self,
        payload: bytes,
        state: Callable[[int], Found],
        forge: Callable[[Header], Header] = lambda header: header,
        more: int = 0,
    ) -> None:
        """Answer a question with the state of each fragment, with `more` bytes too many."""
        header = Header.unpack(payload)
        lanes = np.frombuffer(payload, ">u4", offset=spec.HEADER_BYTES).copy()
        for place in range(header.count):
            lanes[place] |= np.uint32(state(header.fragment + place) << recovery.SHIFT)
        answered = forge(replace(header, op=spec.Op.ANSWER, flags=header.flags & spec.Flag.RETRANSMIT))
        end = next(end for end in self.ends if end.number == header.worker)
        self._switch.sendto(answered.pack() + lanes.tobytes() + bytes(more), end.address)

    def _offset(self, fragment: int) -> int:
        """Return the slot of a tree's segment for a fragment or a vote."""
        if fragment >= mapping.FIRST_VOTE:
            return DATA_SLOTS + (fragment - mapping.FIRST_VOTE) % mapping.VOTE_SLOTS
        return int(self._places[fragment % DATA_SLOTS])

    def _watch_question(self, end: End, header: Header, lanes: np.ndarray) -> None:
        end.questions.append((header.fragment, header.count))
        asked = range(header.fragment, header.fragment + header.count)
        unpushed = [number for number in asked if in_tree(header.tree, number) not in end.pushes]
        due = [self._offset(number) for number in asked] + [0] * (self.width - header.count)
        if not self._asks or not asked or unpushed or list(lanes) != due:
            self.wrong.append(f"worker {end.number}: a question for {asked}, {unpushed} unpushed: {lanes}")

    def _watch(self, end: End, header: Header, lanes: np.ndarray) -> None:
        tree, fragment, is_vote = header.tree, header.fragment, header.fragment >= mapping.FIRST_VOTE
        key = in_tree(tree, fragment)
        end.voted |= {fragment} if is_vote and key not in end.pushes else set()
        if tree == 0:
            end.pushed = end.pushed if is_vote else max(end.pushed, fragment + 1)
            end.crowd = max(end.crowd, end.pushed - end.done[0] + len(end.voted))
        same = np.array_equal(end.lanes.setdefault(key, lanes), lanes)
        times = end.pushes[key] = end.pushes.get(key, 0) + 1
        said = (
            header.op,
            header.job,
            header.contributors,
            header.generation,
            header.slot,
            header.age,
            header.lanes,
        )
        bare = lanes.size == 0 and not is_vote and self._takes_empties
        op = spec.Op.EMPTY if bare else spec.Op.PUSH
        is_out = bool(header.flags & spec.Flag.DEGRADED)  # values that the scale cannot represent
        slot = self.base + tree * SIZE + self._offset(fragment)
        due = (op, JOB, 0 if is_out else 1, GENERATION, slot, 0, self.width)
        for is_wrong, what in (
            (said != due, f"{said}, expected {due}"),
            (is_vote and tree > 0, f"a vote by tree {tree}"),
            (lanes.size != (0 if bare else self.width), f"{lanes.size} lanes"),
            (
                header.flags & ~spec.Flag.DEGRADED != (spec.Flag.RETRANSMIT if times > 1 else 0),
                f"flags {header.flags} the {times}. time",
            ),
            (not same, "other lanes than the first time"),
            (is_out and (is_vote or bool(lanes.any())), "lanes of a fragment that is left out"),
            (bool(lanes[header.count :].any()), "lanes behind its count"),
            (
                not is_vote and fragment >= end.done[tree] + LIMIT,
                f"beyond the window, which ends at {end.done[tree] + LIMIT}",
            ),
            (
                not is_vote and times == 1 and fragment and key - 1 not in end.pushes,
                "before the one ahead of it",
            ),
        ):
            if is_wrong:
                self.wrong.append(f"worker {end.number}: tree {tree}, fragment {fragment}: {what}")

    def _arrive(self, worker: int, data: bytes) -> None:
        end = next((end for end in self.ends if end.number == worker), None)
        if end is None:
            return
        packet = self._change(Frame.parse(data))
        header = packet.header
        if header.op == spec.Op.ANSWER:
            self._switch.sendto(data[frame.HEADERS_BYTES :], end.address)
            return
        place = end.side.puller.place(header.tree, header.slot)
        end.side.wake_at = struct.unpack_from("=I", end.wake, _WAKE_AT)[0]
        end.voted.discard(header.fragment)
        if header.fragment < mapping.FIRST_VOTE:  # update before the worker can read it and push the next
            end.had.add(in_tree(header.tree, header.fragment))
            while in_tree(header.tree, end.done[header.tree]) in end.had:
                end.done[header.tree] += 1
        verdict, _ = end.side.take(packet, data)
        if verdict != "pulled":
            return
        assert place is not None
        at = place * _RESULT_BYTES
        struct.pack_into("=Q", end.ring, at, 0)
        lanes = packet.lanes.astype(">u4").tobytes()
        end.ring[at + _AT["lanes"] : at + _AT["lanes"] + len(lanes)] = lanes
        struct.pack_into("=I", end.ring, at + _AT["contributors"], header.contributors)
        struct.pack_into("=I", end.ring, at + _AT["flags"], header.flags)
        struct.pack_into("=Q", end.ring, at, header.fragment + 1)
        struct.pack_into("=I", end.wake, 0, end.side.received)
        if end.side.received == struct.unpack_from("=I", end.wake, _WAKE_AT)[0]:
            self._switch.sendto(b"wake", end.address)


@contextmanager
def rack(
    workers: int,
    loss: float = 0.0,
    seed: int = 1,
    absent: Sequence[int] = (),
    shares: Sequence[float] = (1.0,),
    lanes: int = spec.LANES,
    change: Change = lambda packet: packet,
    takes_empties: bool = True,
    group: Group | None = None,
    queue_packets: int = 0,
    asks: bool = False,
    kind: type[Rack] = Rack,
) -> Iterator[Rack]:
    """Open endpoints of `workers` workers, except the absent ones, with trees by their shares. With
    `queue_packets` their links mark congestion; with `asks` they ask for lost packets. `kind` is the class of
    the network.
    """
    made = kind(workers, loss, seed, absent, shares, lanes, change, takes_empties, group, queue_packets, asks)
    try:
        yield made
    finally:
        made.close()
