"""Fuzz a switch that sums three jobs by block records: it is the top of two trees, one of which may have few
active blocks, and in the middle of the third.

Fragments are drawn around each job's floor, so that records are made, kept and taken over by later blocks all
the time; ticks, results from the place above and restarts are mixed in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from testbed.aggregation.entries import Entry
from testbed.systems.trio.reference import JobRecord
from testbed.topology.addresses import CONTROL_PORT
from testbed.wire import spec
from tests.vectors import mutations
from tests.vectors.blocks import KEPT, VOTES, across, at, job, terms
from tests.vectors.build import (
    JOB,
    ROUTES,
    SLOTS,
    TOR_IP,
    empty,
    partial,
    push,
    result_from_ps,
    tick,
    worker_lanes,
)
from tests.vectors.fuzz import ASTRAY, SPARED, Findings, Shot
from tests.vectors.good import OTHER
from tests.vectors.places import (
    ACROSS,
    BINDINGS,
    GROUPS,
    PS_PORT,
    SWITCH_PORTS,
    Sent,
    State,
)
from tests.vectors.run import Model

TREES = {JOB: (1, (0, 1)), OTHER: (3, (0, 1)), ACROSS: (6, (1, 3))}  # first port, workers
FEW = 3
REACH = KEPT + VOTES  # how far from a floor blocks are drawn, before and after it


def entries(state: State) -> dict[int, Entry]:
    """Return the switch's entries by job, in the jobs' present generations."""
    made = {
        JOB: job(2),
        OTHER: job(2, terms=terms(cap=FEW), group_ip="239.192.0.8"),
        ACROSS: across(places=1 << 5, group_ip="239.192.0.9", terms=terms(ahead=(KEPT // 2, VOTES // 2))),
    }
    return {number: replace(entry, generation=state.generation(number)) for number, entry in made.items()}


def palette(model: Model, state: State, random: np.random.Generator) -> list[Sent]:
    """Draw the packets of the next batch, each with the port where it belongs."""
    sent: list[Sent] = []
    for number, (first, workers) in TREES.items():
        job = model.blocks.record(number)
        floor, waiting = job.floor, [block.fragment for block in model.blocks.active(job)]
        blocks = [floor[0] + int(ahead) for ahead in random.integers(0, KEPT, 3)]
        blocks += [floor[1] + int(random.integers(0, VOTES))]
        blocks += [int(each) for each in random.choice(waiting, min(len(waiting), 3), replace=False)]
        blocks += [floor[int(random.integers(0, 2))] + int(random.integers(-REACH, 2 * REACH))]
        for block in blocks:
            block %= 2**32
            fields: dict[str, Any] = {"job": number, "generation": state.generation(number), **at(block)}
            said = {"count": int(random.integers(0, spec.LANES + 1)), "flags": int(random.integers(0, 16))}
            lacking = {**said, "contributors": int(random.integers(0, 70)), "age": int(random.choice((0, 9)))}
            for place, worker in enumerate(workers):
                sent.append((push(worker, block, **fields, **said), first + place))
            if random.random() < 0.1:
                sent.append((empty(workers[0], block, **fields), first))
            if number == ACROSS:
                port = int(random.choice((204, PS_PORT)))
                sent.append((partial(5, block, to_ip=TOR_IP, **{**fields, **lacking}), port))
                if random.random() < 0.2:
                    flags = int(spec.Flag.FINAL) | (said["flags"] & int(spec.Flag.DEGRADED))
                    above = {**fields, **lacking, "to_ip": "239.192.0.9", "flags": flags}
                    sent.append((result_from_ps(block, worker_lanes(9, block % 7), **above), 201))
            if random.random() < 0.2:
                members = int(random.choice((0, 1, 2, 3)))
                sent.append((tick(block, **fields, age=members, contributors=members), CONTROL_PORT))
    return sent


class ShotBlocks(Shot, Protocol):
    """A subject of the fuzz whose job records can be compared with the model's."""

    def job_difference(self, number: int, mine: JobRecord) -> str: ...
    def leave(self, number: int, tree: int, sources: int) -> None: ...


def switch(subject: ShotBlocks, seed: int, packets: int) -> Findings:
    """Fuzz a new switch whose jobs are summed by blocks."""
    random, findings = np.random.default_rng((seed, 4)), Findings("blocks")
    state, model = State(0), Model(TOR_IP, SLOTS)
    both: tuple[Model, ShotBlocks] = (model, subject)

    def admit(number: int) -> None:
        for each in both:
            each.set_group(number, 0, GROUPS[number])
            each.admit(number, entries(state)[number])

    for each in both:
        each.set_routes(ROUTES)
        for port, sender in BINDINGS.items():
            each.bind(port, [sender] if sender else [])
    for number in TREES:
        admit(number)
    while findings.packets < packets:
        sent = palette(model, state, random)
        made = mutations.batch(random, [data for data, _ in sent], len(sent), SPARED)
        astray = random.random(len(sent)) < ASTRAY
        ports = random.choice(SWITCH_PORTS, len(sent))
        for place, (data, of) in enumerate(zip(made.frames(), made.made_of.tolist(), strict=True)):
            port = int(ports[place]) if astray[place] else sent[of][1]
            mine = model.receive(data, port)
            if not findings.take(mine, subject.receive(data, port), data, port):
                return findings
        for number in TREES:
            findings.states += 1
            if wrong := subject.job_difference(number, model.blocks.record(number)):
                findings.miss(f"packet {findings.packets}: job {number}: {wrong}")
                return findings
        if random.random() < 0.05:  # a worker is out until a vote of it is not late
            number = int(random.choice(list(TREES)))
            worker = int(random.choice(TREES[number][1]))
            for each in both:
                each.leave(number, 0, 1 << worker)
        if random.random() < 0.01:  # a job ends; then its next generation
            number = int(random.choice(list(TREES)))
            for each in both:
                each.release(number)
            for data in made.frames()[:50]:
                findings.take(model.receive(data, 1), subject.receive(data, 1), data, 1)
            state.generations[number] = (state.generation(number) + int(random.choice((1, 2**31)))) % 2**32
            admit(number)
    return findings
