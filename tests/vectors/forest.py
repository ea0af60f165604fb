"""Vectors of trees of any depth, with switches and hosts as places whose contributors are workers and other
places, and of several trees of one job.
"""

from __future__ import annotations

from typing import Any

from testbed.aggregation.entries import Entry, Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.output_ports import To
from testbed.reference_model.pull import Puller
from testbed.topology.addresses import LOOP_PLACE_IP, LOOP_WORKER_IP
from testbed.wire import frame, spec
from tests.vectors.build import (
    BASE,
    GENERATION,
    GROUP_IP,
    JOB,
    OPTICAL,
    OTHER_IP,
    PS_IP,
    PS_MAC,
    SIZE,
    TOR_IP,
    UP_BASE,
    Ask,
    Attach,
    Leaves,
    Table,
    Vector,
    compared,
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
    total,
    unchanged,
    vector,
    worker_lanes,
    workers_at_ports,
)
from tests.vectors.pulls import finds, stored, woken

TABLE: Table = {}
entry = vector(TABLE)

# The lowest switch sums workers 2 and 3; the middle one adds worker 0 and a place of workers 5, 8 and 9; the
# top adds worker 7.
MIDDLE_IP, MIDDLE_BASE, TOP_BASE = "10.0.2.254", 32, 200
AT_TOP: dict[str, Any] = {"slot": TOP_BASE + 2, "contributors": 7}


def lowest(**changes: Any) -> Entry:
    fields = {
        "workers": 0b1100,
        "number": 2,
        "up_base": MIDDLE_BASE,
        "result_base": TOP_BASE,
        "up_ip": MIDDLE_IP,
    }
    return job_in_unit(0, **{**fields, **changes})


def middle(**changes: Any) -> Entry:
    fields = {
        "workers": 0b1,
        "places": 1 << 2 | 1 << 5,
        "up_base": TOP_BASE,
        "result_base": TOP_BASE,
        "up_ip": PS_IP,
    }
    return job_in_unit(0, **{**fields, **changes})


def top(**changes: Any) -> Entry:
    return job_in_unit(0, **{"workers": 1 << 7, "places": 1 << 0, **changes})


def upwards(fragment: int, summed: Any, source_ip: str, to_ip: str, **changes: Any) -> Leaves:
    """Return the partial sum expected to leave for the place above."""
    expected = compared(packet(spec.Op.PARTIAL, fragment, summed, source_ip, to_ip, **changes))
    return Leaves(To.ROUTE, {name: value for name, value in expected.items() if name != "destination_mac"})


def below(number: int, fragment: int, **changes: Any) -> bytes:
    """Return a partial sum from a place below this switch."""
    return partial(number, fragment, **{"to_ip": TOR_IP, "slot": BASE + fragment % SIZE, **changes})


@entry
def the_lowest_of_three_levels(v: Vector) -> None:
    v.senders |= workers_at_ports([2, 3])
    v.admit(lowest())
    v.push(3, 2, "aggregated")
    sent = upwards(2, sum_of(2, 2, 3), TOR_IP, MIDDLE_IP, worker=2, contributors=2, slot=MIDDLE_BASE + 2)
    v.push(2, 2, "completed", sent)
    v.push(3, 2, "resent", sent)
    v.sees(result_from_ps(2, lanes(9), slot=MIDDLE_BASE + 2), OPTICAL[0], "bad_slot")
    v.sees(result_from_ps(2, lanes(9), **AT_TOP), OPTICAL[0], "result", unchanged(To.OTHERS))
    v.push(3, 2, "resent", result(2, lanes(9), 7, To.BACK, slot=TOP_BASE + 2))


@entry
def the_middle_of_three_levels(v: Vector) -> None:
    """One worker here, and places below behind optical ports."""
    v.senders |= workers_at_ports([0])
    v.admit(middle())
    v.sees(below(5, 2, contributors=3), OPTICAL[0], "aggregated")
    v.sees(below(5, 2, contributors=3), OPTICAL[1], "duplicate")
    v.push(0, 2, "aggregated")
    sent = upwards(2, sum_of(2, 0, 2, 5), TOR_IP, PS_IP, worker=0, contributors=6, slot=TOP_BASE + 2)
    v.sees(below(2, 2), OPTICAL[1], "completed", sent)
    v.push(0, 2, "resent", sent)
    v.sees(below(5, 2, contributors=1), OPTICAL[0], "resent", sent)
    v.sees(below(2, SIZE + 2), OPTICAL[0], "aggregated")
    answer = notice(2, 2 * SIZE + 2, "10.0.3.254", contributors=2)
    v.sees(below(2, 2 * SIZE + 2), OPTICAL[0], "mismatch", answer)


@entry
def a_result_passes_the_middle(v: Vector) -> None:
    v.senders |= workers_at_ports([0])
    v.admit(middle())
    v.push(0, 2, "aggregated")
    v.sees(below(5, 2, contributors=3), OPTICAL[0], "aggregated")
    sent = upwards(2, sum_of(2, 0, 2, 5), TOR_IP, PS_IP, worker=0, contributors=6, slot=TOP_BASE + 2)
    v.sees(below(2, 2), OPTICAL[1], "completed", sent)
    v.sees(result_from_ps(2, lanes(9), **AT_TOP), OPTICAL[0], "result", unchanged(To.OTHERS))
    kept = result(2, lanes(9), 7, To.BACK, slot=TOP_BASE + 2)
    v.push(0, 2, "resent", kept)
    # back to the place, by the port where its repetition came in
    v.sees(below(5, 2), OPTICAL[1], "resent", kept)


@entry
def a_switch_is_at_the_top(v: Vector) -> None:
    """There is no parameter server: partial sums from optical ports and a worker here make the result."""
    v.senders |= workers_at_ports([7])
    v.admit(top())
    v.push(7, 2, "aggregated", count=9)
    v.sees(
        below(0, 2, contributors=6, count=11),
        OPTICAL[0],
        "completed",
        result(2, sum_of(2, 0, 7), 7, count=11),
    )
    again = result(2, sum_of(2, 0, 7), 7, To.BACK, count=11)
    v.sees(below(0, 2, data=lanes(99)), OPTICAL[1], "resent", again)
    v.push(7, 2, "resent", again)
    v.sees(below(0, SIZE + 2), OPTICAL[0], "aggregated")
    v.push(7, SIZE + 2, "completed", result(SIZE + 2, sum_of(SIZE + 2, 0, 7), 3))
    v.sees(result_from_ps(2, lanes(1), slot=BASE + 2), OPTICAL[0], "malformed")


@entry
def numbers_of_workers_and_of_places_are_not_mixed_up(v: Vector) -> None:
    v.senders |= workers_at_ports([0, 7]) | {9: (Sender(JOB, None, True),)}
    v.admit(top())
    v.push(0, 2, "bad_worker")
    for port in (*OPTICAL, 9):
        v.sees(below(7, 2), port, "bad_worker")
        v.sees(below(1, 2), port, "bad_worker")
        v.sees(below(64, 2), port, "bad_worker")
    v.sees(below(0, 2), 9, "aggregated")
    v.push(7, 2, "completed", result(2, sum_of(2, 0, 7), 3))


@entry
def workers_push_to_another_units_switch(v: Vector) -> None:
    v.senders |= workers_at_ports([0])
    v.admit(job_in_unit(3))
    v.sees(push(1, 2, from_ip="10.0.2.1"), OPTICAL[0], "aggregated")
    v.sees(push(1, 2, from_ip="10.0.2.1"), OPTICAL[0], "duplicate")
    v.push(0, 2, "aggregated")
    v.sees(push(2, 2, from_ip="10.0.3.1"), OPTICAL[1], "completed", result(2, sum_of(2, 0, 1, 2), 3))
    v.sees(push(1, 2, from_ip="10.0.2.1"), OPTICAL[0], "resent", result(2, sum_of(2, 0, 1, 2), 3, To.BACK))
    v.sees(push(1, SIZE + 2, from_ip="10.0.2.1"), OPTICAL[0], "aggregated")
    answer = notice(1, 2 * SIZE + 2, "10.0.2.1")
    v.sees(push(1, 2 * SIZE + 2, from_ip="10.0.2.1"), OPTICAL[0], "mismatch", answer)


@entry
def what_a_host_sends_elsewhere_is_forwarded(v: Vector) -> None:
    """The switch forwards packets of a host that may send them at all; the destination place checks whether
    the sender is a member.
    """
    v.senders |= {1: (Sender(JOB, 0),), 2: (Sender(JOB, 1, True),), 3: ()}
    v.admit(job_passing())
    for port, may in ((1, False), (2, True), (3, False)):
        for sent in (
            partial(5, 0),
            packet(spec.Op.NOTICE, 0, frame.NO_LANES, TOR_IP, OTHER_IP, flags=4, count=0).pack(),
        ):
            v.sees(sent, port, *(("forwarded", unchanged(To.ROUTE)) if may else ("bad_sender",)))
    v.push(0, 0, "forwarded", unchanged(To.ROUTE), to_ip=PS_IP)
    v.push(1, 0, "forwarded", unchanged(To.ROUTE), to_ip=PS_IP)
    v.push(1, 0, "bad_sender", to_ip=PS_IP, port=1)
    v.push(1, 0, "bad_sender", to_ip=PS_IP, port=3)
    v.push(1, 0, "bad_sender", to_ip=PS_IP, job=8)
    for group in (partial(5, 0, to_ip=GROUP_IP), push(1, 0, to_ip=GROUP_IP)):
        v.sees(group, 2, "malformed")


@entry
def one_port_has_a_worker_and_a_place(v: Vector) -> None:
    v.senders |= {1: (Sender(JOB, 0),), 2: (Sender(JOB, 1, True),)}
    v.admit(job_in_unit(2, places=1 << 3))
    v.push(1, 2, "aggregated")
    v.sees(below(3, 2), 1, "bad_sender")
    v.sees(below(3, 2, contributors=2), 2, "aggregated")
    v.push(0, 2, "completed", result(2, sum_of(2, 0, 1, 3), 4))


# ---------------------------------------------------------------- hosts


def host(v: Vector, **changes: Any) -> None:
    """Admit a host that sums its own worker 3, worker 4 elsewhere, and place 1."""
    v.is_host = True
    v.senders[LOOP_PORT] = (Sender(JOB, 3),)
    v.admit(job_at_ps(0, **{"workers": 0b11000, "places": 0b10, **changes}))


def own(fragment: int, **changes: Any) -> bytes:
    """Return a push of the host's own worker."""
    at = {"from_ip": LOOP_WORKER_IP, "to_ip": LOOP_PLACE_IP, "slot": UP_BASE + fragment % SIZE}
    return push(changes.pop("worker", 3), fragment, **{**at, **changes})


def from_elsewhere(worker: int, fragment: int, **changes: Any) -> bytes:
    return push(worker, fragment, **{"to_ip": PS_IP, "slot": UP_BASE + fragment % SIZE, **changes})


@entry
def a_host_at_the_top_has_a_worker_of_its_own(v: Vector) -> None:
    host(v)
    slot = {"slot": UP_BASE + 2}
    v.sees(own(2), LOOP_PORT, "aggregated")
    v.sees(own(2), LOOP_PORT, "duplicate")
    v.sees(from_elsewhere(4, 2), 1, "aggregated")
    summed = sum_of(2, 1, 3, 4)
    v.sees(partial(1, 2, contributors=5), 1, "completed", result(2, summed, 7, To.GROUP, PS_IP, **slot))
    for data, port in ((own(2), LOOP_PORT), (from_elsewhere(4, 2), 1), (partial(1, 2), 1)):
        v.sees(data, port, "resent", result(2, summed, 7, To.BACK, PS_IP, **slot))
    v.sees(partial(1, SIZE + 2, contributors=5), 1, "aggregated")
    fields = {"source_ip": PS_IP, "slot": UP_BASE + 2}
    v.sees(own(2 * SIZE + 2), LOOP_PORT, "mismatch", notice(3, 2 * SIZE + 2, LOOP_WORKER_IP, **fields))
    v.sees(from_elsewhere(4, SIZE + 2), 1, "aggregated")
    summed = sum_of(SIZE + 2, 1, 3, 4)
    v.sees(own(SIZE + 2), LOOP_PORT, "completed", result(SIZE + 2, summed, 7, To.GROUP, PS_IP, **slot))


@entry
def a_host_in_the_middle_sends_upwards(v: Vector) -> None:
    fields = {"up_ip": TOR_IP, "up_base": BASE, "result_base": BASE, "number": 1}
    host(v, **fields)
    v.steps.append(Attach(Puller(JOB, GENERATION, (BASE,), SIZE, spec.LANES, PS_IP, PS_MAC)))
    at_top = {"worker": 1, "contributors": 4, "slot": BASE + 2}
    for fragment, last in ((2, own(2)), (SIZE + 2, from_elsewhere(4, SIZE + 2))):
        sent = upwards(fragment, sum_of(fragment, 1, 3, 4), PS_IP, TOR_IP, **at_top)
        arrivals = [(own(fragment), LOOP_PORT), (from_elsewhere(4, fragment), 1), (partial(1, fragment), 1)]
        for data, port in arrivals:
            if data != last:
                v.sees(data, port, "aggregated")
        v.sees(last, LOOP_PORT if last == own(fragment) else 1, "completed", sent)
        for data, port in arrivals:
            v.sees(data, port, "resent", sent)
    v.sees(result_from_ps(SIZE + 2, lanes(9), slot=UP_BASE + 2), 1, "bad_slot")
    v.sees(result_from_ps(SIZE + 2, lanes(9), slot=BASE + 2, generation=9), 1, "bad_generation")
    v.sees(result_from_ps(SIZE + 2, lanes(9), slot=BASE + 2, to_ip="239.192.0.8"), 1, "malformed")
    v.sees(result_from_ps(SIZE + 2, lanes(9), slot=BASE + 2), 1, "pulled")  # and kept
    kept = result(SIZE + 2, lanes(9), 5, To.BACK, PS_IP, slot=BASE + 2)
    v.sees(own(SIZE + 2), LOOP_PORT, "resent", kept)
    v.sees(partial(1, SIZE + 2), 1, "resent", kept)
    finds(v, 1, p2=stored(SIZE + 2, lanes(9)))
    v.sees(result_from_ps(SIZE + 2, lanes(9), slot=BASE + 2), 1, "pull_duplicate")


@entry
def a_host_without_a_worker_keeps_results(v: Vector) -> None:
    v.is_host = True
    v.admit(job_at_ps(1, up_ip=TOR_IP, up_base=BASE, result_base=BASE, number=0))
    at_top = {"worker": 0, "contributors": 2, "slot": BASE + 2}
    v.sees(partial(0, 2), 1, "completed", upwards(2, worker_lanes(0, 2), PS_IP, TOR_IP, **at_top))
    v.sees(result_from_ps(2, lanes(9), slot=BASE + 2), 1, "result")
    v.sees(partial(0, 2), 1, "resent", result(2, lanes(9), 5, To.BACK, PS_IP, slot=BASE + 2))


@entry
def the_loop_is_the_workers_alone(v: Vector) -> None:
    host(v)
    for forged in (
        own(2, worker=4),
        own(2, job=8),
        own(2, to_ip=PS_IP),
        own(2, to_ip=GROUP_IP),
        partial(1, 2, to_ip=LOOP_PLACE_IP),
        result_from_ps(2, lanes(1)),
        packet(
            spec.Op.NOTICE, 2, frame.NO_LANES, LOOP_WORKER_IP, LOOP_PLACE_IP, flags=4, count=0, worker=3
        ).pack(),
        packet(spec.Op.TICK, 2, lanes(1), LOOP_WORKER_IP, LOOP_PLACE_IP, slot=UP_BASE + 2, worker=3).pack(),
    ):
        v.sees(forged, LOOP_PORT, "bad_sender")
    v.sees(own(2, generation=9), LOOP_PORT, "bad_generation")
    v.sees(own(2, tree=1), LOOP_PORT, "bad_job")
    v.sees(own(2)[:-1], LOOP_PORT, "malformed")
    v.sees(own(2)[:40] + b"\0\0" + own(2)[42:], LOOP_PORT, "corrupt")
    v.sees(b"\xff" * 6 + own(2)[6:12] + b"\x08\x06" + bytes(28), LOOP_PORT, "passed", unchanged(To.STACK))
    v.sees(own(2, to_ip=LOOP_PLACE_IP), 1, "bad_job")  # no host of the fabric has that address
    v.sees(own(2), LOOP_PORT, "aggregated")
    v.sees(from_elsewhere(3, 2), 1, "duplicate")  # the ToR has checked the sender


# ---------------------------------------------------------------- several trees


@entry
def two_trees_of_one_job_do_not_meet(v: Vector) -> None:
    """Tree 0 is summed here from workers 0 and 1; tree 1 from worker 0 and place 1, and goes on upwards."""
    v.senders |= workers_at_ports([0, 1])
    v.admit(job_in_unit(2))
    second: dict[str, Any] = {
        "tree": 1,
        "base": BASE + SIZE,
        "up_base": UP_BASE,
        "result_base": UP_BASE,
        "up_ip": PS_IP,
    }
    v.admit(job_in_unit(0, **second, workers=0b1, places=0b10))
    its: dict[str, Any] = {"tree": 1, "slot": BASE + SIZE + 2}
    v.push(0, 2, "aggregated")
    v.push(0, 2, "aggregated", **its)
    v.push(0, 2, "bad_slot", tree=1)
    v.push(0, 2, "bad_slot", slot=BASE + SIZE + 2)
    v.push(0, 2, "bad_job", tree=2)
    v.push(0, 2, "bad_job", tree=255)
    v.push(1, 2, "bad_worker", **its)
    v.sees(below(1, 2), OPTICAL[0], "bad_worker")
    v.push(1, 2, "completed", result(2, sum_of(2, 0, 1), 2))
    sent = partial_sum(2, total(worker_lanes(0, 2), lanes(77)), worker=0, contributors=5, tree=1)
    v.sees(below(1, 2, data=lanes(77), contributors=4, **its), OPTICAL[0], "completed", sent)
    v.sees(result_from_ps(2, lanes(5)), OPTICAL[0], "malformed")
    v.sees(result_from_ps(2, lanes(5), tree=1), OPTICAL[0], "result", unchanged(To.OTHERS))
    v.sees(result_from_ps(2, lanes(5), tree=3), OPTICAL[0], "bad_job")
    v.push(0, 2, "resent", result(2, lanes(5), 5, To.BACK, slot=UP_BASE + 2, tree=1), **its)
    v.push(0, 2, "resent", result(2, sum_of(2, 0, 1), 2, To.BACK))


@entry
def a_group_of_some_workers_has_a_tree_that_no_other_may_send_in(v: Vector) -> None:
    """Workers 1 and 3 of four use tree 3 of the job, in a generation of its own."""
    v.senders |= workers_at_ports([0, 1, 2, 3])
    v.admit(job_in_unit(4))
    ours = GENERATION + 6
    v.admit(job_in_unit(0, workers=0b1010, tree=3, base=BASE + SIZE, generation=ours))
    its: dict[str, Any] = {"tree": 3, "slot": BASE + SIZE + 2, "generation": ours}
    v.push(1, 2, "aggregated", **its)
    for stranger in (0, 2):
        v.push(stranger, 2, "bad_worker", **its)
        v.push(3, 2, "bad_sender", port=stranger + 1, **its)
    v.push(3, 2, "bad_generation", **{**its, "generation": GENERATION})
    v.push(3, 2, "bad_slot", **{**its, "slot": BASE + 2})
    v.push(3, 2, "bad_slot", slot=BASE + SIZE + 2)
    v.push(3, 2, "bad_job", **{**its, "tree": 1})
    v.push(0, 2, "aggregated")
    v.push(3, 2, "completed", result(2, sum_of(2, 1, 3), 2, **its), **its)
    for worker in (1, 2):
        v.push(worker, 2, "aggregated")
    v.push(3, 2, "completed", result(2, sum_of(2, 0, 1, 2, 3), 4))
    v.release(tree=3)
    v.push(1, 3, "bad_job", **{**its, "slot": BASE + SIZE + 3})
    v.push(1, 3, "aggregated")


@entry
def a_tree_goes_and_the_other_stays(v: Vector) -> None:
    v.senders |= workers_at_ports([0])
    v.admit(job_in_unit(1))
    v.admit(job_in_unit(1, tree=1, base=BASE + SIZE))
    v.release(tree=1)
    v.push(0, 2, "bad_job", tree=1, slot=BASE + SIZE + 2)
    v.push(0, 2, "completed", result(2, worker_lanes(0, 2), 1))
    v.admit(job_in_unit(1, tree=1, base=BASE + SIZE))
    leaves = result(2, worker_lanes(0, 2), 1, tree=1, slot=BASE + SIZE + 2)
    v.push(0, 2, "completed", leaves, tree=1, slot=BASE + SIZE + 2)
    v.release(tree=0)
    v.push(0, 3, "bad_job")
    v.push(
        0,
        3,
        "completed",
        result(3, worker_lanes(0, 3), 1, tree=1, slot=BASE + SIZE + 3),
        tree=1,
        slot=BASE + SIZE + 3,
    )
    v.release()
    v.push(0, 4, "bad_job", tree=1, slot=BASE + SIZE + 4)


@entry
def results_of_two_trees_have_places_of_their_own(v: Vector) -> None:
    v.is_host = True
    v.steps.append(Attach(Puller(JOB, GENERATION, (UP_BASE, 7), SIZE, spec.LANES, PS_IP, PS_MAC)))
    v.sees(result_from_ps(3, lanes(1)), 1, "pulled")
    v.sees(result_from_ps(3, lanes(2), tree=1, slot=10), 1, "pulled")
    v.sees(result_from_ps(0, lanes(3), tree=1, slot=7), 1, "pulled")
    v.sees(result_from_ps(3, lanes(4), tree=1, slot=10), 1, "pull_duplicate")
    v.sees(result_from_ps(4, lanes(4), tree=1, slot=7 + SIZE), 1, "bad_slot")
    v.sees(result_from_ps(4, lanes(4), tree=1, slot=6), 1, "bad_slot")
    v.sees(result_from_ps(4, lanes(4), tree=0, slot=7), 1, "bad_slot")
    v.sees(result_from_ps(4, lanes(4), tree=2, slot=7), 1, "bad_job")
    notice_up = packet(spec.Op.NOTICE, 2, frame.NO_LANES, TOR_IP, PS_IP, flags=4, count=0, tree=1).pack()
    v.sees(notice_up, 1, "notice")
    last = {f"p{SIZE + 3}": stored(3, lanes(2)), f"p{SIZE}": stored(0, lanes(3))}
    finds(v, 3, 1, p3=stored(3, lanes(1)), **last)


@entry
def a_group_s_results_have_a_ring_and_a_socket_of_their_own(v: Vector) -> None:
    v.is_host = True
    fields = (JOB, GENERATION, (UP_BASE, 7), SIZE, spec.LANES, PS_IP, PS_MAC)
    v.steps.append(Attach(Puller(*fields, port=40_007, first=3)))
    v.steps.append(Ask(2))
    v.sees(result_from_ps(3, lanes(1)), 1, "bad_job")
    v.sees(result_from_ps(3, lanes(1), tree=2), 1, "bad_job")
    v.sees(result_from_ps(3, lanes(1), tree=3), 1, "pulled")
    good = result_from_ps(3, lanes(2), tree=4, slot=10)
    v.sees(good, 1, "pulled", woken(good, 40_007))
    v.sees(result_from_ps(3, lanes(1), tree=5), 1, "bad_job")
    finds(v, 2, p3=stored(3, lanes(1)), **{f"p{SIZE + 3}": stored(3, lanes(2))})
