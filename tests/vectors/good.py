"""Packets, well formed or nearly, for a switch and for a host that each sum two jobs: the originals of the
mutations.
"""

from __future__ import annotations

from typing import Any

from testbed.wire import frame, spec
from tests.vectors.build import (
    BASE,
    PS_IP,
    SIZE,
    UP_BASE,
    empty,
    packet,
    partial,
    push,
    result_from_ps,
    tick,
    worker_lanes,
)

OTHER, OTHER_GENERATION = 8, 4
OTHER_BASE, OTHER_UP_BASE = BASE + 5 * SIZE, UP_BASE + 2 * SIZE


def at_switch() -> list[bytes]:
    """Return packets for a switch from workers of both jobs, from a PS and from other switches."""
    other: dict[str, Any] = {"job": OTHER, "generation": OTHER_GENERATION, "data": worker_lanes(9, 9)}
    made = [push(worker, fragment) for worker in (0, 1) for fragment in (0, 1, SIZE)]
    made += [
        push(worker, at, slot=OTHER_BASE + at % SIZE, **other) for worker in (0, 1) for at in (0, 5, SIZE + 5)
    ]
    made += [push(worker, at, slot=BASE + at, **other) for worker in (0, 1) for at in (0, 5)]
    made += [empty(worker, fragment) for worker in (0, 1) for fragment in (2, SIZE + 1)]
    made += [
        result_from_ps(1, worker_lanes(9, 1), slot=BASE + 1),
        partial(0, 1),
        partial(1, 1, slot=BASE + 1),
    ]
    notice = packet(spec.Op.NOTICE, 1, frame.NO_LANES, PS_IP, "10.0.1.254", flags=4, count=0)
    return [
        *made,
        notice.pack(),
        tick(1),
        tick(SIZE),
        tick(0, slot=OTHER_BASE, job=OTHER, generation=OTHER_GENERATION),
    ]


def at_ps() -> list[bytes]:
    """Return packets for a PS host: partial sums of the other job, in its own slots and in JOB's, and ticks
    of both jobs.
    """
    other: dict[str, Any] = {"job": OTHER, "generation": OTHER_GENERATION, "data": worker_lanes(9, 9)}
    made = [
        partial(unit, at, slot=OTHER_UP_BASE + at % SIZE, **other)
        for unit in (0, 1)
        for at in (0, 5, SIZE + 5)
    ]
    return [
        *made,
        *(partial(unit, at, slot=UP_BASE + at % SIZE, **other) for unit in (0, 1) for at in (0, 5)),
        *(tick(at, slot=UP_BASE + at % SIZE) for at in (0, 5)),
        tick(5, slot=OTHER_UP_BASE + 5, job=OTHER, generation=OTHER_GENERATION),
    ]
