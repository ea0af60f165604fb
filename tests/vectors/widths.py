"""Vectors of trees whose packets have fewer lanes than the fabric's MTU allows."""

from __future__ import annotations

from typing import Any

from testbed.aggregation.entries import Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.output_ports import To
from testbed.reference_model.pull import Puller
from testbed.wire import spec
from tests.vectors.build import (
    BASE,
    GENERATION,
    JOB,
    OPTICAL,
    PS_IP,
    PS_MAC,
    SIZE,
    UP_BASE,
    Attach,
    Lanes,
    Table,
    Vector,
    job_across,
    job_at_ps,
    job_in_unit,
    lanes,
    notice,
    partial,
    partial_sum,
    push,
    result,
    result_from_ps,
    total,
    unchanged,
    vector,
    workers_at_ports,
)
from tests.vectors.forest import own
from tests.vectors.pulls import finds, stored

TABLE: Table = {}
entry = vector(TABLE)
WIDTHS = (1, 2, 64, 66, 101, 128, 254, 256, 320, spec.LANES - 2)


def few(width: int, *seed: int) -> Lanes:
    return lanes(*seed)[:width]


@entry
def sums_of_few_lanes(v: Vector) -> None:
    """One width after another in the same slots: nothing of a wider job's lanes may remain."""
    v.senders |= workers_at_ports([0, 1])
    for generation, width in enumerate((spec.LANES, *WIDTHS), GENERATION):
        its: dict[str, Any] = {"generation": generation}
        v.admit(job_in_unit(2, lanes=width, **its))
        for fragment in (2, SIZE + 2):
            parts = [few(width, worker, fragment, width) for worker in (0, 1)]
            v.push(0, fragment, "aggregated", data=parts[0], **its)
            v.push(0, fragment, "duplicate", data=parts[0], **its)
            v.push(1, fragment, "completed", result(fragment, total(*parts), 2, **its), data=parts[1], **its)
            v.push(
                0,
                fragment,
                "resent",
                result(fragment, total(*parts), 2, To.BACK, **its),
                data=parts[0],
                **its,
            )
        v.release()


@entry
def lanes_are_the_trees(v: Vector) -> None:
    v.senders |= workers_at_ports([0, 1])
    v.admit(job_in_unit(2, lanes=64))
    v.admit(job_in_unit(2, tree=1, base=BASE + SIZE))
    v.push(0, 2, "aggregated", data=few(64, 1))
    for width in (62, 66, spec.LANES):
        v.push(1, 2, "malformed", data=few(width, 2))
    v.push(1, 2, "malformed", data=few(64, 2), lanes=66)
    v.push(1, 2, "malformed", data=few(64, 2), count=65)
    v.push(0, 2, "malformed", data=few(64, 1), tree=1, slot=BASE + SIZE + 2)
    v.push(0, 2, "aggregated", data=lanes(1), tree=1, slot=BASE + SIZE + 2)
    v.sees(push(1, 2, data=few(64, 2))[:-1], 2, "malformed")
    v.sees(
        push(1, 2, data=few(64, 2)) + b"behind", 2, "completed", result(2, total(few(64, 1), few(64, 2)), 2)
    )


@entry
def a_few_lanes_go_up_and_come_back(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(job_across(lanes=64))
    parts = [few(64, 1), few(64, 3)]
    v.push(1, 2, "aggregated", data=parts[0])
    v.push(3, SIZE + 2, "mismatch", notice(3, SIZE + 2, "10.0.1.4", lanes=64), data=parts[1])
    v.push(3, 2, "completed", partial_sum(2, total(*parts)), data=parts[1])
    v.sees(result_from_ps(2, lanes(9)), OPTICAL[0], "malformed")
    v.sees(result_from_ps(2, few(64, 9)), OPTICAL[0], "result", unchanged(To.OTHERS))
    v.push(1, 2, "resent", result(2, few(64, 9), 5, To.BACK, slot=UP_BASE + 2), data=parts[0])
    v.push(1, 3, "aggregated", data=parts[0])
    degraded: dict[str, Any] = {"flags": int(spec.Flag.DEGRADED), "contributors": 1, "age": 4}
    v.tick(3, "ticked", partial_sum(3, parts[0], **degraded), age=4, lanes=64)
    v.tick(3, "malformed", age=4)


@entry
def a_worker_pulls_few_lanes(v: Vector) -> None:
    v.is_host = True
    v.steps.append(Attach(Puller(JOB, GENERATION, (UP_BASE,), SIZE, 128, PS_IP, PS_MAC)))
    v.sees(result_from_ps(2, lanes(2)), 1, "malformed")
    v.sees(result_from_ps(2, few(64, 2)), 1, "malformed")
    v.sees(result_from_ps(2, few(128, 2)), 1, "pulled")
    v.sees(result_from_ps(SIZE + 2, few(128, 3)), 1, "pulled")
    finds(v, 2, p2=stored(SIZE + 2, few(128, 3)))


@entry
def a_host_sums_few_lanes(v: Vector) -> None:
    v.is_host = True
    v.senders[LOOP_PORT] = (Sender(JOB, 3),)
    v.admit(job_at_ps(1, workers=0b1000, lanes=64))
    parts = [few(64, 0), few(64, 3)]
    v.sees(own(2, data=parts[1]), LOOP_PORT, "aggregated")
    leaves = result(2, total(*parts), 3, To.GROUP, PS_IP, slot=UP_BASE + 2)
    v.sees(partial(0, 2, data=parts[0]), 1, "completed", leaves)
