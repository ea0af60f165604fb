"""Vectors of sums across units: partial sums at a ToR and at the PS host, and results and notices on their
way back.
"""

from __future__ import annotations

from testbed.aggregation.entries import Sender
from testbed.reference_model.output_ports import To
from testbed.wire import frame, spec
from tests.vectors.build import (
    BASE,
    GENERATION,
    GROUP_IP,
    MASK,
    OPTICAL,
    PS_IP,
    SIZE,
    TOR_IP,
    UP_BASE,
    UP_TOR_IP,
    Table,
    Vector,
    job_across,
    job_at_ps,
    job_in_unit,
    job_passing,
    lanes,
    notice,
    packet,
    partial,
    partial_sum,
    push,
    result,
    result_from_ps,
    sum_of,
    unchanged,
    vector,
    workers_at_ports,
)

TABLE: Table = {}
entry = vector(TABLE)


def tor(v: Vector) -> None:
    """Admit the switch of workers 1 and 3."""
    v.senders |= workers_at_ports([1, 3])
    v.admit(job_across())


def ps(v: Vector, units: int = 3) -> None:
    v.is_host = True
    v.admit(job_at_ps(units))


@entry
def a_units_sum_goes_to_the_ps(v: Vector) -> None:
    tor(v)
    v.push(1, 2, "aggregated", count=7, age=9)
    v.push(1, 2, "duplicate")
    v.push(3, 2, "completed", partial_sum(2, sum_of(2, 1, 3), count=8), count=8, flags=0xD)
    again = partial_sum(2, sum_of(2, 1, 3), count=8)
    v.push(1, 2, "resent", again)
    v.push(3, 2, "resent", again, data=lanes(99), flags=int(spec.Flag.RETRANSMIT))
    v.senders |= workers_at_ports([0])  # a member of the job, but at another switch
    v.push(0, 2, "bad_worker")


@entry
def a_result_that_passes_is_kept(v: Vector) -> None:
    tor(v)
    v.push(1, 2, "aggregated")
    v.push(3, 2, "completed", partial_sum(2, sum_of(2, 1, 3)))
    summed = lanes(1000)
    v.sees(result_from_ps(2, summed, count=11), OPTICAL[0], "result", unchanged(To.OTHERS))
    kept = result(2, summed, 5, To.BACK, count=11, slot=UP_BASE + 2)
    v.push(1, 2, "resent", kept)
    v.push(3, 2, "resent", kept, count=5)
    # a second copy passes too, and the kept result stays
    v.sees(result_from_ps(2, lanes(1001), count=12), OPTICAL[0], "result", unchanged(To.OTHERS))
    v.push(1, 2, "resent", kept)
    v.push(3, SIZE + 2, "aggregated")


@entry
def a_result_is_kept_only_in_place_of_its_own_partial_sum(v: Vector) -> None:
    tor(v)
    v.push(1, SIZE + 2, "aggregated")
    v.sees(result_from_ps(SIZE + 2, lanes(1)), OPTICAL[1], "result", unchanged(To.OTHERS))
    v.push(3, SIZE + 2, "completed", partial_sum(SIZE + 2, sum_of(SIZE + 2, 1, 3)))
    for fragment in (2, 2 * SIZE + 2):
        v.sees(result_from_ps(fragment, lanes(2)), OPTICAL[1], "result", unchanged(To.OTHERS))
    v.sees(result_from_ps(SIZE + 2, lanes(3), slot=UP_BASE + 3), OPTICAL[1], "result", unchanged(To.OTHERS))
    v.push(1, SIZE + 2, "resent", partial_sum(SIZE + 2, sum_of(SIZE + 2, 1, 3)))


@entry
def a_result_that_is_not_the_jobs_is_lost(v: Vector) -> None:
    tor(v)
    v.push(1, 2, "aggregated")
    v.push(3, 2, "completed", partial_sum(2, sum_of(2, 1, 3)))
    v.sees(result_from_ps(2, lanes(1), generation=GENERATION + 1), OPTICAL[0], "bad_generation")
    v.sees(result_from_ps(2, lanes(1), job=9), OPTICAL[0], "bad_job")
    v.sees(result_from_ps(2, lanes(1), to_ip="239.192.0.8"), OPTICAL[0], "malformed")
    for slot in (BASE, UP_BASE - 1, UP_BASE + SIZE, MASK):
        v.sees(result_from_ps(2, lanes(1), slot=slot), OPTICAL[0], "bad_slot")
    v.push(1, 2, "resent", partial_sum(2, sum_of(2, 1, 3)))


@entry
def the_ps_may_sit_at_this_switch(v: Vector) -> None:
    tor(v)
    v.senders[9] = (Sender(7, None, True),)
    v.push(1, 2, "aggregated")
    v.push(3, 2, "completed", partial_sum(2, sum_of(2, 1, 3)))
    v.sees(result_from_ps(2, lanes(1), job=8), 9, "bad_sender")
    v.sees(result_from_ps(2, lanes(1)), 9, "result", unchanged(To.OTHERS))
    v.push(1, 2, "resent", result(2, lanes(1), 5, To.BACK, slot=UP_BASE + 2))


@entry
def results_pass_a_switch_without_workers(v: Vector) -> None:
    v.admit(job_passing())
    v.sees(result_from_ps(2, lanes(1)), OPTICAL[0], "result", unchanged(To.OTHERS))
    v.sees(push(1, 2), OPTICAL[0], "bad_worker")
    v.sees(result_from_ps(2, lanes(1), generation=GENERATION - 1), OPTICAL[0], "bad_generation")


@entry
def a_mismatch_at_a_tor_of_several(v: Vector) -> None:
    tor(v)
    v.push(1, 2, "aggregated")
    v.push(3, SIZE + 2, "mismatch", notice(3, SIZE + 2, "10.0.1.4"))
    v.push(3, 2, "completed", partial_sum(2, sum_of(2, 1, 3)))
    v.push(3, SIZE + 2, "aggregated")
    v.push(1, 2, "stale")


@entry
def a_partial_sum_gives_its_slot_up(v: Vector) -> None:
    tor(v)
    for fragment in (1, SIZE + 1, 2 * SIZE + 1):
        v.push(3, fragment, "aggregated")
        v.push(1, fragment, "completed", partial_sum(fragment, sum_of(fragment, 1, 3)))
    v.sees(result_from_ps(SIZE + 1, lanes(1)), OPTICAL[0], "result", unchanged(To.OTHERS))
    v.push(1, 2 * SIZE + 1, "resent", partial_sum(2 * SIZE + 1, sum_of(2 * SIZE + 1, 1, 3)))


@entry
def partial_sums_make_the_result_at_the_ps(v: Vector) -> None:
    ps(v)
    v.sees(partial(0, 2, count=3), 1, "aggregated")
    v.sees(partial(2, 2), 1, "aggregated")
    v.sees(partial(2, 2), 1, "duplicate")
    top = {"slot": UP_BASE + 2, "count": 5}
    v.sees(partial(1, 2, count=5), 1, "completed", result(2, sum_of(2, 0, 1, 2), 6, To.GROUP, PS_IP, **top))
    for unit in (0, 1, 2):
        leaves = result(2, sum_of(2, 0, 1, 2), 6, To.BACK, PS_IP, **top)
        v.sees(partial(unit, 2, data=lanes(99)), 1, "resent", leaves)
    v.sees(partial(1, SIZE + 2), 1, "aggregated")
    v.sees(partial(0, 2), 1, "stale")
    leaves = notice(0, 2 * SIZE + 2, "10.0.1.254", source_ip=PS_IP, slot=UP_BASE + 2, contributors=2)
    v.sees(partial(0, 2 * SIZE + 2), 1, "mismatch", leaves)


@entry
def what_a_ps_host_does_not_take(v: Vector) -> None:
    ps(v, 2)
    v.sees(partial(0, 2), 1, "aggregated")
    v.sees(partial(1, 2, job=9), 1, "bad_job")
    v.sees(partial(1, 2, generation=GENERATION - 1), 1, "bad_generation")
    v.sees(partial(2, 2), 1, "bad_worker")
    v.sees(partial(1, 2, slot=UP_BASE - 1), 1, "bad_slot")
    v.sees(partial(1, 2, slot=BASE), 1, "bad_slot")
    v.sees(partial(1, 2, count=spec.LANES + 1), 1, "malformed")
    v.sees(partial(1, 2), 1, "completed", result(2, sum_of(2, 0, 1), 4, To.GROUP, PS_IP, slot=UP_BASE + 2))


def a_notice(to_ip: str = TOR_IP, **changes: int) -> bytes:
    """Return a notice from the PS about the partial sum of the job's unit 2."""
    made = {"flags": int(spec.Flag.ECN), "count": 0, "worker": 2, "slot": UP_BASE + 2, **changes}
    return packet(spec.Op.NOTICE, 2, frame.NO_LANES, PS_IP, to_ip, **made).pack()


@entry
def a_notice_goes_to_the_workers_and_to_no_other_switch(v: Vector) -> None:
    tor(v)
    v.sees(a_notice(), OPTICAL[0], "notice", unchanged(To.WORKERS))
    v.sees(a_notice(), OPTICAL[1], "notice", unchanged(To.WORKERS))
    v.senders[9] = (Sender(7, None, True),)
    v.sees(a_notice(), 9, "notice", unchanged(To.WORKERS))
    v.sees(a_notice(to_ip="10.0.2.254"), 9, "forwarded", unchanged(To.ROUTE))
    v.sees(a_notice(job=9), OPTICAL[0], "bad_job")
    v.sees(a_notice(generation=GENERATION + 1), OPTICAL[0], "bad_generation")


@entry
def a_notice_ends_at_a_switch_without_workers(v: Vector) -> None:
    v.admit(job_passing())
    v.sees(a_notice(), OPTICAL[0], "bad_worker")
    v.sees(a_notice(to_ip="10.0.2.254"), OPTICAL[0], "forwarded", unchanged(To.ROUTE))


@entry
def a_result_does_not_enter_a_unit_that_makes_its_own(v: Vector) -> None:
    v.senders |= workers_at_ports([0, 1])
    v.admit(job_in_unit(2))
    v.push(0, 2, "aggregated")
    v.sees(result_from_ps(2, lanes(1), slot=BASE + 2), OPTICAL[0], "malformed")
    v.push(1, 2, "completed", result(2, sum_of(2, 0, 1), 2))
    assert UP_TOR_IP != GROUP_IP


@entry
def a_mark_goes_up_with_a_partial_sum(v: Vector) -> None:
    tor(v)
    v.push(1, 2, "aggregated", tos=frame.CE)
    v.push(3, 2, "completed", partial_sum(2, sum_of(2, 1, 3), tos=frame.CE), tos=frame.ECT)
    v.push(1, 2, "resent", partial_sum(2, sum_of(2, 1, 3), tos=frame.ECT), tos=frame.ECT)
    v.sees(result_from_ps(2, lanes(77), tos=frame.CE), OPTICAL[0], "result", unchanged(To.OTHERS))


@entry
def a_mark_on_a_partial_sum_is_on_the_result(v: Vector) -> None:
    ps(v)
    v.sees(partial(0, 2, tos=frame.ECT), 1, "aggregated")
    v.sees(partial(1, 2, tos=frame.CE), 1, "aggregated")
    summed = sum_of(2, 0, 1, 2)
    leaves = result(2, summed, 6, To.GROUP, PS_IP, slot=UP_BASE + 2, tos=frame.CE)
    v.sees(partial(2, 2, tos=frame.ECT), 1, "completed", leaves)
