"""Owned trees in random networks: every sum and parameter exact, once and in order, no room overflowed, and
an end to it, whatever is lost, repeated, overtaken or restarted.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from testbed.systems.luwu.owned import Beat, Lanes, OverflowedError, OwnedPlace, OwnedSender, Receiver

TOP = "top"
_DEADLINE = 60_000  # steps of the clock


@dataclass
class World:
    """Two pods below a top, the owner above; `faults` is the rate of losses, and of repetitions."""

    seed: int
    faults: float
    resets: float
    delay: int = 20
    fragments: int = 60
    size: int = 8
    workers: tuple[tuple[int, ...], ...] = ((0, 1, 2), (3, 4))
    now: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.ranks = [rank for pod in self.workers for rank in pod]
        value = self.draw.randrange
        self.gradients = {r: [(value(1000), value(1000)) for _ in range(self.fragments)] for r in self.ranks}
        self.parameters = [(value(1 << 32),) for _ in range(self.fragments)]
        self.pods = [OwnedPlace(pod, self.size) for pod in self.workers]
        self.top = OwnedPlace((pod[0] for pod in self.workers), self.size)
        self.pushes = {rank: OwnedSender(self.gradients[rank], 90 + 40 * rank) for rank in self.ranks}
        self.broadcast = OwnedSender(self.parameters, 90)
        self.sums = Receiver(self.draw.randint(1, self.size))
        self.rooms = {rank: Receiver(self.draw.randint(1, 2 * self.size)) for rank in self.ranks}
        self.got_sums: list[Lanes] = []
        self.got: dict[int, list[Lanes]] = {rank: [] for rank in self.ranks}
        self.slowness = {rank: self.draw.choice((0.02, 0.2, 0.9)) for rank in [-1, *self.ranks]}
        self.wire: list[tuple[int, int, str, int, tuple[int, Lanes] | Beat]] = []
        self.number = 0

    def put(self, kind: str, where: int, what: tuple[int, Lanes] | Beat) -> None:
        """Give the network a packet, which has its fate."""
        for _ in range(1 + (self.draw.random() < self.faults)):
            if self.draw.random() >= self.faults:
                self.number += 1
                late = self.now + self.draw.randint(1, self.delay)
                heapq.heappush(self.wire, (late, self.number, kind, where, what))

    def run(self) -> None:
        while not self.is_done():
            assert self.now < _DEADLINE, (self.sums.beat, {r: room.beat for r, room in self.rooms.items()})
            self.now += 1
            while self.wire and self.wire[0][0] <= self.now:
                _, _, kind, where, what = heapq.heappop(self.wire)
                getattr(self, kind)(where, what)
            if self.draw.random() < self.resets:
                self.draw.choice([self.top, *self.pods]).reset()
            self.ends()
        self.settle()

    def is_done(self) -> bool:
        return (
            self.broadcast.is_done
            and all(push.is_done for push in self.pushes.values())
            and len(self.got_sums) == self.fragments
            and all(len(got) == self.fragments for got in self.got.values())
        )

    def settle(self) -> None:
        """Deliver what is still on the wire, which changes nothing."""
        while self.wire:
            self.now, _, kind, where, what = heapq.heappop(self.wire)
            getattr(self, kind)(where, what)
        assert self.sums.take() is None
        assert not any(room.take() for room in self.rooms.values())

    def ends(self) -> None:
        for rank in self.ranks:
            if packet := self.pushes[rank].send(self.now):
                self.put("push", rank, packet)
            if self.draw.random() < self.slowness[rank] and (lanes := self.rooms[rank].take()):
                self.got[rank].append(lanes)
            if self.now % 10 == 0:
                self.put("parameter_beat", rank, self.rooms[rank].beat)
        if packet := self.broadcast.send(self.now):
            for rank in self.ranks:
                self.put("parameter", rank, packet)
        if self.draw.random() < self.slowness[-1] and (lanes := self.sums.take()):
            self.got_sums.append(lanes)
        if self.now % 10 == 0:
            for rank in self.ranks:
                self.put("gradient_beat", rank, self.sums.beat)

    # ------------------------------------------------------------------ what arrives

    def pod_of(self, rank: int) -> int:
        return next(number for number, pod in enumerate(self.workers) if rank in pod)

    def push(self, rank: int, packet: tuple[int, Lanes]) -> None:
        pod = self.pod_of(rank)
        verdict, lanes = self.pods[pod].contribute(rank, *packet)
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        if lanes is not None:
            self.put("partial", self.workers[pod][0], (packet[0], lanes))

    def partial(self, member: int, packet: tuple[int, Lanes]) -> None:
        _, lanes = self.top.contribute(member, *packet)
        if lanes is not None:
            self.put("sum", 0, (packet[0], lanes))

    def sum(self, _: int, packet: tuple[int, Lanes]) -> None:
        self.sums.receive(*packet)

    def parameter(self, rank: int, packet: tuple[int, Lanes]) -> None:
        self.rooms[rank].receive(*packet)

    def gradient_beat(self, rank: int, beat: Beat) -> None:
        self.pushes[rank].hear(beat, self.now)

    def parameter_beat(self, rank: int, beat: Beat) -> None:
        pod = self.pod_of(rank)
        if (least := self.pods[pod].hear(rank, beat)) is not None:
            self.put("pod_beat", self.workers[pod][0], least)

    def pod_beat(self, member: int, beat: Beat) -> None:
        if (least := self.top.hear(member, beat)) is not None:
            self.put("top_beat", 0, least)

    def top_beat(self, _: int, beat: Beat) -> None:
        self.broadcast.hear(beat, self.now)


def _exact(world: World) -> None:
    rows = zip(*(world.gradients[rank] for rank in world.ranks), strict=True)
    assert world.got_sums == [tuple(map(sum, zip(*row, strict=True))) for row in rows]
    for got in world.got.values():
        assert got == world.parameters


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("faults", "resets"), [(0, 0), (0.02, 0), (0.2, 0), (0.05, 0.003)])
def test_everything_arrives_once_and_exact(seed: int, faults: float, resets: float) -> None:
    world = World(seed, faults, resets)
    world.run()
    _exact(world)


def test_a_resent_gradient_of_a_finished_sum_sends_it_again() -> None:
    place = OwnedPlace([0, 1], 2)
    assert place.contribute(0, 0, (1,)) == ("aggregated", None)
    assert place.contribute(0, 0, (1,)) == ("duplicate", None)
    assert place.contribute(1, 0, (2,)) == ("completed", (3,))
    assert place.contribute(0, 0, (1,)) == ("resent", (3,))
    assert place.contribute(0, 2, (4,)) == ("aggregated", None)
    assert place.contribute(1, 0, (2,)) == ("stale", None)
    assert place.contribute(0, 4, (5,)) == ("aggregated", None), "an older one gives way, incomplete as it is"


def test_a_minimum_goes_up_when_all_were_heard_and_grows_with_the_slowest() -> None:
    place = OwnedPlace([3, 5], 2)
    assert place.hear(5, (4, 9)) is None
    assert place.hear(3, (2, 12)) == (2, 9)
    assert place.hear(5, (6, 9)) is None
    assert place.hear(3, (1, 8)) == (2, 9), "overtaken, and the lowest member's"
    assert place.hear(5, (6, 14)) == (2, 12)
    place.reset()
    assert place.hear(3, (7, 12)) is None


def test_a_sender_waits_for_credit_and_goes_back_to_what_is_missing() -> None:
    sender = OwnedSender([(n,) for n in range(9)], 10)
    assert sender.send(0) is None
    sender.hear((0, 8), 1)
    assert [sender.send(1) for _ in range(9)] == [*((n, (n,)) for n in range(8)), None]
    sender.hear((1, 8), 5)
    sender.hear((0, 1), 6)
    assert sender.credit == 8, "overtaken"
    assert sender.send(14) is None
    assert [sender.send(15) for _ in range(2)] == [(1, (1,)), None]
    sender.hear((2, 9), 16)  # the gap was wider: twice as many, and what is new
    assert [sender.send(16) for _ in range(4)] == [(2, (2,)), (3, (3,)), (8, (8,)), None]
    sender.hear((8, 9), 17)
    assert sender.send(17) is None, "what was under way then is acknowledged"


def test_a_receiver_without_room_says_so() -> None:
    receiver = Receiver(2)
    assert receiver.receive(1, (1,))
    assert receiver.beat == (0, 2)
    with pytest.raises(OverflowedError, match="fragment 2; room is before 2"):
        receiver.receive(2, (2,))
    assert receiver.receive(0, (0,))
    assert not receiver.receive(1, (1,)), "held"
    assert receiver.beat == (2, 2)
    assert receiver.take() == (0,)
    assert not receiver.receive(0, (0,)), "taken"
    assert receiver.beat == (2, 3)
