"""The places that are fuzzed, and the packets sent to them, well formed or nearly: jobs that go on summing
while everything else happens.

The switch is at the top of two jobs and in the middle of a third; one of the two has a second tree, in the
middle of which the switch is; a fourth job only passes through. Its ports lead to hosts that are workers,
places or neither, and to other switches. The host has a worker of one job, is at the top of another with a
worker of its own, is in the middle of a third, and relays the results of a fourth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from testbed.aggregation.entries import NO_IP, Entry, Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.pull import Puller
from testbed.topology.addresses import CONTROL_PORT, LOOP_PLACE_IP
from testbed.topology.places import Host
from testbed.topology.units import Unit
from testbed.wire import frame, recovery, spec
from tests.vectors.build import (
    FABRIC,
    GENERATION,
    JOB,
    OPTICAL,
    PS_IP,
    PS_MAC,
    SIZE,
    TOR_IP,
    UP_BASE,
    empty,
    job_across,
    job_at_ps,
    job_in_unit,
    job_passing,
    packet,
    partial,
    push,
    result_from_ps,
    tick,
    worker_lanes,
)
from tests.vectors.good import OTHER, OTHER_BASE

ACROSS, TRANSIT = 9, 10
ACROSS_BASE = 256
PS_PORT, IDLE_PORT = 8, 5
SWITCH_PORTS = (1, 2, 3, 4, IDLE_PORT, 6, 7, PS_PORT, *FABRIC, CONTROL_PORT)
HOST_PORTS = (1, LOOP_PORT, CONTROL_PORT)
SECOND_BASE, MIDDLE_BASE, RELAYED_BASE = 320, 352, 400
COPIED_FOR: tuple[Host, ...] = ((Unit(1), 5), (Unit(2), 6))
BINDINGS = {
    **{1: Sender(JOB, 0), 2: Sender(JOB, 1), 3: Sender(OTHER, 0), 4: Sender(OTHER, 1), IDLE_PORT: None},
    **{6: Sender(ACROSS, 1), 7: Sender(ACROSS, 3), PS_PORT: Sender(ACROSS, None, True, True)},
}
GROUPS = {JOB: (1, 2, *OPTICAL), OTHER: (3, 4), ACROSS: (6, 7, *OPTICAL), TRANSIT: OPTICAL}
SERVICES = (0, 0, 0, 1, 2, 3, 3, 12, 15, 0xB8, 0xFF)
AHEAD = SIZE // 2
FRAGMENTS = (0, 2**31 - 200, 2**32 - 200)  # where a run's fragments may begin


@dataclass(slots=True)
class State:
    """How far the jobs of a place are: the present fragment and each job's generation."""

    fragment: int
    generations: dict[int, int] = field(default_factory=dict)

    def generation(self, job: int) -> int:
        return self.generations.setdefault(job, GENERATION)


Entries = dict[tuple[int, int], Entry]  # by job and tree


def at_switch_now(state: State) -> Entries:
    """Return the switch's entries, in the jobs' present generations."""
    made = {
        (JOB, 0): job_in_unit(2),
        (JOB, 1): job_across(tree=1, workers=0b1, places=0b10, number=0, base=SECOND_BASE),
        (OTHER, 0): job_in_unit(2, base=OTHER_BASE, group_ip="239.192.0.8"),
        (ACROSS, 0): job_across(places=1 << 5, base=ACROSS_BASE, group_ip="239.192.0.9"),
        (TRANSIT, 0): job_passing(group_ip="239.192.0.10"),
    }
    return {key: replace(entry, generation=state.generation(key[0])) for key, entry in made.items()}


def at_host_now(state: State) -> Entries:
    """Return the host's entries, in the jobs' present generations."""
    upwards: dict[str, Any] = {"up_ip": TOR_IP, "up_base": ACROSS_BASE, "result_base": ACROSS_BASE}
    made = {
        (OTHER, 0): job_at_ps(2, workers=0b1000),
        (ACROSS, 0): job_at_ps(2, base=MIDDLE_BASE, group_ip="239.192.0.9", **upwards),
        (TRANSIT, 0): job_at_ps(2, base=RELAYED_BASE, group_ip=NO_IP, **upwards),
    }
    return {key: replace(entry, generation=state.generation(key[0])) for key, entry in made.items()}


def puller(state: State) -> Puller:
    return Puller(JOB, state.generation(JOB), (UP_BASE, 7), SIZE, spec.LANES, PS_IP, PS_MAC)


def _lacking(random: np.random.Generator) -> dict[str, int]:
    """Draw the fields by which a partial sum or a result says which contributions it lacks."""
    return {
        "contributors": int(random.integers(0, 70)),
        "flags": int(random.integers(0, 16)),
        "age": int(random.choice((0, 1, 65535))),
    }


Sent = tuple[bytes, int]  # a frame, and the port where it belongs


def at_switch(state: State, random: np.random.Generator) -> list[Sent]:
    """Draw the switch's packets of the next batch."""
    sent: list[Sent] = []
    for at in _window(state, random):
        for number, tree, base, first, workers in (
            (JOB, 0, 48, 1, (0, 1)),
            (JOB, 1, SECOND_BASE, 1, (0,)),
            (OTHER, 0, OTHER_BASE, 3, (0, 1)),
            (ACROSS, 0, ACROSS_BASE, 6, (1, 3)),
        ):
            fields: dict[str, Any] = {
                "job": number,
                "tree": tree,
                "generation": state.generation(number),
                "slot": base + at % SIZE,
            }
            fields |= {"count": int(random.integers(0, spec.LANES + 1)), "flags": int(random.integers(0, 16))}
            for place, worker in enumerate(workers):
                pushed = (empty if random.random() < 0.3 else push)(worker, at, **fields)
                sent.append((pushed, first + place))
                if random.random() < 0.3:
                    fields_now = {
                        key: value for key, value in fields.items() if key not in ("count", "flags")
                    }
                    sent += _questions(random, at, worker, first + place, TOR_IP, **fields_now)
            if number == ACROSS or tree:
                below, port = (5, int(random.choice((204, PS_PORT)))) if number == ACROSS else (1, 202)
                sent.append((partial(below, at, to_ip=TOR_IP, **{**fields, **_lacking(random)}), port))
            if random.random() < 0.2:
                sent.append((tick(at, **{**fields, "age": int(random.integers(0, 2**16))}), CONTROL_PORT))
    for at in _window(state, random)[:3]:
        for number, tree, group, ports in (
            (ACROSS, 0, 9, (PS_PORT, 201, 202)),
            (TRANSIT, 0, 10, (203, 201)),
            (JOB, 0, 7, (201,)),
            (JOB, 1, 7, (201,)),
        ):
            fields = {"job": number, "generation": state.generation(number), "to_ip": f"239.192.0.{group}"}
            fields |= {"tree": tree, **_lacking(random)}
            port = ports[int(random.integers(0, len(ports)))]
            sent.append((result_from_ps(at, worker_lanes(9, at % 7), **fields), port))
            fields = {"job": number, "generation": state.generation(number), "flags": 4, "count": 0}
            for to_ip in (TOR_IP, "10.0.2.254"):
                sent.append((packet(spec.Op.NOTICE, at, frame.NO_LANES, PS_IP, to_ip, **fields).pack(), port))
        fields = {"job": ACROSS, "generation": state.generation(ACROSS), **_lacking(random)}
        sent.append((result_from_ps(at, worker_lanes(9, at % 7), to_ip="10.0.1.3", **fields), PS_PORT))
        sent.append((partial(0, at, job=OTHER), 204))
        sent.append((push(0, at, to_ip=TOR_IP, job=JOB), 201))
    return _serviced(sent, random)


def at_host(state: State, random: np.random.Generator) -> list[Sent]:
    """Draw the host's packets of the next batch."""
    sent: list[Sent] = []
    for at in _window(state, random):
        for number, base in ((OTHER, UP_BASE), (ACROSS, MIDDLE_BASE), (TRANSIT, RELAYED_BASE)):
            fields: dict[str, Any] = {"job": number, "generation": state.generation(number)}
            fields["slot"] = base + at % SIZE
            sent += [(partial(unit, at, **{**fields, **_lacking(random)}), 1) for unit in (0, 1)]
            sent += _questions(random, at, int(random.integers(0, 2)), 1, PS_IP, **fields)
            if number == OTHER:
                sent.append((push(3, at, to_ip=LOOP_PLACE_IP, **fields), LOOP_PORT))
                sent += _questions(random, at, 3, LOOP_PORT, LOOP_PLACE_IP, **fields)
            if random.random() < 0.2:
                sent.append((tick(at, **{**fields, "age": int(random.integers(0, 2**16))}), CONTROL_PORT))
        for number, tree, slot in (
            (JOB, 0, UP_BASE + at % SIZE),
            (JOB, 1, 7 + at % SIZE),
            (ACROSS, 0, ACROSS_BASE + at % SIZE),
            (TRANSIT, 0, ACROSS_BASE + at % SIZE),
        ):
            fields = {"job": number, "generation": state.generation(number), "tree": tree, "slot": slot}
            fields |= {ACROSS: {"to_ip": "239.192.0.9"}, TRANSIT: {"to_ip": PS_IP}}.get(number, {})
            result = result_from_ps(at, worker_lanes(9, at % 7), **fields, **_lacking(random))
            sent += [(result, 1)] * 2
    at = state.fragment
    fields = {"generation": state.generation(JOB), "flags": 4, "count": 0}
    sent.append((packet(spec.Op.NOTICE, at, frame.NO_LANES, TOR_IP, PS_IP, **fields).pack(), 1))
    sent.append(
        (packet(spec.Op.NOTICE, at, frame.NO_LANES, TOR_IP, PS_IP, **{**fields, "job": OTHER}).pack(), 1)
    )
    sent += _questions(random, at, 0, 1, PS_IP, generation=state.generation(JOB))
    sent += [(pushed(0, at, to_ip=PS_IP), 1) for pushed in (push, empty)]
    return _serviced(sent, random)


def _questions(
    random: np.random.Generator, at: int, asker: int, port: int, to_ip: str, **fields: Any
) -> list[Sent]:
    """Draw a question about fragments from `at` on, some of them already answered, and an answer with the
    same lanes to another host.
    """
    lanes = np.zeros(spec.LANES, np.uint32)
    count = int(random.choice((0, 1, SIZE // 2, SIZE, recovery.MOST, recovery.MOST + 1)))
    for place in range(count):
        known = int(random.choice((0, 0, 0, 1, 2, 3)))
        lanes[place] = known << recovery.SHIFT | (at + place) % SIZE
    if random.random() < 0.1:
        lanes[int(random.integers(0, spec.LANES))] = int(random.choice((SIZE, 2**16 - 1, 2**18, 2**32 - 1)))
    fields = {**fields, "data": lanes, "count": count, "flags": int(random.integers(0, 16))}
    answered = push(asker, at, op=spec.Op.ANSWER, **{**fields, "to_ip": "10.0.1.3"})
    return [(push(asker, at, op=spec.Op.QUESTION, to_ip=to_ip, **fields), port), (answered, port)]


def _window(state: State, random: np.random.Generator) -> list[int]:
    """Return the fragments within the window, an older one, and one that is too early."""
    near = [state.fragment + ahead for ahead in range(AHEAD)]
    far = [
        state.fragment - int(random.integers(1, 2 * SIZE)),
        state.fragment + int(random.integers(AHEAD, 3 * SIZE)),
    ]
    return [at % 2**32 for at in (*near, *far)]


def _serviced(sent: Sequence[Sent], random: np.random.Generator) -> list[Sent]:
    """Give the packets random types of service: with and without congestion experienced, and of several
    classes (RFC 2474, RFC 3168).
    """
    made = []
    for data, port in sent:
        ip = data[14:15] + bytes([int(random.choice(SERVICES))]) + data[16:24] + b"\0\0" + data[26:34]
        made.append((data[:14] + ip[:10] + frame.checksum(ip).to_bytes(2, "big") + ip[12:] + data[34:], port))
    return made


Palette = Callable[[State, np.random.Generator], Sequence[Sent]]
