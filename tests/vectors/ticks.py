"""Vectors of sums completed without all contributors: ticks, what they degrade, and contributions that come
too late.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.aggregation.entries import Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.output_ports import To
from testbed.topology.addresses import CONTROL_PORT
from testbed.wire import frame, spec
from tests.vectors.build import (
    BASE,
    GENERATION,
    JOB,
    OPTICAL,
    PS_IP,
    SIZE,
    TOR_IP,
    UP_BASE,
    Table,
    Vector,
    altered,
    job_across,
    job_at_ps,
    job_in_unit,
    job_passing,
    lanes,
    packet,
    partial,
    partial_sum,
    push,
    result,
    result_from_ps,
    sum_of,
    tick,
    unchanged,
    vector,
    worker_lanes,
    workers_at_ports,
)
from tests.vectors.forest import own

TABLE: Table = {}
entry = vector(TABLE)
DEGRADED = int(spec.Flag.DEGRADED)
NOBODYS = np.zeros(spec.LANES, np.uint32)
LACKING = int(spec.Flag.FINAL | spec.Flag.DEGRADED)


def three(v: Vector) -> None:
    v.senders |= workers_at_ports([0, 1, 2])
    v.admit(job_in_unit(3))


def leaving_out() -> dict[str, Any]:
    """Return the fields of a push whose worker leaves its values out."""
    return {"data": NOBODYS, "flags": DEGRADED, "contributors": 0}


@entry
def a_tick_completes_a_slot(v: Vector) -> None:
    three(v)
    v.push(0, 2, "aggregated", count=7)
    v.push(2, 2, "aggregated", count=9)
    lacking: dict[str, Any] = {"flags": LACKING, "age": 37, "count": 9}
    v.tick(2, "ticked", result(2, sum_of(2, 0, 2), 2, **lacking), age=37)
    v.tick(2, "tick_late", age=99)
    again = result(2, sum_of(2, 0, 2), 2, To.BACK, **lacking)
    v.push(0, 2, "resent", again)
    v.push(1, 2, "late", again)  # worker 1's gradients are in no sum
    v.push(1, 2, "late", again, data=lanes(99), flags=int(spec.Flag.RETRANSMIT))
    v.push(1, SIZE + 2, "aggregated")
    v.push(0, SIZE + 2, "aggregated")
    # not degraded: the slot kept nothing
    v.push(2, SIZE + 2, "completed", result(SIZE + 2, sum_of(SIZE + 2, 0, 1, 2), 3))
    v.push(1, 2, "stale")


@entry
def a_worker_that_leaves_its_values_out_is_there_and_no_contributor(v: Vector) -> None:
    three(v)
    out = leaving_out()
    v.push(0, 2, "aggregated")
    v.push(1, 2, "aggregated", **out)
    v.push(1, 2, "duplicate", **{**out, "flags": DEGRADED | int(spec.Flag.RETRANSMIT)})
    v.push(2, 2, "completed", result(2, sum_of(2, 0, 2), 2, flags=LACKING))
    v.push(1, 2, "resent", result(2, sum_of(2, 0, 2), 2, To.BACK, flags=LACKING), **out)
    # the flag counts, not the number of contributors
    v.push(2, 3, "aggregated", **{**out, "contributors": 7})
    v.push(0, 3, "aggregated", contributors=7)
    v.push(1, 3, "completed", result(3, sum_of(3, 0, 1), 2, flags=LACKING))
    v.push(0, SIZE + 2, "aggregated")  # the slot kept nothing
    v.push(1, SIZE + 2, "aggregated")
    v.push(2, SIZE + 2, "completed", result(SIZE + 2, sum_of(SIZE + 2, 0, 1, 2), 3))


@entry
def a_tick_completes_a_slot_that_has_nobodys_values(v: Vector) -> None:
    """The missing worker may never push."""
    three(v)
    out = leaving_out()
    v.push(0, 2, "aggregated", **out)
    lacking: dict[str, Any] = {"flags": LACKING, "age": 37}
    v.tick(2, "ticked", result(2, NOBODYS, 0, **lacking), age=37)
    v.tick(2, "tick_late")
    v.push(1, 2, "late", result(2, NOBODYS, 0, To.BACK, **lacking), **out)
    v.push(2, 2, "late", result(2, NOBODYS, 0, To.BACK, **lacking))
    v.push(0, 3, "aggregated", **out)
    v.push(1, 3, "aggregated", **out)
    v.tick(3, "ticked", result(3, NOBODYS, 0, flags=LACKING))
    v.push(2, 4, "aggregated")
    v.push(0, 4, "aggregated", **out)
    v.tick(4, "ticked", result(4, worker_lanes(2, 4), 1, flags=LACKING))
    for worker in (0, 1):
        v.push(worker, 5, "aggregated", **out)
    v.push(2, 5, "completed", result(5, NOBODYS, 0, flags=LACKING), **out)


@entry
def a_place_is_ticked_that_has_nobodys_values(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(job_across())
    v.push(1, 2, "aggregated", **leaving_out())
    nobodys = partial_sum(2, NOBODYS, contributors=0, flags=DEGRADED, age=12)
    v.tick(2, "ticked", nobodys, age=12)
    v.push(3, 2, "late", nobodys)


@entry
def a_place_passes_on_that_its_workers_left_their_values_out(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(job_across())
    out = leaving_out()
    v.push(1, 2, "aggregated", **out)
    v.push(3, 2, "completed", partial_sum(2, worker_lanes(3, 2), contributors=1, flags=DEGRADED))
    v.push(1, 3, "aggregated", **out)
    v.push(3, 3, "completed", partial_sum(3, NOBODYS, contributors=0, flags=DEGRADED), **out)


@entry
def a_tick_that_comes_too_late_changes_nothing(v: Vector) -> None:
    three(v)
    v.tick(2, "tick_late")  # the slot is still empty
    v.push(0, SIZE + 2, "aggregated")
    for fragment in (2, 2 * SIZE + 2):
        v.tick(fragment, "tick_late")
    v.push(1, SIZE + 2, "aggregated")
    v.push(2, SIZE + 2, "completed", result(SIZE + 2, sum_of(SIZE + 2, 0, 1, 2), 3))
    v.tick(SIZE + 2, "tick_late")
    v.push(0, SIZE + 2, "resent", result(SIZE + 2, sum_of(SIZE + 2, 0, 1, 2), 3, To.BACK))
    v.push(0, 2 * SIZE + 2, "aggregated")
    v.release()
    v.tick(2 * SIZE + 2, "bad_job")
    v.admit(job_in_unit(3, generation=GENERATION + 1))
    v.tick(2 * SIZE + 2, "bad_generation")
    # the slot holds a fragment of another generation
    v.tick(2 * SIZE + 2, "tick_late", generation=GENERATION + 1)


@entry
def a_tick_that_is_for_nobody(v: Vector) -> None:
    three(v)
    v.admit(job_passing(generation=4), 8)
    v.push(0, 2, "aggregated")
    v.tick(2, "bad_job", job=9)
    v.tick(2, "bad_job", tree=1)
    v.tick(2, "bad_generation", generation=GENERATION + 1)
    v.tick(2, "bad_slot", slot=BASE + SIZE)
    v.tick(2, "bad_slot", slot=BASE - 1)
    v.tick(2, "bad_worker", job=8, generation=4)
    v.sees(tick(2)[:-1], CONTROL_PORT, "malformed")
    v.sees(altered(tick(2), 40, b"\0\0"), CONTROL_PORT, "corrupt")
    v.tick(2, "ticked", result(2, worker_lanes(0, 2), 1, flags=LACKING))


@entry
def ticks_come_by_the_control_port_and_nothing_else_does(v: Vector) -> None:
    three(v)
    v.senders[9] = (Sender(JOB, 1, True),)
    v.push(0, 2, "aggregated")
    for port in (1, 2, 9, 20, *OPTICAL):
        if port == 20:
            v.senders[20] = ()
        v.sees(tick(2), port, "bad_sender")
    v.sees(tick(2, to_ip=PS_IP), 9, "bad_sender")
    notice = packet(spec.Op.NOTICE, 2, frame.NO_LANES, PS_IP, TOR_IP, flags=4, count=0).pack()
    for other in (push(1, 2), partial(1, 2, to_ip=TOR_IP), result_from_ps(2, lanes(1)), notice):
        v.sees(other, CONTROL_PORT, "bad_sender")
    v.sees(altered(push(1, 2), 36, b"\x12\x34"), CONTROL_PORT, "malformed")
    v.sees(b"\xff" * 12 + b"\x08\x06" + bytes(40), CONTROL_PORT, "malformed")
    v.push(1, 2, "aggregated")
    v.push(2, 2, "completed", result(2, sum_of(2, 0, 1, 2), 3))


@entry
def a_tick_in_the_middle_of_a_tree(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(job_across())
    v.push(3, 2, "aggregated")
    sent = partial_sum(2, worker_lanes(3, 2), flags=DEGRADED, contributors=1, age=12)
    v.tick(2, "ticked", sent, age=12)
    v.push(3, 2, "resent", sent)
    v.push(1, 2, "late", sent)
    v.tick(2, "tick_late")
    fields: dict[str, Any] = {"flags": LACKING, "contributors": 4, "age": 15}
    v.sees(result_from_ps(2, lanes(9), **fields), OPTICAL[0], "result", unchanged(To.OTHERS))
    kept = result(2, lanes(9), 4, To.BACK, flags=LACKING, age=15, slot=UP_BASE + 2)
    v.push(3, 2, "resent", kept)
    v.push(1, 2, "late", kept)


@entry
def a_degraded_partial_sum_makes_the_result_degraded(v: Vector) -> None:
    """In either order; the result's age is that of the partial sum that completes it."""
    v.is_host = True
    v.admit(job_at_ps(2))
    for fragment, order, age in ((1, (0, 1), 0), (2, (1, 0), 9)):
        lacking = {"flags": DEGRADED, "contributors": 1, "age": 9}
        sent = [partial(unit, fragment, **(lacking if unit == 0 else {})) for unit in order]
        final: dict[str, Any] = {"flags": LACKING, "age": age, "slot": UP_BASE + fragment}
        v.sees(sent[0], 1, "aggregated")
        v.sees(sent[1], 1, "completed", result(fragment, sum_of(fragment, 0, 1), 3, To.GROUP, PS_IP, **final))
        v.sees(
            partial(1, fragment),
            1,
            "resent",
            result(fragment, sum_of(fragment, 0, 1), 3, To.BACK, PS_IP, **final),
        )
    v.sees(partial(0, SIZE + 1), 1, "aggregated")
    whole = result(SIZE + 1, sum_of(SIZE + 1, 0, 1), 4, To.GROUP, PS_IP, slot=UP_BASE + 1)
    v.sees(partial(1, SIZE + 1), 1, "completed", whole)


@entry
def a_degraded_partial_sum_goes_on_upwards(v: Vector) -> None:
    v.senders |= workers_at_ports([1])
    v.admit(job_across(workers=0b10, places=0b1000))
    v.sees(
        partial(3, 2, to_ip=TOR_IP, slot=BASE + 2, flags=DEGRADED, contributors=4, age=8),
        OPTICAL[0],
        "aggregated",
    )
    v.push(1, 2, "completed", partial_sum(2, sum_of(2, 1, 3), flags=DEGRADED, contributors=5), age=77)
    flags = {"flags": int(spec.Flag.RETRANSMIT | spec.Flag.ECN)}
    v.push(1, 3, "aggregated", flags=0xD)
    last = partial(3, 3, to_ip=TOR_IP, slot=BASE + 3, **flags, age=8)
    v.sees(last, OPTICAL[0], "completed", partial_sum(3, sum_of(3, 1, 3), contributors=3, age=8))


@entry
def a_degraded_result_ends_a_sum_that_is_still_waited_for(v: Vector) -> None:
    """The place above was ticked: a late contributor gets the result, and the slot is free for the next
    fragment.
    """
    v.senders |= workers_at_ports([1, 3])
    v.admit(job_across())
    v.push(3, 2, "aggregated")
    passes = result_from_ps(2, lanes(9), flags=LACKING, contributors=2, age=40)
    v.sees(passes, OPTICAL[0], "result", unchanged(To.OTHERS))
    kept = result(2, lanes(9), 2, To.BACK, flags=LACKING, age=40, slot=UP_BASE + 2)
    v.push(1, 2, "late", kept)
    v.push(3, 2, "resent", kept)
    v.tick(2, "tick_late")
    v.push(3, SIZE + 2, "aggregated")
    v.sees(result_from_ps(2, lanes(9), flags=LACKING), OPTICAL[0], "result", unchanged(To.OTHERS))
    v.push(1, SIZE + 2, "completed", partial_sum(SIZE + 2, sum_of(SIZE + 2, 1, 3)))


@entry
def a_ticked_sum_is_marked_as_any_other(v: Vector) -> None:
    three(v)
    v.push(0, 2, "aggregated", tos=frame.CE)
    v.push(1, 2, "aggregated", tos=frame.ECT)
    v.tick(2, "ticked", result(2, sum_of(2, 0, 1), 2, flags=LACKING, tos=frame.CE))
    v.push(2, 2, "late", result(2, sum_of(2, 0, 1), 2, To.BACK, flags=LACKING, tos=frame.ECT), tos=frame.ECT)
    v.push(0, 3, "aggregated")
    v.tick(3, "ticked", result(3, worker_lanes(0, 3), 1, flags=LACKING))


@entry
def a_host_is_ticked(v: Vector) -> None:
    v.is_host = True
    v.senders[LOOP_PORT] = (Sender(JOB, 3),)
    v.admit(job_at_ps(2, workers=0b1000))
    v.sees(own(2), LOOP_PORT, "aggregated")
    v.sees(partial(1, 2, contributors=4), 1, "aggregated")
    lacking: dict[str, Any] = {"flags": LACKING, "age": 5, "slot": UP_BASE + 2}
    at: dict[str, Any] = {"slot": UP_BASE + 2, "to_ip": PS_IP, "from_ip": PS_IP}
    v.tick(2, "ticked", result(2, sum_of(2, 1, 3), 5, To.GROUP, PS_IP, **lacking), age=5, **at)
    v.sees(partial(0, 2), 1, "late", result(2, sum_of(2, 1, 3), 5, To.BACK, PS_IP, **lacking))
    v.tick(2, "tick_late", **at)
    v.release()
    v.admit(job_at_ps(2, up_ip=TOR_IP, up_base=BASE, result_base=BASE, generation=GENERATION + 1))
    following: dict[str, Any] = {"generation": GENERATION + 1}
    v.sees(partial(1, 2, **following), 1, "aggregated")
    fields = {"flags": DEGRADED, "contributors": 2, "worker": 0, "slot": BASE + 2, **following}
    sent = packet(spec.Op.PARTIAL, 2, worker_lanes(1, 2), PS_IP, TOR_IP, **fields)
    left = partial_sum(2, worker_lanes(1, 2), **fields)
    assert left.fields
    v.tick(
        2,
        "ticked",
        type(left)(To.ROUTE, {**left.fields, "source_ip": sent.source_ip, "destination_ip": TOR_IP}),
        **at,
        **following,
    )
