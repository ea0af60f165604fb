"""Simulate workers that keep the window of docs/protocol.md over a network that loses, repeats and reorders
packets between the places of a tree. A seed draws the steps.

Workers check every result: a wrong sum fails at once, a missing one when the steps are used up.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testbed.aggregation.entries import NO_IP, Entry, Sender
from testbed.reference_model.aggregator import ETH0, LOOP_PORT
from testbed.reference_model.output_ports import Route
from testbed.systems.trio.terms import BlockTerms
from testbed.topology.addresses import CONTROL_PORT, LOOP_PLACE_IP, LOOP_WORKER_IP
from testbed.wire import spec
from testbed.wire.codec import Header
from testbed.wire.frame import NO_LANES, Frame
from tests.vectors.build import GENERATION, GROUP_IP, JOB, OPTICAL, Lanes
from tests.vectors.run import Subject

HOST = -1  # the node that is a host, at HOST_PORT of unit 0's switch
HOST_PORT = 8
HOST_IP = "10.0.1.9"
BASES = {0: 16, 1: 80, 2: 240, HOST: 400}  # where each node's segment begins
STEPS = 30_000
CALM, FULL = 40, 300  # frames under way: above CALM workers stop sending, from FULL on the next frame is lost


@dataclass(frozen=True, slots=True)
class Weather:
    """How the network behaves: shares of frames lost and repeated, whether frames overtake each other, and
    how often places are ticked.
    """

    loss: float
    repeat: float
    reorders: bool
    seed: int
    ticks: float = 0.0
    sleeps: float = 0.0  # share of worker 0's turns in which it does nothing


@dataclass(frozen=True, slots=True)
class Shape:
    """A tree over up to three units' switches, and a host at the first. `units`: workers by unit; `above`:
    the unit whose switch is above, None for the top. With `host` the top is a host above the first unit's
    switch, and with `own` it runs a worker.
    """

    units: tuple[int, ...]
    above: tuple[int | None, ...]
    host: bool = False
    own: bool = False


SHAPES = (
    Shape((2,), (None,)),
    Shape((3,), (None,)),
    Shape((7,), (None,)),
    Shape((1, 1), (None, None), host=True),
    Shape((2, 1), (None, None), host=True),
    Shape((2, 3), (None, None), host=True, own=True),
    Shape((2, 2), (None, 0)),  # over switches only
    Shape((0, 2, 1), (None, 0, 0)),
    Shape((1, 1, 2), (None, 0, 1)),  # three switches deep
    Shape((1, 2, 1), (None, 0, 1), host=True),
    Shape((2,), (None,), host=True, own=True),
)


@dataclass(slots=True)
class Worker:
    """One worker's window: the fragments done, pushed and arrived."""

    number: int
    node: int
    port: int
    done: int = 0
    pushed: int = 0
    arrived: set[int] = field(default_factory=set)


def unit_ip(unit: int) -> str:
    return f"10.0.{unit + 1}.254"


def way_to(unit: int) -> int:
    """Return the port by which any other switch reaches this unit's."""
    return OPTICAL[0] + unit


class World:
    """A job over a tree. `make(node, ip, is_host)` makes the subject of a switch (node = unit) or of the host
    (node = HOST).
    """

    def __init__(
        self,
        shape: Shape,
        fragments: int,
        size: int,
        weather: Weather,
        make: Callable[[int, str, bool], Subject],
        lanes: Callable[[int, int], Lanes],
        takes_empties: bool = True,
        blocks: bool = False,
    ) -> None:
        """With `blocks`, places sum by block records; `size` is then how many results are kept."""
        self._takes_empties, self._blocks = takes_empties and not blocks, blocks
        self._shape, self._fragments, self._size, self._weather, self._lanes = (
            shape,
            fragments,
            size,
            weather,
            lanes,
        )
        self._random = random.Random(weather.seed)
        self._places = random.Random(weather.seed + 1).sample(range(size), size)
        seats = [(unit, port + 1) for unit, count in enumerate(shape.units) for port in range(count)]
        seats += [(HOST, LOOP_PORT)] if shape.own else []
        self.workers = [Worker(number, *seat) for number, seat in enumerate(seats)]
        self._flying: list[tuple[int, int, bytes]] = []  # node, port, frame
        self._late: list[tuple[int, int, bytes]] = []  # repeated frames that arrive much later
        self._results: dict[int, Lanes] = {}  # by fragment, the first result that a worker got
        nodes = [*range(len(shape.units)), *([HOST] if shape.host else [])]
        self._subjects = {node: make(node, self._ip(node), node == HOST) for node in nodes}
        self.verdicts: dict[str, int] = {}
        self.entries = {node: self._entry(node) for node in nodes if self._contributors(node)}
        for node in nodes:
            self._admit(node)

    # ------------------------------------------------------------------ the tree

    def _ip(self, node: int) -> str:
        return HOST_IP if node == HOST else unit_ip(node)

    def _above(self, node: int) -> int | None:
        if node == HOST:
            return None
        return HOST if self._shape.host and self._shape.above[node] is None else self._shape.above[node]

    def _below(self, node: int) -> list[int]:
        places = range(len(self._shape.units))
        return [other for other in places if self._above(other) == node and self._contributors(other)]

    def _workers(self, node: int) -> list[Worker]:
        return [worker for worker in self.workers if worker.node == node]

    def _contributors(self, node: int) -> list[int]:
        """Return the numbers of the workers and places that a place sums; a place's number is its
        lowest rank.
        """
        mine = [worker.number for worker in self._workers(node)]
        return mine + [self._number(other) for other in self._below(node)]

    def _number(self, node: int) -> int:
        return min(self._contributors(node))

    def _top(self) -> int:
        return HOST if self._shape.host else 0

    def _entry(self, node: int) -> Entry:
        above = self._above(node)
        by_blocks: dict[str, Any] = {}
        if self._blocks:
            levels = self._levels()
            window = self._size // 2
            ahead = (self._size + (levels - 1) * window) // levels
            terms = BlockTerms(window, (window, 0), (self._size, 0), (ahead, 0))
            by_blocks = {"program": "blocks", "terms": terms}
        return Entry(
            tree=0,
            generation=GENERATION,
            workers=sum(1 << worker.number for worker in self._workers(node)),
            places=sum(1 << self._number(other) for other in self._below(node)),
            number=self._number(node),
            base=self._base(node),
            size=self._size,
            up_base=0 if above is None else self._base(above),
            result_base=self._base(self._top()),
            self_ip=self._ip(node),
            up_ip=NO_IP if above is None else self._ip(above),
            group_ip=GROUP_IP,
            lanes=spec.LANES,
            **by_blocks,
        )

    def _levels(self) -> int:
        """Return the tree's depth in places."""
        depths = []
        for node in self._subjects:
            depth = 1
            while (above := self._above(node)) is not None:
                node, depth = above, depth + 1
            depths.append(depth)
        return max(depths)

    def _base(self, node: int) -> int:
        return 0 if self._blocks else BASES[node]

    def _admit(self, node: int) -> None:
        subject, workers = self._subjects[node], self._workers(node)
        if node == HOST:
            ports = [ETH0, *(worker.port for worker in workers)]
        else:
            # if the parameter server is a host, the first unit's switch passes its results on to all units
            below = self._below(HOST) if self._shape.host and node == 0 else []
            below = [*below, *self._below(node)]
            ports = [
                *(worker.port for worker in workers),
                *(way_to(other) for other in below if other != node),
            ]
            subject.set_routes(
                {
                    (HOST_IP, 32): Route(HOST_PORT if node == 0 else way_to(0)),
                    **{
                        (f"10.0.{other + 1}.0", 24): Route(way_to(other))
                        for other in range(3)
                        if other != node
                    },
                }
            )
            subject.bind(HOST_PORT, [Sender(JOB, None, True)] if self._shape.host and node == 0 else [])
        for worker in workers:
            subject.bind(worker.port, [Sender(JOB, worker.number)])
        subject.set_group(JOB, 0, ports)
        if node in self.entries:
            subject.admit(JOB, self.entries[node])

    # ------------------------------------------------------------------ a run

    def run(self) -> None:
        """Run until every worker has every result."""
        for _ in range(STEPS):
            idle = [worker for worker in self.workers if worker.done < self._fragments]
            if not idle:
                return
            if self._random.random() < self._weather.ticks:
                self._tick(min(worker.done for worker in idle), max(worker.done for worker in idle))
            elif self._flying and (len(self._flying) > CALM or self._random.random() < 0.8):
                self._deliver()
            else:
                worker = self._random.choice(idle)
                if worker.number or self._random.random() >= self._weather.sleeps:
                    self._send(worker)
        raise AssertionError(
            f"not done after {STEPS} steps: {[worker.done for worker in self.workers]}, {self.verdicts}"
        )

    def _tick(self, done: int, most: int) -> None:
        """Tick a random place, for a fragment that a slot may wait with: one that the slowest worker may push
        by now, or an older one whose push came after its result had passed, and which no worker repeats.
        """
        node, entry = self._random.choice(list(self.entries.items()))
        oldest = self._random.choice([0, done])
        until = most if self._blocks else done
        fragment = self._random.randrange(oldest, until + max(1, self._size // 2))
        header = Header(
            spec.Op.TICK,
            JOB,
            0,
            0,
            GENERATION,
            entry.base + self._places[fragment % self._size],
            fragment,
            0,
            age=11,
        )
        empty = np.zeros(spec.LANES, np.uint32)
        self._receive(node, CONTROL_PORT, Frame(header, empty, self._ip(node), self._ip(node)).pack())

    def _send(self, worker: Worker) -> None:
        """Push a new fragment if the window allows, else repeat one without a result, as a timer would."""
        limit = min(worker.done + self._size // 2, self._fragments)
        again = worker.pushed >= limit or (worker.pushed > worker.done and self._random.random() < 0.1)
        if again:
            missing = [each for each in range(worker.done, worker.pushed) if each not in worker.arrived]
            fragment = self._random.choice(missing)
        else:
            fragment, worker.pushed = worker.pushed, worker.pushed + 1
        lanes = self._pushed(worker, fragment)
        header = Header(
            spec.Op.PUSH if lanes.size else spec.Op.EMPTY,
            JOB,
            worker.number,
            1,
            GENERATION,
            self._base(worker.node) + self._places[fragment % self._size],
            fragment,
            spec.LANES,
            spec.Flag.RETRANSMIT if again else 0,
        )
        loop = worker.node == HOST
        source = LOOP_WORKER_IP if loop else f"10.0.{worker.node + 1}.{worker.port}"
        to_ip = LOOP_PLACE_IP if loop else unit_ip(worker.node)
        self._fly(
            worker.node,
            worker.port,
            Frame(header, lanes, source, to_ip).pack(),
        )

    def _pushed(self, worker: Worker, fragment: int) -> Lanes:
        """Return a worker's lanes of a fragment; for a third of the pushes to switches, none (an empty
        push).
        """
        if self._takes_empties and worker.node != HOST and (worker.number + fragment) % 3 == 0:
            return NO_LANES
        return self._lanes(worker.number, fragment)

    def _fly(self, node: int, port: int, data: bytes) -> None:
        if self._random.random() < self._weather.loss or len(self._flying) >= FULL:
            return
        self._flying.append((node, port, data))
        if self._random.random() < self._weather.repeat:
            (self._late if self._weather.reorders else self._flying).append((node, port, data))

    def _deliver(self) -> None:
        reorders = self._weather.reorders
        held = self._late if self._late and self._random.random() < 0.05 else self._flying
        self._receive(*held.pop(self._random.randrange(len(held)) if reorders else 0))

    def _receive(self, node: int, port: int, data: bytes) -> None:
        verdict, emissions = self._subjects[node].receive(data, port)
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
        for emission in emissions:
            assert emission.ports is not None, emission.to
            for left_by in emission.ports:
                self._leave(node, left_by, emission.data)

    def _leave(self, node: int, port: int, data: bytes) -> None:
        """Send a frame by a port, to another unit, the host or a worker."""
        if node == HOST and port == ETH0:
            self._fly(0, HOST_PORT, data)
        elif port == HOST_PORT:
            self._fly(HOST, ETH0, data)
        elif OPTICAL[0] <= port < OPTICAL[0] + len(self._shape.units):
            self._fly(port - OPTICAL[0], way_to(node), data)
        else:
            (worker,) = (worker for worker in self.workers if (worker.node, worker.port) == (node, port))
            self._take(worker, data)

    def _take(self, worker: Worker, data: bytes) -> None:
        """Check and count a result at its worker; its link loses frames too."""
        packet = Frame.parse(data)
        header, fragment = packet.header, packet.header.fragment
        if header.op == spec.Op.NOTICE or self._random.random() < self._weather.loss:
            return
        assert header.op == spec.Op.RESULT
        same = self._results.setdefault(fragment, packet.lanes)
        assert (packet.lanes == same).all(), f"worker {worker.number}: another result of fragment {fragment}"
        assert bool(header.flags & spec.Flag.DEGRADED) == (header.contributors < len(self.workers))
        assert self._is_sum(packet), f"worker {worker.number}: fragment {fragment} is wrong"
        assert not self._blocks or fragment < worker.done + self._size, "a result that is not taken is lost"
        worker.arrived.add(fragment)
        while worker.done in worker.arrived:
            worker.done += 1

    def _is_sum(self, packet: Frame) -> bool:
        """Return whether a result is the sum of as many workers' lanes as it says; of all workers' if places
        are never ticked.
        """
        count = packet.header.contributors
        assert self._weather.ticks or count == len(self.workers)
        pushed = [self._pushed(worker, packet.header.fragment) for worker in self.workers]
        parts = [(lanes if lanes.size else np.zeros(spec.LANES)).astype(np.uint64) for lanes in pushed]
        subsets = itertools.combinations(parts, count)
        return any((sum(subset) % 2**32 == packet.lanes).all() for subset in subsets)  # type: ignore[union-attr]
