"""The places that the fuzz shoots at, and what is sent to them, good or nearly: jobs that sum on while
everything else happens.

A switch has two jobs of its own, one whose partial sums go to a parameter server at one of its ports, one
that only passes, a host without a job and ports to other switches. A host has a worker of one job and the
parameter server of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from testbed.contract import frame, spec
from testbed.inc.job import Job, Role, Sender
from testbed.simulation.pull import Puller
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
    job_across,
    job_at_ps,
    job_in_unit,
    packet,
    partial,
    push,
    result_from_ps,
    worker_lanes,
)
from tests.vectors.good import OTHER, OTHER_BASE

ACROSS, TRANSIT = 9, 10
ACROSS_BASE = 256
PS_PORT, IDLE_PORT = 8, 5
SWITCH_PORTS = (1, 2, 3, 4, IDLE_PORT, 6, 7, PS_PORT, *FABRIC)
BINDINGS = {
    **{1: Sender(JOB, 0), 2: Sender(JOB, 1), 3: Sender(OTHER, 0), 4: Sender(OTHER, 1), IDLE_PORT: None},
    **{6: Sender(ACROSS, 1), 7: Sender(ACROSS, 3), PS_PORT: Sender(ACROSS, None)},
}
GROUPS = {JOB: (1, 2, *OPTICAL), OTHER: (3, 4), ACROSS: (6, 7, *OPTICAL), TRANSIT: OPTICAL}
SERVICES = (0, 0, 0, 1, 2, 3, 3, 12, 15, 0xB8, 0xFF)
AHEAD = SIZE // 2
FRAGMENTS = (0, 2**31 - 200, 2**32 - 200)  # where a run's fragments may begin


@dataclass(slots=True)
class State:
    """How far the jobs of a place are."""

    fragment: int
    generations: dict[int, int] = field(default_factory=dict)

    def generation(self, job: int) -> int:
        return self.generations.setdefault(job, GENERATION)


def jobs_at_switch(state: State) -> dict[int, Job]:
    """As they are admitted now."""
    made = {
        JOB: job_in_unit(2),
        OTHER: job_in_unit(2, base=OTHER_BASE, group_ip="239.192.0.8"),
        ACROSS: job_across(base=ACROSS_BASE, group_ip="239.192.0.9"),
        TRANSIT: job_across(
            role=Role.TRANSIT, members=0, size=0, base=0, local=0, index=0, group_ip="239.192.0.10"
        ),
    }
    return {number: replace(job, generation=state.generation(number)) for number, job in made.items()}


def job_at_host(state: State) -> Job:
    return job_at_ps(2, generation=state.generation(OTHER))


def puller(state: State) -> Puller:
    return Puller(JOB, state.generation(JOB), UP_BASE, SIZE, PS_IP, PS_MAC)


Sent = tuple[bytes, int]  # a frame, and the port that it comes by when nothing is wrong


def at_switch(state: State, random: np.random.Generator) -> list[Sent]:
    """What is sent to a switch at this stage."""
    sent: list[Sent] = []
    for at in _window(state, random):
        for number, base, first, workers in (
            (JOB, 48, 1, (0, 1)),
            (OTHER, OTHER_BASE, 3, (0, 1)),
            (ACROSS, ACROSS_BASE, 6, (1, 3)),
        ):
            fields: dict[str, Any] = {
                "job": number,
                "generation": state.generation(number),
                "slot": base + at % SIZE,
            }
            fields |= {"count": int(random.integers(0, spec.LANES + 1)), "flags": int(random.integers(0, 16))}
            sent += [(push(worker, at, **fields), first + place) for place, worker in enumerate(workers)]
    for at in _window(state, random)[:3]:
        for number, group, ports in (
            (ACROSS, 9, (PS_PORT, 201, 202)),
            (TRANSIT, 10, (203, 201)),
            (JOB, 7, (201,)),
        ):
            fields = {"job": number, "generation": state.generation(number), "to_ip": f"239.192.0.{group}"}
            port = ports[int(random.integers(0, len(ports)))]
            sent.append((result_from_ps(at, worker_lanes(9, at % 7), **fields), port))
            told = {"job": number, "generation": state.generation(number), "flags": 4, "count": 0}
            for to_ip in (TOR_IP, "10.0.2.254"):
                sent.append((packet(spec.Op.NOTICE, at, frame.NO_LANES, PS_IP, to_ip, **told).pack(), port))
        sent.append((partial(0, at, job=OTHER), 204))
        sent.append((push(0, at, to_ip=TOR_IP, job=JOB), 201))
    return _serviced(sent, random)


def at_host(state: State, random: np.random.Generator) -> list[Sent]:
    """What is sent to a host at this stage."""
    sent: list[Sent] = []
    for at in _window(state, random):
        fields = {"job": OTHER, "generation": state.generation(OTHER)}
        sent += [(partial(unit, at, **fields), 1) for unit in (0, 1)]
        fields = {"job": JOB, "generation": state.generation(JOB)}
        fields |= {"contributors": int(random.integers(1, 65)), "flags": int(random.integers(0, 16))}
        sent += [(result_from_ps(at, worker_lanes(9, at % 7), **fields), 1)] * 2
    at = state.fragment
    told = {"generation": state.generation(JOB), "flags": 4, "count": 0}
    sent.append((packet(spec.Op.NOTICE, at, frame.NO_LANES, TOR_IP, PS_IP, **told).pack(), 1))
    sent.append(
        (packet(spec.Op.NOTICE, at, frame.NO_LANES, TOR_IP, PS_IP, **{**told, "job": OTHER}).pack(), 1)
    )
    sent.append((push(0, at, to_ip=PS_IP), 1))
    return _serviced(sent, random)


def _window(state: State, random: np.random.Generator) -> list[int]:
    """Fragments under way, and two that are out of it: an older one, and one that comes too early."""
    near = [state.fragment + ahead for ahead in range(AHEAD)]
    far = [
        state.fragment - int(random.integers(1, 2 * SIZE)),
        state.fragment + int(random.integers(AHEAD, 3 * SIZE)),
    ]
    return [at % 2**32 for at in (*near, *far)]


def _serviced(sent: Sequence[Sent], random: np.random.Generator) -> list[Sent]:
    """With types of service of all kinds: congestion experienced or not, and other classes (RFC 2474, RFC
    3168).
    """
    made = []
    for data, port in sent:
        ip = data[14:15] + bytes([int(random.choice(SERVICES))]) + data[16:24] + b"\0\0" + data[26:34]
        made.append((data[:14] + ip[:10] + frame.checksum(ip).to_bytes(2, "big") + ip[12:] + data[34:], port))
    return made


Palette = Callable[[State, np.random.Generator], Sequence[Sent]]
