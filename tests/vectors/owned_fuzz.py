"""Fuzz a switch with two owned trees, at the top of one and in the middle of the other, and a job of the
core. Fragments are drawn around each tree's present one, beats around those received; restarts are mixed in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from testbed.aggregation.entries import Entry, Sender
from testbed.systems.luwu.reference import OwnedTree
from testbed.wire import spec
from testbed.wire.spec import Op
from tests.vectors import mutations
from tests.vectors.build import (
    BASE,
    FABRIC,
    JOB,
    ROUTES,
    SIZE,
    SLOTS,
    TOR_IP,
    UP_TOR_IP,
    job_in_unit,
    partial,
    push,
)
from tests.vectors.fuzz import ASTRAY, SPARED, Findings, Shot
from tests.vectors.good import OTHER
from tests.vectors.in_step import Held, slot_difference
from tests.vectors.owned import OWNER_PORT, PLACE, PLACE_PORT, beat, from_owner, inner, top
from tests.vectors.places import ACROSS, SWITCH_PORTS, Sent, State
from tests.vectors.run import Model

OTHER_BASE, ACROSS_BASE = BASE + SIZE, BASE + 2 * SIZE
GROUP_IPS = {JOB: "239.192.0.7", OTHER: "239.192.0.8", ACROSS: "239.192.0.9"}
BINDINGS = {
    **{1: Sender(JOB, 0), 2: Sender(JOB, 1), OWNER_PORT: Sender(JOB, None, is_owner=True)},
    **{4: Sender(OTHER, 0), 5: Sender(OTHER, 1), 6: Sender(ACROSS, 1), 7: Sender(ACROSS, 3), 8: None},
}
GROUPS = {JOB: (1, 2, PLACE_PORT), OTHER: (4, 5), ACROSS: (6, 7, PLACE_PORT)}
P4_PORTS = tuple(port for port in SWITCH_PORTS if port != FABRIC[-1])  # those of the P4 tests' switch
FIRST = 2**32 - 40  # where fragments and beats begin, so that their numbers wrap around


def entries(state: State) -> dict[int, Entry]:
    """Return the switch's entries by job, in the jobs' present generations."""
    made = {
        JOB: top(),
        OTHER: job_in_unit(2, base=OTHER_BASE, group_ip=GROUP_IPS[OTHER]),
        ACROSS: inner(base=ACROSS_BASE, places=1 << PLACE, up_ip=UP_TOR_IP, group_ip=GROUP_IPS[ACROSS]),
    }
    return {number: replace(entry, generation=state.generation(number)) for number, entry in made.items()}


def palette(state: State, random: np.random.Generator) -> list[Sent]:
    """Draw the packets of the next batch, each with the port where it belongs."""
    sent: list[Sent] = []
    owned = ((JOB, BASE, ((0, 1), (1, 2))), (ACROSS, ACROSS_BASE, ((1, 6), (3, 7))))
    for number, base, workers in owned:
        common: dict[str, Any] = {"job": number, "generation": state.generation(number)}
        for _ in range(3):
            fragment = state.fragment + int(random.choice((0, 0, 1, 2, -1, -SIZE, SIZE)))
            fragment %= 2**32
            fields = {
                **common,
                "slot": base + fragment % SIZE,
                "flags": int(random.choice((0, int(spec.Flag.END), int(random.integers(0, 32))))),
                "count": int(random.integers(0, spec.LANES + 1)),
            }
            sent += [(push(worker, fragment, **fields), port) for worker, port in workers]
            below = {**fields, "contributors": int(random.integers(0, 70)), "to_ip": TOR_IP}
            sent.append((partial(PLACE, fragment, **below), PLACE_PORT))
            worker, slot = int(random.integers(0, 2)), OTHER_BASE + fragment % SIZE
            others = {"job": OTHER, "generation": state.generation(OTHER), "slot": slot}
            sent.append((push(worker, fragment, **others), 4 + worker))
        for member, port in (*workers, (PLACE, PLACE_PORT)):
            ack = (state.fragment + int(random.integers(-4, 3))) % 2**32
            credit = (ack + int(random.integers(0, SIZE))) % 2**32
            sent.append((beat(member, ack, credit, **common), port))
        op = Op.PARAMETERS if random.random() < 0.5 else Op.GRADIENT_BEAT
        port = OWNER_PORT if number == JOB else PLACE_PORT
        group = GROUP_IPS[number] if random.random() < 0.9 else str(random.choice(list(GROUP_IPS.values())))
        sent.append((from_owner(op, state.fragment, **common, to_ip=group), port))
    return sent


class ShotOwned(Shot, Protocol):
    """A subject of the fuzz whose owned trees and slots can be compared with the model's."""

    def owned_difference(self, number: int, mine: OwnedTree) -> str: ...
    def slot_held(self, at: int) -> Held | None: ...


def _differs(model: Model, subject: ShotOwned, state: State) -> str:
    for number, entry in entries(state).items():
        is_owned = entry.program == "owned"
        if is_owned and (wrong := subject.owned_difference(number, model.owned.tree(number))):
            return f"job {number}: {wrong}"
        for at in range(entry.base, entry.base + SIZE):
            if wrong := slot_difference(model.slot(at), subject.slot_held(at)):
                return f"slot {at}: {wrong}"
    return ""


def switch(subject: ShotOwned, seed: int, packets: int, is_p4: bool = False) -> Findings:
    """Fuzz a new switch with owned trees; a P4 one has one route for all addresses."""
    random, findings = np.random.default_rng((seed, 5)), Findings("owned")
    state, model = State(FIRST), Model(TOR_IP, SLOTS, takes_empties=not is_p4)
    both: tuple[Model, ShotOwned] = (model, subject)

    def admit(number: int) -> None:
        for each in both:
            each.set_group(number, 0, GROUPS[number])
            each.admit(number, entries(state)[number])

    for each in both:
        if not is_p4:
            each.set_routes(ROUTES)
        for port, sender in BINDINGS.items():
            each.bind(port, [sender] if sender else [])
    for number in GROUPS:
        admit(number)
    while findings.packets < packets:
        sent = palette(state, random)
        made = mutations.batch(random, [data for data, _ in sent], len(sent), SPARED)
        astray = random.random(len(sent)) < ASTRAY
        ports = random.choice(P4_PORTS if is_p4 else SWITCH_PORTS, len(sent))
        for place, (data, of) in enumerate(zip(made.frames(), made.made_of.tolist(), strict=True)):
            port = int(ports[place]) if astray[place] else sent[of][1]
            mine = model.receive(data, port)
            if not findings.take(mine, subject.receive(data, port), data, port):
                return findings
        findings.states += 1
        if wrong := _differs(model, subject, state):
            findings.miss(f"packet {findings.packets}: {wrong}")
            return findings
        state.fragment = (state.fragment + int(random.random() < 0.4)) % 2**32
        if random.random() < 0.01:  # a job ends; then its next generation
            number = int(random.choice(list(GROUPS)))
            for each in both:
                each.release(number)
            for data in made.frames()[:50]:
                findings.take(model.receive(data, 1), subject.receive(data, 1), data, 1)
            state.generations[number] = (state.generation(number) + int(random.choice((1, 2**31)))) % 2**32
            admit(number)
    return findings
