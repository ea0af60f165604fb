"""The reference model and another engine in step: whatever one gets the other gets, and what they say, send
and hold must be the same.

What is given to both: whole jobs in all weathers, schedules that keep no window, malformed and adversarial
packets. An engine's module says how one is made; this one says what is done with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from testbed.contract import frame, spec
from testbed.contract.frame import Frame
from testbed.inc.job import Job, Sender
from testbed.simulation.aggregator import Slot
from testbed.simulation.ways import Emission, Outcome, Route, To
from tests.vectors import mutations
from tests.vectors.build import (
    BASE,
    JOB,
    OPTICAL,
    PS_IP,
    ROUTES,
    SIZE,
    SLOTS,
    TOR_IP,
    UP_BASE,
    Lanes,
    job_across,
    job_at_ps,
    job_in_unit,
    lanes,
    partial,
    push,
    result_from_ps,
    worker_lanes,
)
from tests.vectors.good import OTHER, OTHER_BASE, OTHER_GENERATION, OTHER_UP_BASE, at_ps, at_switch
from tests.vectors.run import Engine, Model
from tests.vectors.world import Weather, World

STEPS = 400
PS_PORT = 8  # of the parameter server, where it sits at the switch
TRIED = ("worlds", "schedules", "mutated")  # methods of Trial
MUTATIONS = 16_000  # at a switch and a PS host together


@dataclass(frozen=True, slots=True)
class Held:
    """What an engine's slot holds. `lanes` None: the engine does not tell."""

    generation: int
    fragment: int
    members: int
    complete: bool
    final: bool
    lanes: Lanes | None


class Tried(Engine, Protocol):
    """An engine whose slots can be looked at."""

    def slots_held(self) -> list[Held | None]: ...
    def slot_held(self, at: int) -> Held | None: ...


# (node, is_host): node 0 and 1 are switches, -1 a PS host. An engine with nothing in it.
Make = Callable[[int, bool], AbstractContextManager[Tried]]


class Tally:
    """How often each verdict was given."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, verdict: str) -> None:
        self.counts[verdict] = self.counts.get(verdict, 0) + 1


class Both:
    """An engine of the vectors that is two. Answers with the model's answer."""

    def __init__(self, model: Model, other: Tried, count: Callable[[str], None]) -> None:
        self._model, self._other, self._count = model, other, count

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        senders = list(senders)
        self._model.bind(port, senders)
        self._other.bind(port, senders)

    def set_group(self, number: int, ports: Sequence[int]) -> None:
        self._model.set_group(number, ports)
        self._other.set_group(number, ports)

    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None:
        self._model.set_routes(routes)
        self._other.set_routes(routes)

    def admit(self, number: int, job: Job) -> None:
        self._model.admit(number, job)
        self._other.admit(number, job)

    def release(self, number: int) -> None:
        self._model.release(number)
        self._other.release(number)

    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]:
        verdict, emissions = self._model.receive(data, port)
        other, left = self._other.receive(data, port)
        wrong = difference((verdict, emissions), (other, left))
        assert not wrong, f"{wrong}; port {port}, {data[:90].hex()}"
        self._count(verdict)
        return verdict, emissions

    def compare_slots(self) -> None:
        """Every slot's state."""
        for at, theirs in enumerate(self._other.slots_held()[:SLOTS]):
            assert not slot_difference(self._model.slot(at), theirs), f"slot {at}"


def slot_difference(mine: Slot, theirs: Held | None) -> str:
    """How what a slot holds differs from the model's."""
    if mine.generation is None or theirs is None:
        return "" if mine.generation is None and theirs is None else "empty for one of them"
    told = (theirs.generation, theirs.fragment, theirs.members, theirs.complete, theirs.final)
    if told != (mine.generation, mine.fragment, mine.members, mine.complete, mine.final):
        return f"{told}"
    return "" if theirs.lanes is None or (theirs.lanes == mine.lanes).all() else "other lanes"


def difference(model: Outcome, other: Outcome) -> str:
    """How another engine's outcome differs from the model's; empty where it does not. Ports are compared
    where both say them.
    """
    (verdict, emissions), (said, left) = model, other
    if said != verdict:
        return f"the other says {said}, the model {verdict}"
    if len(left) != len(emissions):
        return f"{verdict}: {len(left)} frames left, {len(emissions)} from the model"
    for mine, theirs in zip(emissions, left, strict=True):
        if mine.ports is None or theirs.ports is None:
            if theirs.to is not mine.to:
                return f"{verdict}: left to {theirs.to.value}, from the model to {mine.to.value}"
        elif (mine.ports, mine.to is To.STACK) != (theirs.ports, theirs.to is To.STACK):
            return f"{verdict}: left by the ports {theirs.ports}, from the model by {mine.ports}"
        if mine.data != theirs.data and not (_same(mine.data, theirs.data) and _same_mac(mine, theirs)):
            return f"{verdict}: {theirs.data[:90].hex()} left, not {mine.data[:90].hex()}"
    return ""


def _same_mac(mine: Emission, theirs: Emission) -> bool:
    """The destination's: where a frame goes by a route that the model does not have, it is the fabric's."""
    return mine.data[:6] == theirs.data[:6] or (mine.to is To.ROUTE and mine.ports is None)


def _same(mine: bytes, theirs: bytes) -> bool:
    """All but the MAC addresses, which are the fabric's; of a packet made here, every field, for it may keep
    an odd type of service.
    """
    if mine[12:] == theirs[12:]:
        return True
    try:
        told = [
            {**Frame.parse(data).fields(), "source_mac": "", "destination_mac": ""} for data in (mine, theirs)
        ]
    except ValueError:
        return False
    return told[0] == told[1] and frame.ipv4_checksum_holds(theirs)


class Trial:
    """What is done with one kind of engine; each method says how often each verdict was given."""

    def __init__(self, make: Make, has_routes: bool, examples: int, kinds: tuple[str, ...]) -> None:
        """`kinds`: of final, partial (jobs at a switch) and ps (at a PS host). Without routes, every address
        has the same.
        """
        self._make, self._has_routes, self._kinds = make, has_routes, kinds
        self._settings = settings(
            max_examples=examples, deadline=None, database=None, phases=[Phase.generate]
        )

    @contextmanager
    def _both(self, node: int, ip: str, is_host: bool, tally: Tally) -> Iterator[Both]:
        with self._make(node, is_host) as other:
            both = Both(Model(ip, SLOTS, is_host=is_host), other, tally)
            if self._has_routes:
                both.set_routes(ROUTES)
            yield both
            both.compare_slots()

    def worlds(self) -> dict[str, int]:
        """Workers that keep the window, in one unit and over two with a PS, in all weathers."""
        tally = Tally()

        @self._settings
        @given(
            st.sampled_from([(2,), (3,), (7,), (1, 1), (2, 1), (2, 3)]),
            st.sampled_from([2, 4, 16]),
            st.builds(
                Weather,
                st.sampled_from([0.0, 0.05, 0.3]),
                st.sampled_from([0.0, 0.2]),
                st.booleans(),
                st.integers(0, 2**32),
            ),
        )
        def run(units: tuple[int, ...], size: int, weather: Weather) -> None:
            with ExitStack() as stack:

                def make(node: int, ip: str, is_host: bool) -> Engine:
                    if is_host and "ps" not in self._kinds:
                        return Model(ip, SLOTS, is_host=True)
                    return stack.enter_context(self._both(node, ip, is_host, tally))

                World(units, 20, size, weather, make, worker_lanes).run()

        run()
        return tally.counts

    def schedules(self) -> dict[str, int]:
        """Pushes, partial sums and results in any order, within the window or not, of this generation or
        another, jobs coming and going.
        """
        tally = Tally()

        @self._settings
        @given(
            st.sampled_from(self._kinds),
            st.integers(0, 2**32),
            st.sampled_from([0, 5, 2**31 - 40, 2**32 - 40]),
        )
        def run(kind: str, seed: int, start: int) -> None:
            is_host = kind == "ps"
            with self._both(-1 if is_host else 0, PS_IP if is_host else TOR_IP, is_host, tally) as engine:
                _schedule(engine, kind, random.Random(seed), start)

        run()
        return tally.counts

    def mutated(self, frames: int = MUTATIONS) -> dict[str, int]:
        """The fuzz test's packets, one verdict and one frame at a time."""
        tally = Tally()
        places = [(False, at_switch()), (True, at_ps())] if "ps" in self._kinds else [(False, at_switch())]
        turns = 16
        for is_host, good in places:
            with self._both(-1 if is_host else 0, PS_IP if is_host else TOR_IP, is_host, tally) as engine:
                job: Callable[..., Job] = job_at_ps if is_host else job_in_unit
                if not is_host:
                    for port, sender in enumerate(
                        (Sender(JOB, 0), Sender(JOB, 1), Sender(OTHER, 0), Sender(OTHER, 1)), 1
                    ):
                        engine.bind(port, [sender])
                    engine.bind(5, [])
                    engine.bind(6, [Sender(JOB, None)])
                engine.set_group(JOB, (1, 2, *OPTICAL))
                engine.set_group(OTHER, (3, 4, OPTICAL[0]))
                engine.admit(JOB, job(2))
                engine.admit(
                    OTHER, job(2, generation=OTHER_GENERATION, base=OTHER_UP_BASE if is_host else OTHER_BASE)
                )
                chance = np.random.default_rng(5)
                senders = [1] if is_host else [1, 2, 3, 4, 5, 6, *OPTICAL]
                for turn in range(turns):
                    for data in mutations.batch(chance, good, frames // (turns * len(places))).frames():
                        engine.receive(data, senders[turn % len(senders)])
        return tally.counts


def _schedule(engine: Both, kind: str, chance: random.Random, start: int) -> None:
    makes: dict[str, Callable[..., Job]] = {
        "final": lambda **c: job_in_unit(4, **c),
        "partial": job_across,
        "ps": job_at_ps,
    }
    members = {"final": (0, 1, 2, 3), "partial": (1, 3), "ps": (0, 1, 2)}[kind]
    generation, at = 3, start
    if kind != "ps":
        for worker in members:
            engine.bind(worker + 1, [Sender(JOB, worker)])
        engine.bind(PS_PORT, [Sender(JOB, None)])
    engine.set_group(JOB, (*(worker + 1 for worker in members), *OPTICAL))
    engine.admit(JOB, makes[kind]())
    base = UP_BASE if kind == "ps" else BASE
    for _ in range(STEPS):
        at = (at + (chance.random() < 0.4)) % 2**32
        fragment = (at + chance.choice((0, 0, 0, 0, -1, -2, -SIZE, SIZE, 2 * SIZE, 2**31))) % 2**32
        fields = {
            "slot": base + fragment % SIZE if chance.random() < 0.97 else chance.randrange(2**32),
            "generation": generation
            if chance.random() < 0.95
            else (generation + chance.choice((-1, 1))) % 2**32,
            "count": chance.randrange(spec.LANES + 1),
            "flags": chance.choice((0, int(spec.Flag.RETRANSMIT))),
        }
        worker = chance.choice(members)
        if kind == "ps":
            engine.receive(partial(worker, fragment, **fields), 1)
        elif kind == "partial" and chance.random() < 0.2:
            fields |= {"slot": (fields["slot"] - BASE + UP_BASE) % 2**32, "flags": int(spec.Flag.FINAL)}
            engine.receive(
                result_from_ps(fragment, lanes(fragment), **fields), chance.choice((PS_PORT, *OPTICAL))
            )
        else:
            engine.receive(push(worker, fragment, **fields), worker + 1)
        if chance.random() < 0.01:
            engine.release(JOB)
            if chance.random() < 0.5:
                engine.receive(
                    push(members[0], at, generation=generation), members[0] + 1 if kind != "ps" else 1
                )
            generation += 1
            engine.set_group(JOB, (*(worker + 1 for worker in members), *OPTICAL))
            engine.admit(JOB, makes[kind](generation=generation))
