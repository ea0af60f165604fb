"""Vectors of questions: which fragments of a range a place has. They change no state."""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.aggregation.entries import Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.output_ports import To
from testbed.reference_model.pull import Puller
from testbed.topology.addresses import CONTROL_PORT, LOOP_PLACE_IP, LOOP_WORKER_IP
from testbed.wire import recovery, spec
from testbed.wire.recovery import Found
from tests.vectors.build import (
    GENERATION,
    GROUP_IP,
    HOST_MAC,
    JOB,
    OTHER_IP,
    PS_IP,
    PS_MAC,
    SIZE,
    TOR_IP,
    UP_BASE,
    Attach,
    Lanes,
    Leaves,
    Table,
    Vector,
    altered,
    compared,
    job_across,
    job_at_ps,
    job_in_unit,
    lanes,
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
from tests.vectors.forest import own
from tests.vectors.pulls import woken

TABLE: Table = {}
entry = vector(TABLE)
AGAIN = int(spec.Flag.RETRANSMIT)


def asked(first: int, *states: Found, width: int = spec.LANES) -> Lanes:
    """Return a question's lanes: one per fragment, with what is known of it."""
    summed = np.zeros(width, np.uint32)
    for place, each in enumerate(states):
        summed[place] = recovery.lane((first + place) % SIZE, each)
    return summed


def unknown(first: int, count: int, width: int = spec.LANES) -> Lanes:
    return asked(first, *[Found.SUMMED] * count, width=width)


def question(worker: int, first: int, count: int, **changes: Any) -> bytes:
    fields = {"op": spec.Op.QUESTION, "data": unknown(first, count), "count": count, "slot": 0, **changes}
    return push(worker, first, **fields)


def answer(
    worker: int,
    first: int,
    *states: Found,
    to_ip: str,
    source_ip: str = TOR_IP,
    to: To = To.BACK,
    **changes: Any,
) -> Leaves:
    """Return the answer expected to leave. One that goes back has the question's source MAC as its
    destination, for a host's stack takes no other; else its route gives the MAC.
    """
    fields = {"worker": worker, "count": len(states), "slot": 0, **changes}
    words = asked(first, *states, width=fields.get("lanes", spec.LANES))
    sent = compared(packet(spec.Op.ANSWER, first, words, source_ip, to_ip, **fields))
    sent = {name: value for name, value in sent.items() if name != "destination_mac"}
    return Leaves(to, {**sent, "destination_mac": HOST_MAC} if to is To.BACK else sent)


def onward(worker: int, first: int, *states: Found, from_ip: str, to_ip: str = PS_IP) -> Leaves:
    """Return the question expected to leave for the place above, at PS_IP."""
    fields = {"worker": worker, "count": len(states), "slot": 0, "flags": AGAIN}
    sent = compared(packet(spec.Op.QUESTION, first, asked(first, *states), from_ip, to_ip, **fields))
    return Leaves(To.ROUTE, {name: value for name, value in sent.items() if name != "destination_mac"})


def in_unit(v: Vector, workers: int = 2) -> None:
    v.senders |= workers_at_ports(range(workers))
    v.admit(job_in_unit(workers))


@entry
def a_question_is_answered_for_each_slot(v: Vector) -> None:
    """The slots: empty; incomplete without and with the asker's push; complete; of an older fragment; of a
    newer one.
    """
    in_unit(v)
    v.push(1, 1, "aggregated")
    v.push(0, 2, "aggregated")
    v.push(0, 3, "aggregated")
    v.push(1, 3, "completed", result(3, sum_of(3, 0, 1), 2))
    v.push(1, SIZE + 4, "aggregated")
    words = (Found.LACKS, Found.LACKS, Found.HELD, Found.FINAL, Found.HELD)
    v.sees(question(0, 0, 5), 1, "asked", answer(0, 0, *words, to_ip="10.0.1.1"))
    v.sees(question(0, 0, 5), 1, "asked", answer(0, 0, *words, to_ip="10.0.1.1"))
    words = (Found.LACKS, Found.HELD, Found.LACKS, Found.FINAL, Found.HELD)
    v.sees(question(1, 0, 5, flags=AGAIN), 2, "asked", answer(1, 0, *words, to_ip="10.0.1.2", flags=AGAIN))
    v.sees(
        question(1, SIZE + 3, 2), 2, "asked", answer(1, SIZE + 3, Found.LACKS, Found.HELD, to_ip="10.0.1.2")
    )


@entry
def a_question_names_slots_of_its_segment(v: Vector) -> None:
    in_unit(v)
    outside = unknown(0, 2)
    outside[1] = SIZE
    v.sees(question(0, 0, 2, data=outside), 1, "bad_slot")
    known = outside.copy()
    known[1] = recovery.lane(SIZE, Found.HELD)  # already answered: the slot is not read
    leaves = answer(0, 0, Found.LACKS, to_ip="10.0.1.1", count=2)
    assert leaves.fields
    words = [int(recovery.lane(0, Found.LACKS)), int(known[1]), *[0] * (spec.LANES - 2)]
    leaves = Leaves(leaves.to, {**leaves.fields, "gradients": words})
    v.sees(question(0, 0, 2, data=known), 1, "asked", leaves)


@entry
def a_question_is_checked(v: Vector) -> None:
    in_unit(v)
    v.sees(question(1, 0, 1), 1, "bad_sender")
    v.sees(question(0, 0, 1), CONTROL_PORT, "bad_sender")
    v.sees(question(0, 0, 1, tree=1), 1, "bad_job")
    v.sees(question(0, 0, 1, generation=GENERATION + 1), 1, "bad_generation")
    v.sees(question(5, 0, 1), 201, "bad_worker")
    v.sees(question(64, 0, 1), 201, "bad_worker")
    v.sees(question(0, 0, 1, data=lanes(1)[:64], lanes=64), 1, "malformed")
    v.sees(question(0, 0, 1, to_ip=GROUP_IP), 1, "malformed")
    v.sees(question(0, 0, recovery.MOST + 1), 1, "malformed")
    v.sees(altered(question(0, 0, 1), 66, (spec.LANES + 1).to_bytes(2, "big")), 1, "malformed")
    v.sees(question(0, 0, 1)[:-1], 1, "malformed")
    v.sees(altered(question(0, 0, 1), 40, b"\0\0"), 1, "corrupt")
    v.sees(question(0, 0, 1, to_ip=OTHER_IP), 1, "forwarded", unchanged(To.ROUTE))
    words = [Found.LACKS] * recovery.MOST
    at = answer(0, 0, *words, to_ip="10.0.1.1")
    v.sees(question(0, 0, recovery.MOST), 1, "asked", at)
    v.sees(question(0, 0, 0), 1, "asked", answer(0, 0, to_ip="10.0.1.1"))


@entry
def a_question_of_few_lanes(v: Vector) -> None:
    v.senders |= workers_at_ports(range(2))
    v.admit(job_in_unit(2, lanes=64))
    v.push(0, 1, "aggregated", data=lanes(1)[:64])
    sent = question(0, 0, 2, data=unknown(0, 2, 64), lanes=64)
    v.sees(sent, 1, "asked", answer(0, 0, Found.LACKS, Found.HELD, to_ip="10.0.1.1", lanes=64))


@entry
def a_question_after_a_repetition_goes_on(v: Vector) -> None:
    """An inner place sends a question up only if a sum of it went up, and only if the question is marked as
    repeated.
    """
    v.senders |= workers_at_ports([1, 3])
    v.admit(job_across())
    v.push(1, 5, "aggregated")
    v.push(3, 5, "completed", partial_sum(5, sum_of(5, 1, 3)))
    v.push(1, 6, "aggregated")
    words = (Found.LACKS, Found.SUMMED, Found.HELD)
    v.sees(question(1, 4, 3), 2, "asked", answer(1, 4, *words, to_ip="10.0.1.2"))
    v.sees(question(1, 4, 3, flags=AGAIN), 2, "asked", onward(1, 4, *words, from_ip="10.0.1.2"))
    again = answer(1, 6, Found.HELD, to_ip="10.0.1.2", flags=AGAIN)
    v.sees(question(1, 6, 1, flags=AGAIN), 2, "asked", again)
    v.sees(result_from_ps(5, lanes(9)), 201, "result", unchanged(To.OTHERS))
    words = (Found.LACKS, Found.FINAL, Found.HELD)
    v.sees(question(1, 4, 3, flags=AGAIN), 2, "asked", answer(1, 4, *words, to_ip="10.0.1.2", flags=AGAIN))


@entry
def a_question_from_a_place_is_answered_to_the_worker(v: Vector) -> None:
    """A host at the top fills in what the place below could not tell, and answers the worker."""
    v.is_host = True
    v.admit(job_at_ps(2))
    v.sees(partial(1, 4), 1, "aggregated")
    below = asked(3, Found.HELD, Found.SUMMED, Found.SUMMED, Found.LACKS)
    sent = question(1, 3, 4, data=below, flags=AGAIN, from_ip="10.0.2.3", to_ip=PS_IP)
    words = (Found.HELD, Found.HELD, Found.LACKS, Found.LACKS)
    said = answer(1, 3, *words, to_ip="10.0.2.3", source_ip=PS_IP, to=To.ROUTE, flags=AGAIN)
    v.sees(sent, 1, "asked", said)
    v.sees(question(2, 3, 4, from_ip="10.0.2.3", to_ip=PS_IP), 1, "bad_worker")
    v.sees(question(1, 3, 4, to_ip="10.0.3.2"), 1, "bad_job")


def up(fragment: int) -> Leaves:
    fields = {"worker": 3, "contributors": 1, "slot": UP_BASE + fragment}
    sent = compared(packet(spec.Op.PARTIAL, fragment, sum_of(fragment, 3), PS_IP, OTHER_IP, **fields))
    return Leaves(To.ROUTE, {name: value for name, value in sent.items() if name != "destination_mac"})


@entry
def a_question_of_a_hosts_own_worker_stays(v: Vector) -> None:
    v.is_host = True
    v.senders[LOOP_PORT] = (Sender(JOB, 3),)
    v.admit(job_at_ps(0, workers=0b1000, number=3, up_ip=OTHER_IP, up_base=UP_BASE, result_base=UP_BASE))
    mine = {"from_ip": LOOP_WORKER_IP, "to_ip": LOOP_PLACE_IP}
    v.sees(own(2), LOOP_PORT, "completed", up(2))
    words = answer(3, 2, Found.SUMMED, Found.LACKS, to_ip=LOOP_WORKER_IP, source_ip=PS_IP, flags=AGAIN)
    v.sees(question(3, 2, 2, flags=AGAIN, **mine), LOOP_PORT, "asked", words)
    v.sees(question(4, 2, 2, **mine), LOOP_PORT, "bad_sender")
    v.sees(question(3, 2, 2, from_ip=LOOP_WORKER_IP, to_ip=PS_IP), LOOP_PORT, "bad_sender")


def told_to(to_ip: str, **changes: Any) -> bytes:
    fields = {"op": spec.Op.ANSWER, "data": unknown(3, 2), "count": 2, "to_ip": to_ip, **changes}
    return push(1, 3, **fields)


@entry
def an_answer_passes_switches(v: Vector) -> None:
    """It comes from another switch, or from a host that is a place; no switch is its destination."""
    v.senders |= {1: (Sender(JOB, 0, True),), 2: (Sender(JOB, 1),)}
    v.admit(job_in_unit(2))
    v.sees(told_to("10.0.1.3"), 201, "forwarded", unchanged(To.ROUTE))
    v.sees(told_to("10.0.1.3"), 1, "forwarded", unchanged(To.ROUTE))
    v.sees(told_to("10.0.1.3"), 2, "bad_sender")
    v.sees(told_to(TOR_IP), 201, "malformed")
    v.sees(told_to(GROUP_IP), 201, "malformed")
    v.sees(told_to(TOR_IP, tree=1), 201, "bad_job")


@entry
def an_answer_comes_to_the_workers_socket(v: Vector) -> None:
    v.is_host = True
    v.sees(told_to(PS_IP), 1, "bad_job")
    v.steps.append(Attach(Puller(JOB, GENERATION, (UP_BASE,), SIZE, spec.LANES, PS_IP, PS_MAC)))
    v.sees(told_to(PS_IP), 1, "answered", woken(told_to(PS_IP)))
    v.sees(told_to(PS_IP, generation=9), 1, "bad_generation")
    v.sees(told_to(PS_IP, tree=1), 1, "bad_job")


def a_bmv2_switch_loses_questions() -> Vector:
    """Return a vector of a switch that does not know questions: nothing leaves, and its sums are
    unchanged.
    """
    v = Vector("a bmv2 switch loses questions")
    in_unit(v)
    v.push(0, 0, "aggregated")
    v.sees(question(1, 0, 2), 2, "malformed")
    v.sees(question(1, 0, 2, flags=AGAIN), 201, "malformed")
    v.sees(told_to(TOR_IP), 201, "malformed")
    v.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2))
    return v


AT_P4: Table = {"a bmv2 switch loses questions": a_bmv2_switch_loses_questions()}
