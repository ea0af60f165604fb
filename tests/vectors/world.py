"""Workers that keep docs/protocol.md's window, and a network that loses, repeats and reorders, around any
engines. A seed draws the steps.

Workers check every result that reaches them: a wrong sum fails at once, a sum that never comes when the steps
are used up.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.contract import spec
from testbed.contract.codec import Header
from testbed.contract.frame import Frame
from testbed.inc.job import Job, Role, Sender
from testbed.simulation.ways import Route, To
from tests.vectors.build import GENERATION, GROUP_IP, JOB, Lanes
from tests.vectors.run import Engine

PS_PORT, UPLINK = 9, 201  # the PS sits at the first unit's switch; each switch has one port to all others
PS_IP = "10.0.1.9"
BASES = (16, 80, 400)  # of the units' segments and the PS's, all different
STEPS = 30_000
CALM, FULL = 40, 300  # frames under way: more than that and nobody sends, or and the next is lost


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network does: shares of frames lost and repeated, and whether frames overtake each other."""

    loss: float
    repeat: float
    reorders: bool
    seed: int


@dataclass(slots=True)
class Worker:
    """One worker's end: how far it is, and what it has under way."""

    number: int
    unit: int
    port: int
    done: int = 0
    pushed: int = 0
    arrived: set[int] = field(default_factory=set)


def _network(unit: int) -> str:
    return f"10.0.{unit + 1}.0"


def unit_ip(unit: int) -> str:
    return f"10.0.{unit + 1}.254"


class World:
    """A job over one or two units. `make(node, ip, is_host)` gives the engine of a switch (node = unit) or of
    the PS host (node = -1).
    """

    def __init__(
        self,
        units: Sequence[int],
        fragments: int,
        size: int,
        weather: Weather,
        make: Callable[[int, str, bool], Engine],
        lanes: Callable[[int, int], Lanes],
    ) -> None:
        self._units, self._fragments, self._size, self._weather, self._lanes = (
            units,
            fragments,
            size,
            weather,
            lanes,
        )
        self._random = random.Random(weather.seed)
        self._places = random.Random(weather.seed + 1).sample(range(size), size)
        placed = [unit for unit, count in enumerate(units) for _ in range(count)]
        ports = [at for count in units for at in range(count)]
        self.workers = [
            Worker(n, unit, port + 1) for n, (unit, port) in enumerate(zip(placed, ports, strict=True))
        ]
        self._flying: list[tuple[int, int, bytes]] = []  # node, port, frame
        self._late: list[tuple[int, int, bytes]] = []  # copies that arrive long after
        self._engines = {unit: make(unit, unit_ip(unit), False) for unit in range(len(units))}
        self.verdicts: dict[str, int] = {}
        if len(units) > 1:
            self._engines[-1] = make(-1, PS_IP, True)
        self._admit()

    def _admit(self) -> None:
        across, total = len(self._units) > 1, len(self.workers)
        for unit in range(len(self._units)):
            mine = [worker for worker in self.workers if worker.unit == unit]
            members = sum(1 << worker.number for worker in mine)
            role, up_ip, up_base = (Role.PARTIAL, PS_IP, BASES[-1]) if across else (Role.FINAL, "0.0.0.0", 0)
            job = Job(
                members,
                GENERATION,
                role,
                BASES[unit],
                self._size,
                total,
                len(mine),
                unit,
                up_base,
                unit_ip(unit),
                up_ip,
                GROUP_IP,
            )
            for worker in mine:
                self._engines[unit].bind(worker.port, [Sender(JOB, worker.number)])
            # across units the parameter server is at the first unit's switch, and results go on from there
            self._engines[unit].set_group(
                JOB, [*(worker.port for worker in mine), *([UPLINK] if across and not unit else [])]
            )
            self._engines[unit].set_routes(
                {(PS_IP, 32): Route(UPLINK if unit else PS_PORT), (_network(1 - unit), 24): Route(UPLINK)}
            )
            self._engines[unit].admit(JOB, job)
        if across:
            members = (1 << len(self._units)) - 1
            count = len(self._units)
            job = Job(
                members,
                GENERATION,
                Role.FINAL,
                BASES[-1],
                self._size,
                total,
                count,
                0,
                0,
                PS_IP,
                "0.0.0.0",
                GROUP_IP,
            )
            self._engines[0].bind(PS_PORT, [Sender(JOB, None)])
            self._engines[-1].admit(JOB, job)

    # ------------------------------------------------------------------ a run

    def run(self) -> None:
        """Until every worker has every result."""
        for _ in range(STEPS):
            idle = [worker for worker in self.workers if worker.done < self._fragments]
            if not idle:
                return
            if self._flying and (len(self._flying) > CALM or self._random.random() < 0.8):
                self._deliver()
            else:
                self._send(self._random.choice(idle))
        raise AssertionError(
            f"not done after {STEPS} steps: {[worker.done for worker in self.workers]}, {self.verdicts}"
        )

    def _send(self, worker: Worker) -> None:
        """Something new if the window lets it, or else what has no result yet, as a timer would."""
        limit = min(worker.done + self._size // 2, self._fragments)
        again = worker.pushed >= limit or (worker.pushed > worker.done and self._random.random() < 0.1)
        if again:
            missing = [each for each in range(worker.done, worker.pushed) if each not in worker.arrived]
            fragment = self._random.choice(missing)
        else:
            fragment, worker.pushed = worker.pushed, worker.pushed + 1
        header = Header(
            spec.Op.PUSH, JOB, worker.number, 1, GENERATION,
            BASES[worker.unit] + self._places[fragment % self._size], fragment, spec.LANES,
            spec.Flag.RETRANSMIT if again else 0,
        )  # fmt: skip
        source = f"10.0.{worker.unit + 1}.{worker.port}"
        made = Frame(header, self._lanes(worker.number, fragment), source, unit_ip(worker.unit))
        self._fly(worker.unit, worker.port, made.pack())

    def _fly(self, node: int, port: int, data: bytes) -> None:
        if self._random.random() < self._weather.loss or len(self._flying) >= FULL:
            return
        self._flying.append((node, port, data))
        if self._random.random() < self._weather.repeat:
            (self._late if self._weather.reorders else self._flying).append((node, port, data))

    def _deliver(self) -> None:
        reorders = self._weather.reorders
        held = self._late if self._late and self._random.random() < 0.05 else self._flying
        node, port, data = held.pop(self._random.randrange(len(held)) if reorders else 0)
        verdict, emissions = self._engines[node].receive(data, port)
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
        for emission in emissions:
            if node == -1:
                assert emission.to is To.BACK, "a PS host sends by the one port that it has"
                self._fly(0, PS_PORT, emission.data)
            else:
                assert emission.ports is not None, emission.to
                for left_by in emission.ports:
                    self._leave(node, left_by, emission.data)

    def _leave(self, node: int, port: int, data: bytes) -> None:
        """By a port: to the other unit, the PS, or a worker."""
        if port == UPLINK:
            self._fly(1 - node, UPLINK, data)
        elif port == PS_PORT:
            self._fly(-1, 1, data)
        else:
            (worker,) = (worker for worker in self.workers if (worker.unit, worker.port) == (node, port))
            self._take(worker, data)

    def _take(self, worker: Worker, data: bytes) -> None:
        """A worker's end of the link, which loses as well."""
        packet = Frame.parse(data)
        if packet.header.op == spec.Op.NOTICE or self._random.random() < self._weather.loss:
            return
        fragment = packet.header.fragment
        expected = sum(self._lanes(each.number, fragment).astype(np.uint64) for each in self.workers) % 2**32
        assert packet.header.op == spec.Op.RESULT
        assert packet.header.contributors == len(self.workers)
        assert (packet.lanes == expected).all(), f"worker {worker.number}: fragment {fragment} is wrong"
        worker.arrived.add(fragment)
        while worker.done in worker.arrived:
            worker.done += 1
