"""Two ways to recover lost packets, in simulated time: the window of docs/protocol.md, and ALEPH's integrity
check (its algorithm 2) as docs/studies/recovery.md describes it.

Places are the reference aggregator; links have a rate, a delay, and losses drawn from a seed. The unit of
time is a full frame's time on a link. Workers check every result that they receive.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from testbed.aggregation.entries import NO_IP, Entry, Sender
from testbed.reference_model.aggregator import Aggregator, Slot
from testbed.reference_model.output_ports import Route
from testbed.wire import spec
from testbed.wire.codec import Header
from testbed.wire.frame import Frame

JOB, GENERATION, LANES = 7, 3, 2
GROUP_IP, TOP_IP = "239.0.0.7", "10.0.200.254"
UP = 99  # the port of a head towards the top
LONGEST = 64  # most round trips between two questions
PAUSE_LEAST = 8.0  # least frame times between two retransmissions: 0.5 ms at 200 Mb/s
OVERRUN = 1000.0  # a run fails when it takes longer than this, per frame of the vector

Lanes = npt.NDArray[np.uint32]


class State(Enum):
    """The states of a fragment, as a place reports them to the contributor that asks."""

    LACKS = "lacks"  # the sum lacks the asking contributor
    HELD = "held"  # the sum has the asking contributor, and lacks others
    SUMMED = "summed"  # the sum was sent to the parent
    FINAL = "final"  # this place has the result


@dataclass(frozen=True, slots=True)
class Question:
    """The end of a range: asks which of `count` fragments from `first` lack its sender. Places fill in
    `states`. With `goes_up`, the parent fills in the states of fragments that were sent to it. `answered`: it
    is on its way back.
    """

    worker: int
    first: int
    count: int
    goes_up: bool = False
    states: tuple[State, ...] = ()
    answered: bool = False


Packet = bytes | Question


@dataclass(frozen=True, slots=True)
class Setup:
    """A tree of heads with equally many members each, the slots of a segment, and the behaviour of links.
    `delay` is of one link, one way; `jitter` is the most by which a frame is delayed in addition, so that
    frames overtake.
    """

    heads: int = 2
    members: int = 4
    size: int = 512
    fragments: int = 4096
    loss: float = 0.0
    delay: float = 1.0
    repeat: float = 0.0
    jitter: float = 0.0
    late: float = 0.0  # how much later than the others the first worker begins
    queue: int = 256  # most frames that wait for a link; further ones are lost
    seed: int = 1

    @property
    def workers(self) -> int:
        return self.heads * self.members

    @property
    def round_trip(self) -> float:
        """Return the time of a push and its result on idle links: two up, two down."""
        return 4 * (1 + self.delay)


@dataclass(slots=True)
class Link:
    """One direction of a link, and when it becomes free."""

    free_at: float = 0.0
    frames: int = 0


@dataclass(slots=True)
class Counts:
    """The cost of a run: its time, and frames by kind, over all workers or links."""

    time: float = 0.0
    pushed: int = 0
    again: int = 0
    questions: int = 0
    overflowed: int = 0
    frames: int = 0


def state_of(slot: Slot, fragment: int, bit: int) -> State:
    """Return a slot's state of a fragment for the contributor `bit`: lines 3 to 5 of algorithm 2."""
    if slot.generation != GENERATION or slot.fragment < fragment:
        return State.LACKS
    if slot.fragment > fragment:
        return State.HELD  # no contributor needs the fragment any more: the question is an old one
    if slot.complete:
        return State.FINAL if slot.final else State.SUMMED
    return State.HELD if slot.members & bit else State.LACKS


@dataclass(slots=True)
class Worker:
    """A worker's results, and when it last pushed each fragment."""

    number: int
    head: int
    sent: int = 0
    done: int = 0
    arrived: set[int] = field(default_factory=set)
    sent_at: dict[int, float] = field(default_factory=dict)
    again: list[int] = field(default_factory=list)  # to be pushed again, in order
    queued: set[int] = field(default_factory=set)

    def queue(self, fragment: int) -> None:
        if fragment not in self.queued and fragment not in self.arrived:
            self.queued.add(fragment)
            self.again.append(fragment)

    def next_again(self) -> int | None:
        """Return the next fragment to push again, skipping those whose result has arrived meanwhile; None if
        there is none.
        """
        while self.again:
            fragment = self.again.pop(0)
            self.queued.discard(fragment)
            if fragment not in self.arrived:
                return fragment
        return None


class Recovery:
    """A worker's end of the protocol; a subclass decides when it pushes a fragment again."""

    def __init__(self, tree: Tree, worker: Worker) -> None:
        self.tree, self.worker = tree, worker
        tree.at(tree.setup.late if worker.number == 0 else 0.0, self.start)

    def start(self) -> None:
        self.tree.pump(self)

    def packets(self) -> Iterator[Packet]:
        """Yield packets that may be sent now. It is called again for each packet."""
        raise NotImplementedError

    def on_result(self, fragment: int, is_repeated: bool) -> None:
        raise NotImplementedError

    def on_answer(self, question: Question) -> None:
        raise NotImplementedError


class Window(Recovery):
    """docs/protocol.md, "What a worker does": half a segment under way, by fragments. A result reveals the
    gaps before it, and the loss of what was pushed a round trip before an answered push; after silence it
    probes. Timers are those of workloads/native/timing.h, with a frame's time as the unit.
    """

    def __init__(self, tree: Tree, worker: Worker) -> None:
        super().__init__(tree, worker)
        self._high = 0  # one past the highest result received
        self._gaps: set[int] = set()
        self._first_at: dict[int, float] = {}
        self._repeated: set[int] = set()
        self._clean_from = 0
        self._answered_at = -1.0
        self._base = PAUSE_LEAST
        self._quiet_from, self._silent = 0.0, 0
        self._pace, self._pace_at, self._pace_from, self._pace_until = 0.0, 0.0, 0, 0

    def start(self) -> None:
        super().start()
        self._watch()

    def packets(self) -> Iterator[Packet]:
        worker, setup = self.worker, self.tree.setup
        while True:
            fragment = worker.next_again()
            if fragment is not None:
                self._repeated.add(fragment)
                self._clean_from = worker.sent
                yield self.tree.push(worker, fragment, again=True)
            elif worker.sent < min(worker.done + setup.size // 2, setup.fragments):
                self._first_at[worker.sent] = self.tree.now
                worker.sent += 1
                yield self.tree.push(worker, worker.sent - 1)
            else:
                return

    def _missing(self) -> list[int]:
        return [f for f in range(self.worker.done, self.worker.sent) if f not in self.worker.arrived]

    def on_result(self, fragment: int, is_repeated: bool) -> None:
        worker, now = self.worker, self.tree.now
        self._quiet_from, self._silent = now, 0
        self._measure(fragment, is_repeated)
        self._gaps.update(f for f in range(max(self._high, worker.done), fragment) if f not in worker.arrived)
        self._gaps.difference_update([f for f in self._gaps if f in worker.arrived])
        self._high = max(self._high, fragment + 1)
        pushed_at = worker.sent_at if is_repeated else self._first_at
        self._answered_at = max(self._answered_at, pushed_at[fragment])
        pause = max(self._base, PAUSE_LEAST) + len(self._gaps)
        for gap in sorted(self._gaps):
            if gap not in self._repeated or now - worker.sent_at[gap] >= pause:
                worker.queue(gap)
        before = self._answered_at - self._base - PAUSE_LEAST
        for behind in range(max(self._high, worker.done), worker.sent):
            if worker.sent_at[behind] >= before:
                break
            worker.queue(behind)

    def _measure(self, fragment: int, is_repeated: bool) -> None:
        now, done = self.tree.now, self.worker.done
        if done >= self._pace_until and done > self._pace_from:
            pace = (now - self._pace_at) / (done - self._pace_from)
            self._pace = min(pace, self._pace * 17 / 16) if self._pace else pace
            self._pace_at, self._pace_from = now, done
            self._pace_until = max(self.worker.sent, done + 1)
        if not is_repeated and (fragment >= self._clean_from or fragment in self._repeated):
            longest = 2 * PAUSE_LEAST + self.tree.setup.size // 2 * self._pace
            self._base += (min(now - self._first_at[fragment], longest) - self._base) / 8

    def _watch(self) -> None:
        """Check the timers: push gaps again after a pause, and probe after silence."""
        if self.worker.done == self.tree.setup.fragments:
            return
        missing = self._missing()
        each = 8 * self.tree.setup.workers
        due = self._quiet_from + max(2 * PAUSE_LEAST, 2 * self._base, each) + len(missing) + 1
        if missing and self.tree.now >= due:
            self._quiet_from, self._silent = self.tree.now, self._silent + 1
            self.worker.queue(missing[-1])
            if self._silent > 1:
                self.worker.queue(missing[0])
        pause = (max(self._base, PAUSE_LEAST) + len(self._gaps)) * 2 ** min(self._silent, 8)
        for gap in sorted(self._gaps):
            if self.tree.now - self.worker.sent_at[gap] >= pause:
                self.worker.queue(gap)
        self.tree.pump(self)
        self.tree.at(self.tree.now + PAUSE_LEAST, self._watch)

    def on_answer(self, question: Question) -> None:
        raise AssertionError("a window asks nothing")


class Integrity(Recovery):
    """Ranges of a quarter of a segment, two of them under way. Each ends with a question; fragments that the
    answer reports as missing are pushed again, followed by another question.
    """

    def __init__(self, tree: Tree, worker: Worker) -> None:
        super().__init__(tree, worker)
        self._to_ask: list[int] = []  # first fragments of ranges
        self._asked: dict[int, int] = {}  # by range: the number of its last question
        self._in_vain: dict[int, int] = {}

    @property
    def _range(self) -> int:
        return max(1, self.tree.setup.size // 4)

    def _missing(self, first: int) -> list[int]:
        until = min(first + self._range, self.tree.setup.fragments)
        return [f for f in range(first, until) if f not in self.worker.arrived]

    def packets(self) -> Iterator[Packet]:
        worker, setup = self.worker, self.tree.setup
        while True:
            fragment = worker.next_again()
            if fragment is not None:
                yield self.tree.push(worker, fragment, again=True)
            elif self._to_ask:
                first = self._to_ask.pop(0)
                if self._missing(first):
                    yield self._ask(first)
            elif worker.sent < min((worker.done // self._range + 2) * self._range, setup.fragments):
                worker.sent += 1
                if worker.sent % self._range == 0 or worker.sent == setup.fragments:
                    self._to_ask.append((worker.sent - 1) // self._range * self._range)
                yield self.tree.push(worker, worker.sent - 1)
            else:
                return

    def _ask(self, first: int) -> Question:
        number = self._asked[first] = self._asked.get(first, 0) + 1
        patience = 2 * self.tree.setup.round_trip + self._range
        self._again_in(first, number, patience * 2 ** self._in_vain.get(first, 0))
        self.tree.counts.questions += 1
        count = min(self._range, self.tree.setup.fragments - first)
        return Question(self.worker.number, first, count, goes_up=number > 1)

    def _again_in(self, first: int, number: int, pause: float) -> None:
        """Ask again after a pause, unless another question about the range was sent by then, or the range is
        complete.
        """

        def due() -> None:
            if self._asked.get(first) == number and self._missing(first) and first not in self._to_ask:
                self._in_vain[first] = min(self._in_vain.get(first, 0) + 1, 6)
                self._to_ask.append(first)
                self.tree.pump(self)

        self.tree.at(self.tree.now + min(pause, LONGEST * self.tree.setup.round_trip), due)

    def on_result(self, fragment: int, is_repeated: bool) -> None:
        self._in_vain.pop(fragment // self._range * self._range, None)

    def on_answer(self, question: Question) -> None:
        first, again = question.first, False
        for offset, state in enumerate(question.states):
            if state in (State.LACKS, State.FINAL) and first + offset not in self.worker.arrived:
                self.worker.queue(first + offset)
                again = True
        if again and first not in self._to_ask:
            self._to_ask.append(first)
        elif not again:
            pause = self.tree.setup.round_trip * 2 ** self._in_vain.get(first, 0)
            self._again_in(first, self._asked.get(first, 0), pause)


RECOVERIES: dict[str, type[Recovery]] = {"window": Window, "integrity": Integrity}


class Tree:
    """A top, heads, and members, with links between them; `run` sums one vector."""

    def __init__(self, setup: Setup, recovery: str, make: Callable[[str], Aggregator] | None = None) -> None:
        self.setup, self.counts, self.now = setup, Counts(), 0.0
        self._random = random.Random(setup.seed)
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._links: dict[tuple[int, int], Link] = {}
        rows = np.random.default_rng(setup.seed)
        self._lanes = rows.integers(0, 2**32, (setup.workers, setup.fragments, LANES), dtype=np.uint32)
        self._sums = self._lanes.sum(axis=0, dtype=np.uint32)
        make = make or (lambda ip: Aggregator(ip, setup.size, LANES))
        self._heads = [make(f"10.0.{head + 1}.254") for head in range(setup.heads)]
        self._top = make(TOP_IP)
        self._admit()
        self.workers = [Worker(number, number // setup.members) for number in range(setup.workers)]
        self._ends = [RECOVERIES[recovery](self, worker) for worker in self.workers]

    # ---------------------------------------------------------------- the tree

    def _admit(self) -> None:
        setup = self.setup
        entry = Entry(
            tree=0,
            generation=GENERATION,
            workers=0,
            places=sum(1 << head * setup.members for head in range(setup.heads)),
            number=0,
            base=0,
            size=setup.size,
            up_base=0,
            result_base=0,
            self_ip=TOP_IP,
            up_ip=NO_IP,
            group_ip=GROUP_IP,
            lanes=LANES,
        )
        self._top.admit(JOB, entry)
        self._top.ways.set_group(JOB, 0, range(1, setup.heads + 1))
        for head, place in enumerate(self._heads):
            ranks = range(head * setup.members, (head + 1) * setup.members)
            own = replace(
                entry,
                workers=sum(1 << rank for rank in ranks),
                places=0,
                number=ranks[0],
                self_ip=f"10.0.{head + 1}.254",
                up_ip=TOP_IP,
            )
            place.admit(JOB, own)
            for port, rank in enumerate(ranks, 1):
                place.bind(port, [Sender(JOB, rank)])
            place.ways.set_group(JOB, 0, range(1, setup.members + 1))
            place.ways.set_routes({(TOP_IP, 32): Route(UP)})

    def push(self, worker: Worker, fragment: int, again: bool = False) -> bytes:
        """Return the frame of a push, and record when it was sent."""
        self.counts.pushed += 1
        self.counts.again += again
        worker.sent_at[fragment] = self.now
        header = Header(
            *(spec.Op.PUSH, JOB, worker.number, 1, GENERATION, fragment % self.setup.size, fragment, LANES),
            flags=spec.Flag.RETRANSMIT if again else 0,
            lanes=LANES,
        )
        lanes = self._lanes[worker.number, fragment]
        tos = (spec.DSCP_REPEATED << 2 | spec.ECT) if again else spec.ECT
        return Frame(header, lanes, "10.0.0.1", f"10.0.{worker.head + 1}.254", tos=tos).pack()

    # ---------------------------------------------------------------- time

    def at(self, time: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), act))

    def run(self) -> Counts:
        """Sum one vector at every worker. AssertionError if a result is wrong, or the sum does not end."""
        limit = self.setup.late + OVERRUN * (self.setup.fragments + self.setup.round_trip)
        while any(worker.done < self.setup.fragments for worker in self.workers):
            self.now, _, act = heapq.heappop(self._events)
            assert self.now < limit, f"not done: {[worker.done for worker in self.workers]}"
            act()
        self.counts.time = self.now
        self.counts.frames = sum(link.frames for link in self._links.values())
        return self.counts

    def pump(self, end: Recovery) -> None:
        """Send one packet on a worker's link if that is free, and continue when it becomes free again."""
        link = self._link(end.worker.number, -1)
        if link.free_at > self.now:
            return  # pump runs again when the link becomes free
        packet = next(end.packets(), None)
        if packet is None:
            return
        port = end.worker.number % self.setup.members + 1
        self._send(link, lambda: self._at_head(end.worker.head, port, packet))
        self.at(link.free_at, lambda: self.pump(end))

    def _link(self, start: int, end: int) -> Link:
        return self._links.setdefault((start, end), Link())

    def _send(self, link: Link, arrive: Callable[[], None]) -> None:
        """Send a frame on a link: it waits its turn, occupies the link for a unit of time, and arrives
        or is lost.
        """
        draw, setup = self._random, self.setup
        if link.free_at - self.now > setup.queue:
            self.counts.overflowed += 1
            return
        link.free_at = max(link.free_at, self.now) + 1
        link.frames += 1
        for _ in range(1 + (draw.random() < setup.repeat)):
            if draw.random() >= setup.loss:
                held = draw.random() * setup.jitter if setup.jitter else 0.0
                self.at(link.free_at + setup.delay + held, arrive)

    # ---------------------------------------------------------------- nodes

    def _at_head(self, head: int, port: int, packet: Packet) -> None:
        place = self._heads[head]
        if isinstance(packet, Question):
            self._question_at_head(head, packet)
            return
        for emission in place.receive(packet, port)[1]:
            for left_by in emission.ports or ():
                self._leave_head(head, left_by, emission.data)

    def _leave_head(self, head: int, port: int, packet: Packet) -> None:
        first = head * self.setup.members
        if port == UP:
            self._send(self._link(1000 + head, 2000), lambda: self._at_top(head, packet))
        else:
            number = first + port - 1
            self._send(self._link(-1, number), lambda: self._at_worker(number, packet))

    def _at_top(self, head: int, packet: Packet) -> None:
        if isinstance(packet, Question):
            bit = 1 << head * self.setup.members
            answer = self._filled(self._top, packet, bit)
            self._leave_top(head, replace(answer, answered=True))
            return
        for emission in self._top.receive(packet, head + 1)[1]:
            for left_by in emission.ports or ():
                self._leave_top(left_by - 1, emission.data)

    def _leave_top(self, head: int, packet: Packet) -> None:
        self._send(self._link(2000, 1000 + head), lambda: self._at_head(head, UP, packet))

    def _filled(self, place: Aggregator, question: Question, bit: int) -> Question:
        """Fill in the states that a place knows: all at the first place, then those sent to this one."""
        states = list(question.states or [State.SUMMED] * question.count)
        for offset, state in enumerate(states):
            fragment = question.first + offset
            if state is State.SUMMED:
                states[offset] = state_of(place.slot(fragment % self.setup.size), fragment, bit)
        return replace(question, states=tuple(states))

    def _question_at_head(self, head: int, question: Question) -> None:
        if not question.answered:
            question = self._filled(self._heads[head], question, 1 << question.worker)
            if question.goes_up and State.SUMMED in question.states:
                self._leave_head(head, UP, question)
                return
        self._leave_head(head, question.worker % self.setup.members + 1, replace(question, answered=True))

    def _at_worker(self, number: int, packet: Packet) -> None:
        worker, end = self.workers[number], self._ends[number]
        if isinstance(packet, Question):
            end.on_answer(packet)
            self.pump(end)
            return
        frame = Frame.parse(packet, LANES)
        fragment = frame.header.fragment
        assert frame.header.op == spec.Op.RESULT
        assert (frame.lanes == self._sums[fragment]).all(), f"worker {number}: fragment {fragment} is wrong"
        if fragment in worker.arrived:
            return
        worker.arrived.add(fragment)
        while worker.done in worker.arrived:
            worker.done += 1
        end.on_result(fragment, frame.tos >> 2 == spec.DSCP_REPEATED)
        self.pump(end)
