"""Fuzz a subject against the model: both get the same packets, and after each packet their verdicts,
emissions and state must be equal.

The packets are those of tests/vectors/places.py, inside and outside of the window. Half of them are damaged,
and some come by a port where they do not belong; jobs, workers and circuits change meanwhile. Everything is
drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from testbed.aggregation.entries import Role, Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.optics import PROBE, CrossConnect
from testbed.reference_model.output_ports import Reaction
from testbed.reference_model.pull import Puller
from tests.vectors import mutations, places
from tests.vectors.build import PS_IP, ROUTES, SLOTS, TOR_IP
from tests.vectors.good import OTHER
from tests.vectors.in_step import Tried, difference, slot_difference
from tests.vectors.lights import Optics
from tests.vectors.places import BINDINGS, FRAGMENTS, GROUPS, HOST_PORTS, SWITCH_PORTS, Entries, State
from tests.vectors.run import Model, Worker, same_result

# packets between two advances of the jobs' windows; batches between two comparisons of all slots
BATCH, LOOK_EVERY = 250, 16
SPARED, ASTRAY = 0.5, 0.1  # shares of packets: undamaged; by a port where they do not belong
TOUCHING = frozenset(
    {
        "aggregated",
        "completed",
        "resent",
        "duplicate",
        "stale",
        "mismatch",
        "result",
        "late",
        "ticked",
        "tick_late",
    }
)
RESULT = 3  # the op
MOST_KEPT = 10


class Shot(Tried, Worker, Protocol):
    """A subject of the fuzz."""


@dataclass(slots=True)
class Findings:
    """The findings at one place: packets, verdicts, frames that left (counted per port), and what
    differed.
    """

    place: str
    packets: int = 0
    left: int = 0
    states: int = 0  # comparisons of a slot or a place of a ring
    mismatches: int = 0
    differences: list[str] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)

    def take(self, mine: Reaction, theirs: Reaction, data: bytes, port: int) -> bool:
        """Count a packet's reactions and note how they differ; return whether they are equal."""
        self.packets += 1
        self.verdicts[mine[0]] = self.verdicts.get(mine[0], 0) + 1
        self.left += sum(len(emission.ports or ()) for emission in mine[1])
        wrong = difference(mine, theirs)
        if wrong:
            self.miss(f"packet {self.packets}, port {port}: {wrong}; {data[:90].hex()}")
        return not wrong

    def miss(self, line: str) -> None:
        self.mismatches += 1
        if len(self.differences) < MOST_KEPT:
            self.differences.append(line)


def _batches(
    random: np.random.Generator, state: State, palette: places.Palette, packets: int
) -> Iterator[list[tuple[bytes, int]]]:
    while packets > 0:
        sent = palette(state, random)
        count = min(BATCH, packets)
        made = mutations.batch(random, [data for data, _ in sent], count, SPARED)
        yield [(data, sent[at][1]) for data, at in zip(made.frames(), made.made_of.tolist(), strict=True)]
        packets -= count
        state.fragment = (state.fragment + int(random.integers(1, 6))) % 2**32


def switch(subject: Shot, seed: int, packets: int) -> Findings:
    """Fuzz a new switch."""
    random, findings = np.random.default_rng((seed, 1)), Findings("switch")
    state, model = State(FRAGMENTS[seed % len(FRAGMENTS)]), Model(TOR_IP, SLOTS)
    both: tuple[Model, Shot] = (model, subject)
    admitted: Entries = {}

    def admit(number: int) -> None:
        for key, entry in places.at_switch_now(state).items():
            if key[0] == number:
                admitted[key] = entry
                for each in both:
                    each.set_group(*key, GROUPS[number])
                    each.admit(number, entry)

    for each in both:
        each.set_routes(ROUTES)
        for port, sender in BINDINGS.items():
            each.bind(port, [sender] if sender else [])
    for number in GROUPS:
        admit(number)
    for turn, batch in enumerate(_batches(random, state, places.at_switch, packets)):
        astray = random.random(len(batch)) < ASTRAY
        ports = random.choice(SWITCH_PORTS, len(batch))
        for at, (data, port) in enumerate(batch):
            port = int(ports[at]) if astray[at] else port
            mine = model.receive(data, port)
            if not findings.take(mine, subject.receive(data, port), data, port):
                return findings
            if mine[0] in TOUCHING and _slot_differs(findings, model, subject, admitted, data):
                return findings
        if turn % LOOK_EVERY == 0 and _any_slot_differs(findings, model, subject):
            return findings
        # a job ends and late packets of it come; then its next generation starts, or another worker
        if random.random() < 0.2:
            number = int(random.choice(list(GROUPS)))
            for each in both:
                each.release(number)
            for key in [key for key in admitted if key[0] == number]:
                del admitted[key]
            for data, port in batch[:50]:
                findings.take(model.receive(data, port), subject.receive(data, port), data, port)
            state.generations[number] = (state.generation(number) + int(random.choice((1, 2**31)))) % 2**32
            admit(number)
        if random.random() < 0.02:  # another sender at a port
            port = int(random.choice(list(BINDINGS)))
            sender = (
                BINDINGS[port]
                if random.random() < 0.8
                else Sender(int(random.choice(list(GROUPS))), None, bool(random.random() < 0.8))
            )
            for each in both:
                each.bind(port, [sender] if sender else [])
    return findings


def _any_slot_differs(findings: Findings, model: Model, subject: Tried) -> bool:
    for at, held in enumerate(subject.slots_held()):
        wrong = slot_difference(model.slot(at), held)
        if wrong:
            findings.miss(f"packet {findings.packets}: slot {at}, which that did not name: {wrong}")
            return True
    return False


def _slot_differs(findings: Findings, model: Model, subject: Tried, entries: Entries, data: bytes) -> bool:
    """Return whether the slot named by a packet that passed the checks differs now."""
    entry = entries[int.from_bytes(data[48:50], "big"), data[47]]
    if entry.role is Role.TRANSIT:
        return False
    slot, is_result = int.from_bytes(data[58:62], "big"), data[45] == RESULT
    at = (slot - entry.result_base + entry.base if is_result else slot) % 2**32
    findings.states += 1
    wrong = slot_difference(model.slot(at), subject.slot_held(at))
    if wrong:
        findings.miss(f"packet {findings.packets}: slot {at}: {wrong}; {data[:90].hex()}")
    return bool(wrong)


def host(subject: Shot, seed: int, packets: int) -> Findings:
    """Fuzz a new host that has a worker of one job and is a place of three others; results of one of these
    are relayed.
    """
    random, findings = np.random.default_rng((seed, 2)), Findings("host")
    state, model = State(FRAGMENTS[seed % len(FRAGMENTS)]), Model(PS_IP, SLOTS, is_host=True)
    both: tuple[Model, Shot] = (model, subject)
    attached: list[Puller] = []
    admitted: Entries = {}

    def begin() -> None:
        admitted.update(places.at_host_now(state))
        attached[:] = [places.puller(state)]
        for each in both:
            for (number, tree), entry in admitted.items():
                if entry.is_relayed:
                    each.set_copies(number, tree, places.COPIED_FOR, False)
                else:
                    each.set_group(number, tree, (1, LOOP_PORT) if number == OTHER else (1,))
                each.admit(number, entry)
            each.attach(attached[0])

    for each in both:
        each.bind(LOOP_PORT, [Sender(OTHER, 3)])
    begin()
    for turn, batch in enumerate(_batches(random, state, places.at_host, packets)):
        astray, ports = random.random(len(batch)) < ASTRAY, random.choice(HOST_PORTS, len(batch))
        for at, (data, port) in enumerate(batch):
            port = int(ports[at]) if astray[at] else port
            if at % 16 == 0:
                wake_at = (model.words()[0] + int(random.integers(0, 4))) % 2**32
                for each in both:
                    each.ask(wake_at)
            mine = model.receive(data, port)
            if not findings.take(mine, subject.receive(data, port), data, port):
                return findings
            if mine[0] in TOUCHING and _slot_differs(findings, model, subject, admitted, data):
                return findings
            if mine[0] in ("pulled", "pull_duplicate", "notice") and _worker_differs(
                findings, model, subject, data
            ):
                return findings
        for place in range(attached[0].places):
            if not same_result(model.stored(place), subject.stored(place)):
                findings.miss(
                    f"packet {findings.packets}: place {place} of the ring, which that did not name"
                )
                return findings
        if turn % LOOK_EVERY == 0 and _any_slot_differs(findings, model, subject):
            return findings
        if random.random() < 0.02:  # the next generation of the host's jobs
            for each in both:
                for number, _ in admitted:
                    each.release(number)
                each.detach()
            for data, port in batch[:50]:
                findings.take(model.receive(data, port), subject.receive(data, port), data, port)
            for number in (attached[0].job, *(number for number, _ in admitted)):
                state.generations[number] = (state.generation(number) + 1) % 2**32
            begin()
    return findings


def _worker_differs(findings: Findings, model: Model, subject: Worker, data: bytes) -> bool:
    assert model.pull_side
    puller, tree = model.pull_side.puller, data[47]
    place = puller.place(tree, int.from_bytes(data[58:62], "big")) if tree < len(puller.bases) else None
    findings.states += 1
    same = model.words() == subject.words()
    if place is not None:
        same &= same_result(model.stored(place), subject.stored(place))
    if not same:
        findings.miss(
            f"packet {findings.packets}: {subject.words()} or place {place} of the ring; {data[:90].hex()}"
        )
    return not same


def optics(subject: Optics, seed: int, packets: int) -> Findings:
    """Fuzz a new optical switch."""
    random, findings = np.random.default_rng((seed, 3)), Findings("optics")
    ports, now = list(range(1, 9)), 10**9
    model = CrossConnect(ports)
    both = (model, subject)
    palette = [(data, 1) for data in (bytes(12) + PROBE + bytes(46), bytes(60), bytes(range(250)) * 8)]
    for batch in _batches(random, State(0), lambda *_: palette, packets):
        for at, (data, _) in enumerate(batch):
            if at % 20 == 0:  # a reconfiguration: two circuits swap ends, or one goes
                a, b, c, d = chosen = [int(port) for port in random.permutation(ports)[:4]]
                held = {port: model.peer(port) for port in chosen}
                turned: dict[int, int | None] = {
                    port: None for port in sorted({*chosen, *(peer for peer in held.values() if peer)})
                }
                if random.random() < 0.75:
                    turned |= {a: b, b: a, c: d, d: c}
                dark_at = max(0, now + int(random.integers(-2, 200)))
                lit_at = dark_at + int(random.integers(0, 2**34 if random.random() < 0.3 else 200))
                for each in both:
                    each.turn(turned, dark_at, lit_at)
                edges = (dark_at - 1, dark_at, lit_at - 1, lit_at, lit_at + 1)
            now = int(random.choice((now + 1, *edges, now + 50, now + 2**32)))
            now = max(1, now)
            port = int(random.choice(ports))
            mine = model.receive(data, port, now)
            if not findings.take(mine, subject.receive(data, port, now), data, port):
                return findings
    return findings
