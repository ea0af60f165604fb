"""Run the reference model and another subject in step: both get the same packets, and their verdicts,
emissions and state must be equal.

Both get whole jobs over networks that lose, repeat and reorder packets; schedules that keep no window; and
malformed and adversarial packets. A subject's own module says how the subject is made; this one says what it
must pass.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial as partial_of
from typing import Protocol

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from testbed.aggregation.entries import NO_IP, Entry, Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.output_ports import Emission, Reaction, Route, To
from testbed.reference_model.slots import Slot
from testbed.topology.addresses import CONTROL_PORT, LOOP_PLACE_IP
from testbed.topology.places import Host
from testbed.wire import spec
from testbed.wire.frame import Frame
from tests.vectors import mutations
from tests.vectors.build import (
    BASE,
    GENERATION,
    JOB,
    OPTICAL,
    OTHER_IP,
    PS_IP,
    ROUTES,
    SIZE,
    SLOTS,
    TOR_IP,
    UP_BASE,
    Lanes,
    empty,
    ipv4_checksum_holds,
    job_across,
    job_at_ps,
    job_in_unit,
    lanes,
    partial,
    push,
    result_from_ps,
    tick,
    worker_lanes,
)
from tests.vectors.good import OTHER, OTHER_BASE, OTHER_GENERATION, OTHER_UP_BASE, at_ps, at_switch
from tests.vectors.run import Model, Subject
from tests.vectors.world import SHAPES, Shape, Weather, World

STEPS = 400
PS_PORT = 8  # the switch's port to a host that is a place
TRIED = ("worlds", "schedules", "mutated", "blocks")  # methods of Trial
MUTATIONS = 16_000  # of packets, for a switch and a host together
BATCH = 500  # mutations between two comparisons of all slots


@dataclass(frozen=True, slots=True)
class Held:
    """The content of a subject's slot; None where the subject does not tell a field."""

    generation: int
    fragment: int
    members: int
    complete: bool
    final: bool
    lanes: Lanes | None
    contributors: int | None = None
    degraded: bool | None = None
    age: int | None = None  # compared only where the slot is complete


class Tried(Subject, Protocol):
    """A subject whose slots can be read."""

    def slots_held(self) -> list[Held | None]: ...
    def slot_held(self, at: int) -> Held | None: ...


# Make an empty subject, called with (node, is_host): nodes 0, 1 and 2 are switches, -1 is a host.
Make = Callable[[int, bool], AbstractContextManager[Tried]]


class Tally:
    """Count each verdict."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, verdict: str) -> None:
        self.counts[verdict] = self.counts.get(verdict, 0) + 1


class Both:
    """The model and the other subject as one subject of the vectors. Answers with the model's reaction; fails
    where the other's differs.
    """

    def __init__(self, model: Model, other: Tried, count: Callable[[str], None]) -> None:
        self._model, self._other, self._count = model, other, count

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        senders = list(senders)
        self._model.bind(port, senders)
        self._other.bind(port, senders)

    def set_group(self, number: int, tree: int, ports: Sequence[int]) -> None:
        self._model.set_group(number, tree, ports)
        self._other.set_group(number, tree, ports)

    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None:
        self._model.set_copies(number, tree, members, own)
        self._other.set_copies(number, tree, members, own)

    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None:
        self._model.set_routes(routes)
        self._other.set_routes(routes)

    def admit(self, number: int, entry: Entry) -> None:
        self._model.admit(number, entry)
        self._other.admit(number, entry)

    def release(self, number: int, tree: int | None = None) -> None:
        self._model.release(number, tree)
        self._other.release(number, tree)

    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]:
        verdict, emissions = self._model.receive(data, port)
        other, left = self._other.receive(data, port)
        wrong = difference((verdict, emissions), (other, left))
        assert not wrong, f"{wrong}; port {port}, {data[:90].hex()}"
        self._count(verdict)
        return verdict, emissions

    def compare_slots(self) -> None:
        """Compare the state of every slot."""
        for at, theirs in enumerate(self._other.slots_held()[:SLOTS]):
            assert not slot_difference(self._model.slot(at), theirs), f"slot {at}"


def slot_difference(mine: Slot, theirs: Held | None) -> str:
    """Describe how a subject's slot differs from the model's; empty where they are equal."""
    if mine.generation is None or theirs is None:
        return "" if mine.generation is None and theirs is None else "empty for one of them"
    said = (theirs.generation, theirs.fragment, theirs.members, theirs.complete, theirs.final)
    if said != (mine.generation, mine.fragment, mine.members, mine.complete, mine.final):
        return f"{said}"
    for name, held in (
        ("contributors", theirs.contributors),
        ("degraded", theirs.degraded),
        ("age", theirs.age),
    ):
        if held is not None and held != getattr(mine, name) and (mine.complete or name != "age"):
            return f"{name} {held}"
    return (
        "" if theirs.lanes is None or (theirs.lanes[: mine.lanes.size] == mine.lanes).all() else "other lanes"
    )


def difference(model: Reaction, other: Reaction) -> str:
    """Describe how another subject's reaction differs from the model's; empty where they are equal. Ports are
    compared where both name them.
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
    """Return whether the destination MACs are equal, or may differ: where the model has no route for a frame,
    the fabric sets the MAC.
    """
    return mine.data[:6] == theirs.data[:6] or (mine.to is To.ROUTE and mine.ports is None)


def _same(mine: bytes, theirs: bytes) -> bool:
    """Return whether two frames are equal but for the MAC addresses, which the fabric sets. If their bytes
    differ, compare all parsed fields, and check the other's IPv4 checksum: a frame made by the subject may
    keep an unusual type of service.
    """
    if mine[12:] == theirs[12:]:
        return True
    try:
        lines = [
            {**Frame.parse(data).fields(), "source_mac": "", "destination_mac": ""} for data in (mine, theirs)
        ]
    except ValueError:
        return False
    return lines[0] == lines[1] and ipv4_checksum_holds(theirs)


class Trial:
    """The trials of one kind of subject. Each method runs one trial and returns the count of each verdict."""

    def __init__(
        self,
        make: Make,
        has_routes: bool,
        examples: int,
        kinds: tuple[str, ...],
        takes_empties: bool = True,
    ) -> None:
        """`kinds`: keys of KINDS. Without `has_routes`, all addresses share one route."""
        self._make, self._has_routes, self._kinds = make, has_routes, kinds
        self._takes_empties = takes_empties
        self._settings = settings(
            max_examples=examples, deadline=None, database=None, phases=[Phase.generate]
        )

    @contextmanager
    def _both(self, node: int, ip: str, is_host: bool, tally: Tally, routes: bool = True) -> Iterator[Both]:
        with self._make(node, is_host) as other:
            model = Model(ip, SLOTS, is_host=is_host, takes_empties=self._takes_empties)
            both = Both(model, other, tally)
            if self._has_routes and routes:
                both.set_routes(ROUTES)
            yield both
            both.compare_slots()

    def worlds(self) -> dict[str, int]:
        """Run workers that keep the window, over trees of all shapes and networks of all qualities."""
        tally = Tally()

        @self._settings
        @given(
            st.sampled_from(SHAPES),
            st.sampled_from([2, 4, 16]),
            st.builds(
                Weather,
                st.sampled_from([0.0, 0.05, 0.3]),
                st.sampled_from([0.0, 0.2]),
                st.booleans(),
                st.integers(0, 2**32),
                st.sampled_from([0.0, 0.02]),
            ),
        )
        def run(shape: Shape, size: int, weather: Weather) -> None:
            with ExitStack() as stack:

                def make(node: int, ip: str, is_host: bool) -> Subject:
                    if is_host and "ps" not in self._kinds:
                        return Model(ip, SLOTS, is_host=True)
                    return stack.enter_context(self._both(node, ip, is_host, tally, routes=False))

                World(shape, 20, size, weather, make, worker_lanes, self._takes_empties).run()

        run()
        return tally.counts

    def blocks(self) -> dict[str, int]:
        """Run the same over switches that sum by block records, with a worker that sleeps."""
        tally = Tally()

        @self._settings
        @given(
            st.sampled_from([shape for shape in SHAPES if not shape.host]),
            st.sampled_from([4, 16]),
            st.builds(
                Weather,
                st.sampled_from([0.0, 0.05, 0.3]),
                st.sampled_from([0.0, 0.2]),
                st.booleans(),
                st.integers(0, 2**32),
                st.sampled_from([0.0, 0.02, 0.1]),
                st.sampled_from([0.0, 0.9]),
            ),
        )
        def run(shape: Shape, size: int, weather: Weather) -> None:
            with ExitStack() as stack:

                def make(node: int, ip: str, is_host: bool) -> Subject:
                    return stack.enter_context(self._both(node, ip, is_host, tally, routes=False))

                World(shape, 40, size, weather, make, worker_lanes, blocks=True).run()

        run()
        return tally.counts

    def schedules(self) -> dict[str, int]:
        """Send pushes, partial sums and results in any order, in and out of the window, of this generation or
        another, while jobs start and end.
        """
        tally = Tally()

        @self._settings
        @given(
            st.sampled_from(self._kinds),
            st.integers(0, 2**32),
            st.sampled_from([0, 5, 2**31 - 40, 2**32 - 40]),
        )
        def run(kind: str, seed: int, start: int) -> None:
            is_host = KINDS[kind].is_host
            with self._both(-1 if is_host else 0, PS_IP if is_host else TOR_IP, is_host, tally) as subject:
                _schedule(subject, KINDS[kind], random.Random(seed), start)

        run()
        return tally.counts

    def mutated(self, frames: int = MUTATIONS, seed: int = 5) -> dict[str, int]:
        """Send mutations of the packets of tests/vectors/good.py, one at a time, and compare all slots
        between batches.
        """
        tally = Tally()
        places = [(False, at_switch()), (True, at_ps())] if "ps" in self._kinds else [(False, at_switch())]
        turns = max(16, frames // BATCH)
        for is_host, good in places:
            with self._both(-1 if is_host else 0, PS_IP if is_host else TOR_IP, is_host, tally) as subject:
                entry: Callable[..., Entry] = job_at_ps if is_host else job_in_unit
                if not is_host:
                    for port, sender in enumerate(
                        (Sender(JOB, 0), Sender(JOB, 1), Sender(OTHER, 0), Sender(OTHER, 1)), 1
                    ):
                        subject.bind(port, [sender])
                    subject.bind(5, [])
                    subject.bind(6, [Sender(JOB, None, True)])
                subject.set_group(JOB, 0, (1,) if is_host else (1, 2, *OPTICAL))
                subject.set_group(OTHER, 0, (1,) if is_host else (3, 4, OPTICAL[0]))
                subject.admit(JOB, entry(2))
                other_base = OTHER_UP_BASE if is_host else OTHER_BASE
                subject.admit(OTHER, entry(2, generation=OTHER_GENERATION, base=other_base))
                chance = np.random.default_rng(seed)
                senders = [1, CONTROL_PORT] if is_host else [1, 2, 3, 4, 5, 6, *OPTICAL, CONTROL_PORT]
                for turn in range(turns):
                    for data in mutations.batch(chance, good, frames // (turns * len(places))).frames():
                        subject.receive(data, senders[turn % len(senders)])
                    subject.compare_slots()
        return tally.counts


@dataclass(frozen=True, slots=True)
class Kind:
    """A place of a schedule: its entry, and the port of each contributor."""

    make: Callable[..., Entry]
    pushes: Mapping[int, int]  # worker -> port
    partials: Mapping[int, int]  # number -> port
    is_host: bool = False
    lanes: int = spec.LANES

    @property
    def base(self) -> int:
        return UP_BASE if self.is_host else BASE


KINDS = {
    "final": Kind(partial_of(job_in_unit, 4), {0: 1, 1: 2, 2: 3, 3: 4}, {}),
    "partial": Kind(job_across, {1: 2, 3: 4}, {}),
    "few": Kind(partial_of(job_across, lanes=64), {1: 2, 3: 4}, {}, lanes=64),
    "middle": Kind(partial_of(job_across, workers=0b10, places=0b1001), {1: 2}, {0: OPTICAL[0], 3: PS_PORT}),
    "ps": Kind(job_at_ps, {}, {0: 1, 1: 1, 2: 1}, is_host=True),
    "host": Kind(
        partial_of(
            job_at_ps, 2, workers=0b11000, up_ip=TOR_IP, up_base=BASE, result_base=BASE, number=0
        ),
        {3: LOOP_PORT, 4: 1},
        {0: 1, 1: 1},
        is_host=True,
    ),
    "head": Kind(
        partial_of(
            job_at_ps, 2, workers=0b11000, up_ip=OTHER_IP, up_base=BASE, result_base=BASE, group_ip=NO_IP
        ),
        {3: LOOP_PORT, 4: 1},
        {0: 1, 1: 1},
        is_host=True,
    ),
    "root": Kind(partial_of(job_at_ps, 2, group_ip=NO_IP), {}, {0: 1, 1: 1}, is_host=True),
}  # fmt: skip


def _schedule(subject: Both, kind: Kind, chance: random.Random, start: int) -> None:
    generation, at = GENERATION, start

    def admit() -> Entry:
        entry = kind.make(generation=generation)
        to_hosts = [port for port in kind.pushes.values() if port != PS_PORT]
        if entry.is_relayed:
            subject.set_copies(JOB, 0, ((1, 2), (2, 7)), LOOP_PORT in kind.pushes.values())
        else:
            subject.set_group(JOB, 0, sorted({1, *to_hosts}) if kind.is_host else (*to_hosts, *OPTICAL))
        subject.admit(JOB, entry)
        return entry

    if not kind.is_host:
        subject.bind(PS_PORT, [Sender(JOB, None, True)])
    for worker, port in kind.pushes.items():
        if not kind.is_host or port == LOOP_PORT:
            subject.bind(port, [Sender(JOB, worker)])
    entry = admit()
    for _ in range(STEPS):
        at = (at + (chance.random() < 0.4)) % 2**32
        fragment = (at + chance.choice((0, 0, 0, 0, -1, -2, -SIZE, SIZE, 2 * SIZE, 2**31))) % 2**32
        fields = {
            "slot": kind.base + fragment % SIZE if chance.random() < 0.97 else chance.randrange(2**32),
            "generation": generation
            if chance.random() < 0.95
            else (generation + chance.choice((-1, 1))) % 2**32,
            "count": chance.randrange(kind.lanes + 1),
            "flags": chance.choice((0, int(spec.Flag.RETRANSMIT), int(spec.Flag.DEGRADED))),
            "age": chance.choice((0, chance.randrange(2**16))),
            "tree": 0 if chance.random() < 0.97 else chance.randrange(256),
        }
        if chance.random() < 0.05:
            subject.receive(tick(fragment, lanes=kind.lanes, **fields), CONTROL_PORT)
        elif entry.up_base and chance.random() < 0.2:
            fields |= {
                "slot": (fields["slot"] - kind.base + entry.result_base) % 2**32,
                "flags": fields["flags"] | int(spec.Flag.FINAL),
                "contributors": chance.randrange(70),
            }
            port = 1 if kind.is_host else chance.choice((PS_PORT, *OPTICAL))
            if entry.is_relayed:
                fields["to_ip"] = PS_IP
            subject.receive(result_from_ps(fragment, lanes(fragment)[: kind.lanes], **fields), port)
        else:
            subject.receive(*_contribution(kind, chance, fragment, fields))
        if chance.random() < 0.01:
            subject.release(JOB)
            if chance.random() < 0.5:
                subject.receive(*_contribution(kind, chance, at, {"generation": generation}))
            generation += 1
            entry = admit()


def _contribution(
    kind: Kind, chance: random.Random, fragment: int, fields: Mapping[str, int]
) -> tuple[bytes, int]:
    """Draw a push, an empty push or a partial sum; return it with the port that it comes by."""
    number = chance.choice([*kind.pushes, *kind.partials])
    data = worker_lanes(number, fragment)[: kind.lanes]
    if number in kind.partials:
        to_ip = PS_IP if kind.is_host else TOR_IP
        sent = partial(
            number, fragment, data=data, **{"to_ip": to_ip, "contributors": chance.randrange(70), **fields}
        )
        return sent, kind.partials[number]
    port = kind.pushes[number]
    if port not in (LOOP_PORT, PS_PORT) and not kind.is_host and chance.random() < 0.3:
        return empty(number, fragment, **{"lanes": kind.lanes, "count": kind.lanes, **fields}), port
    to_ip = LOOP_PLACE_IP if port == LOOP_PORT else PS_IP if kind.is_host else TOR_IP
    return push(number, fragment, to_ip=to_ip, data=data, **fields), port
