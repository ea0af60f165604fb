"""Vectors of empty pushes, whose zeros are not sent but count as the worker's contribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.aggregation.entries import Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.output_ports import To
from testbed.topology.addresses import CONTROL_PORT, LOOP_PLACE_IP
from testbed.wire import frame, spec
from testbed.wire.frame import CE, ECT
from tests.vectors.build import (
    BASE,
    GENERATION,
    JOB,
    OTHER_IP,
    PS_IP,
    SIZE,
    Table,
    Vector,
    altered,
    empty,
    job_across,
    job_at_ps,
    job_in_unit,
    lanes,
    notice,
    partial_sum,
    push,
    result,
    result_from_ps,
    unchanged,
    vector,
    worker_lanes,
    workers_at_ports,
)

TABLE: Table = {}
entry = vector(TABLE)
ZEROS = np.zeros(spec.LANES, np.uint32)


def job_of(v: Vector, workers: int) -> None:
    v.senders |= workers_at_ports(range(workers))
    v.admit(job_in_unit(workers))


@entry
def an_empty_push_counts_as_zeros(v: Vector) -> None:
    job_of(v, 3)
    for fragment, owner in enumerate((0, 1, 2)):
        for worker in range(3):
            leaves = [result(fragment, worker_lanes(owner, fragment), 3)] if worker == 2 else []
            verdict = "completed" if leaves else "aggregated"
            (v.push if worker == owner else v.empty)(worker, fragment, verdict, *leaves)


@entry
def empty_pushes_alone_sum_to_zeros(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 1, "aggregated")
    v.push(1, 1, "completed", result(1, worker_lanes(0, 1) + worker_lanes(1, 1), 2))
    later = 1 + SIZE  # the slot still holds that sum; nothing of it may enter the next
    v.empty(1, later, "aggregated")
    v.empty(0, later, "completed", result(later, ZEROS, 2))
    v.empty(1, later, "resent", result(later, ZEROS, 2, To.BACK))


@entry
def an_empty_push_of_one_worker_is_its_sum(v: Vector) -> None:
    job_of(v, 1)
    v.empty(0, 0, "completed", result(0, ZEROS, 1))


@entry
def an_empty_push_counts_once(v: Vector) -> None:
    job_of(v, 3)
    v.empty(0, 4, "aggregated")
    v.empty(0, 4, "duplicate", flags=int(spec.Flag.RETRANSMIT))
    v.push(0, 4, "duplicate")
    v.push(2, 4, "aggregated")
    v.empty(2, 4, "duplicate")
    v.empty(1, 4, "completed", result(4, worker_lanes(2, 4), 3))


@entry
def an_empty_push_asks_for_the_sum_again(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 4, "aggregated", count=17)
    v.empty(1, 4, "completed", result(4, worker_lanes(0, 4), 2, count=18), count=18)
    again = result(4, worker_lanes(0, 4), 2, To.BACK, count=18)
    v.empty(1, 4, "resent", again, count=5, age=9, flags=int(spec.Flag.RETRANSMIT))
    v.empty(0, 4, "resent", again)
    v.push(1, 4, "resent", again, data=lanes(99))


@entry
def an_empty_push_keeps_to_its_slot(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, SIZE + 2, "aggregated")
    v.empty(1, 2, "stale")
    v.empty(1, 2 * SIZE + 2, "mismatch", notice(1, 2 * SIZE + 2, "10.0.1.2"))
    v.empty(1, 2, "bad_slot", slot=BASE + SIZE)
    v.empty(1, 2, "bad_slot", slot=BASE - 1)
    v.empty(1, SIZE + 2, "completed", result(SIZE + 2, worker_lanes(0, SIZE + 2), 2))


@entry
def an_empty_push_is_checked_as_a_push_is(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 0, "aggregated")
    v.empty(1, 0, "bad_job", job=JOB, tree=1)
    v.empty(1, 0, "bad_generation", generation=GENERATION + 1)
    v.empty(1, 0, "malformed", lanes=64, count=64)
    v.empty(1, 0, "malformed", lanes=0, count=0)
    v.empty(1, 0, "malformed", count=spec.LANES + 1)
    v.empty(1, 0, "malformed", data=lanes(1))
    v.sees(push(1, 0, data=frame.NO_LANES), 2, "malformed")
    v.sees(altered(empty(1, 0), 40, b"\0\0"), 2, "corrupt")
    v.sees(altered(empty(1, 0), 60, b"\1"), 2, "corrupt")
    v.empty(1, 0, "bad_sender", port=1)
    v.empty(1, 0, "bad_sender", port=CONTROL_PORT)
    v.empty(1, 0, "malformed", to_ip="239.192.0.7")
    v.empty(5, 0, "bad_worker", port=201)
    v.sees(empty(1, 0) + bytes(90), 2, "completed", result(0, worker_lanes(0, 0), 2))


@entry
def bytes_behind_an_empty_push_are_no_lanes(v: Vector) -> None:
    job_of(v, 2)
    for fragment, behind in enumerate((1, 90, 4 * spec.LANES)):
        v.push(0, fragment, "aggregated")
        padded = empty(1, fragment) + b"\xff" * behind
        v.sees(padded, 2, "completed", result(fragment, worker_lanes(0, fragment), 2))
        v.sees(padded, 2, "resent", result(fragment, worker_lanes(0, fragment), 2, To.BACK))
    v.sees(empty(0, 7) + b"\xff" * 90, 1, "aggregated")
    v.push(1, 7, "completed", result(7, worker_lanes(1, 7), 2))


@entry
def an_empty_push_for_another_place_goes_on(v: Vector) -> None:
    job_of(v, 2)
    v.empty(1, 0, "forwarded", unchanged(To.ROUTE), to_ip=OTHER_IP)


@entry
def queues_mark_empty_pushes_as_well(v: Vector) -> None:
    job_of(v, 2)
    v.empty(0, 0, "aggregated", tos=CE)
    v.push(1, 0, "completed", result(0, worker_lanes(1, 0), 2, tos=CE), tos=ECT)
    v.push(0, 1, "aggregated", tos=ECT)
    v.empty(1, 1, "completed", result(1, worker_lanes(0, 1), 2, tos=CE), tos=CE)
    v.push(0, 2, "aggregated", tos=CE)
    v.empty(1, 2, "completed", result(2, worker_lanes(0, 2), 2, tos=0xB8 | CE), tos=0xB8)


@entry
def an_empty_push_completes_a_partial_sum(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(job_across())
    v.push(1, 5, "aggregated")
    v.empty(3, 5, "completed", partial_sum(5, worker_lanes(1, 5)))
    v.empty(3, 5, "resent", partial_sum(5, worker_lanes(1, 5)))
    v.empty(1, 6, "aggregated")
    v.empty(3, 6, "completed", partial_sum(6, ZEROS))
    v.sees(result_from_ps(5, worker_lanes(9, 5)), 201, "result", unchanged(To.OTHERS))
    kept = result(5, worker_lanes(9, 5), 5, To.BACK, slot=128 + 5)
    v.empty(3, 5, "resent", kept)


@entry
def an_empty_push_that_is_late_is_answered(v: Vector) -> None:
    job_of(v, 3)
    missing: dict[str, Any] = {"flags": int(spec.Flag.FINAL | spec.Flag.DEGRADED)}
    v.empty(0, 3, "aggregated")
    v.push(1, 3, "aggregated")
    v.tick(3, "ticked", result(3, worker_lanes(1, 3), 2, age=7, **missing), age=7)
    v.empty(2, 3, "late", result(3, worker_lanes(1, 3), 2, To.BACK, age=7, **missing))


@entry
def an_empty_push_of_few_lanes(v: Vector) -> None:
    v.senders |= workers_at_ports(range(2))
    v.admit(job_in_unit(2, lanes=64))
    few = {"lanes": 64, "count": 64}
    v.push(0, 0, "aggregated", data=worker_lanes(0, 0)[:64])
    v.empty(1, 0, "completed", result(0, worker_lanes(0, 0)[:64], 2), **few)
    v.empty(1, 1, "aggregated", **few)
    v.push(0, 1, "completed", result(1, worker_lanes(0, 1)[:64], 2), data=worker_lanes(0, 1)[:64])


def a_host_takes_no_empty_push() -> Vector:
    v = Vector("a host takes no empty push", is_host=True)
    v.senders[LOOP_PORT] = (Sender(JOB, 3),)
    v.admit(job_at_ps(2, workers=0b11000))
    v.empty(3, 0, "bad_sender", port=LOOP_PORT, slot=128, to_ip=LOOP_PLACE_IP)
    v.empty(4, 0, "bad_sender", port=1, slot=128, to_ip=PS_IP)
    return v


_at_host = a_host_takes_no_empty_push()
TABLE[_at_host.name] = _at_host
