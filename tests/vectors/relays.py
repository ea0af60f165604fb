"""Vectors of hosts that relay: a result leaves as copies, each to one member's address."""

from __future__ import annotations

from typing import Any

from testbed.aggregation.entries import NO_IP, Sender
from testbed.reference_model.aggregator import LOOP_PORT
from testbed.reference_model.output_ports import To
from testbed.reference_model.pull import Puller
from testbed.topology.addresses import LOOP_WORKER_IP
from testbed.wire import spec
from testbed.wire.frame import CE, Frame
from tests.vectors.build import (
    BASE,
    GENERATION,
    GROUP_IP,
    JOB,
    OTHER_IP,
    PS_IP,
    PS_MAC,
    SIZE,
    TOR_IP,
    TOR_MAC,
    UP_BASE,
    Attach,
    Lanes,
    Leaves,
    Table,
    Vector,
    compared,
    copies,
    job_at_ps,
    job_in_unit,
    lanes,
    notice,
    partial,
    result_frame,
    result_from_ps,
    sum_of,
    unchanged,
    vector,
)
from tests.vectors.forest import from_elsewhere, own, upwards
from tests.vectors.pulls import finds, stored

TABLE: Table = {}
entry = vector(TABLE)

ABOVE_IP = OTHER_IP  # of the host above the head
MEMBERS = ((1, 5), (2, 6))
WORKER_4, PLACE_1 = "10.0.1.5", "10.0.2.254"  # their addresses
DEGRADED: dict[str, Any] = {"flags": int(spec.Flag.FINAL | spec.Flag.DEGRADED), "age": 9}


def at_top(v: Vector, **changes: Any) -> None:
    v.is_host, v.copied_for = True, MEMBERS
    v.admit(job_at_ps(2, group_ip=NO_IP, **changes))


def head(v: Vector, **changes: Any) -> None:
    """Admit the host of worker 3 as the head of worker 4 and place 1, below another host."""
    v.is_host, v.copied_for = True, MEMBERS
    v.senders[LOOP_PORT] = (Sender(JOB, 3),)
    fields = {"up_ip": ABOVE_IP, "up_base": BASE, "result_base": BASE, "number": 1, "group_ip": NO_IP}
    v.admit(job_at_ps(0, **{"workers": 0b11000, "places": 0b10, **fields, **changes}))


def copied(v: Vector, fragment: int, summed: Lanes, contributors: int, **changes: Any) -> tuple[Leaves, ...]:
    """Return the copies expected of a result made here from a packet that was sent to TOR_MAC."""
    fields = {"slot": UP_BASE + fragment % SIZE, "destination_mac": TOR_MAC, **changes}
    return copies(v, result_frame(fragment, summed, PS_IP, contributors, PS_IP, **fields))


def from_above(fragment: int, summed: Lanes, **changes: Any) -> bytes:
    """Return a copy of a result that comes to the head."""
    fields = {"slot": BASE + fragment % SIZE, "to_ip": PS_IP, "destination_mac": PS_MAC, **changes}
    return result_from_ps(fragment, summed, **fields)


def back(fragment: int, summed: Lanes, contributors: int, to_ip: str, **changes: Any) -> Leaves:
    """Return the result expected to go back to the address of a sender that repeats."""
    sent = compared(result_frame(fragment, summed, PS_IP, contributors, to_ip, **changes))
    return Leaves(To.BACK, {name: value for name, value in sent.items() if name != "destination_mac"})


@entry
def a_host_at_the_top_copies_results(v: Vector) -> None:
    at_top(v, workers=0b11000, places=0b10)
    v.senders[LOOP_PORT] = (Sender(JOB, 3),)
    v.sees(own(2), LOOP_PORT, "aggregated")
    v.sees(from_elsewhere(4, 2), 1, "aggregated")
    summed, slot = sum_of(2, 1, 3, 4), {"slot": UP_BASE + 2}
    sent = copied(v, 2, summed, 7)
    assert len(sent) == len(MEMBERS) + 1
    v.sees(partial(1, 2, contributors=5), 1, "completed", *sent)
    v.sees(from_elsewhere(4, 2), 1, "resent", back(2, summed, 7, WORKER_4, **slot))
    v.sees(partial(1, 2), 1, "resent", back(2, summed, 7, PLACE_1, **slot))
    v.sees(own(2), LOOP_PORT, "resent", back(2, summed, 7, LOOP_WORKER_IP, **slot))
    v.sees(from_above(2, summed, slot=UP_BASE + 2), 1, "malformed")
    v.sees(result_from_ps(2, summed), 1, "malformed")
    v.sees(own(SIZE + 2), LOOP_PORT, "aggregated")
    said = notice(1, 2 * SIZE + 2, PLACE_1, source_ip=PS_IP, slot=UP_BASE + 2, contributors=2)
    v.sees(partial(1, 2 * SIZE + 2), 1, "mismatch", said)


@entry
def a_host_without_a_worker_copies_to_its_members_alone(v: Vector) -> None:
    """A congestion mark of a contribution is on every copy."""
    at_top(v)
    v.sees(partial(0, 2, tos=CE), 1, "aggregated")
    sent = copied(v, 2, sum_of(2, 0, 1), 4, tos=CE)
    assert len(sent) == len(MEMBERS)
    v.sees(partial(1, 2, tos=1), 1, "completed", *sent)


@entry
def a_head_sums_and_copies_what_comes_from_above(v: Vector) -> None:
    """A result is copied once; a member that lost its copy repeats its push, and the head answers with
    the result.
    """
    head(v)
    v.sees(from_elsewhere(4, 2), 1, "aggregated")
    v.sees(own(2), LOOP_PORT, "aggregated")
    fields = {"worker": 1, "contributors": 4, "slot": BASE + 2}
    sent = upwards(2, sum_of(2, 1, 3, 4), PS_IP, ABOVE_IP, **fields)
    v.sees(partial(1, 2), 1, "completed", sent)
    v.sees(own(2), LOOP_PORT, "resent", sent)
    summed = lanes(9)
    v.sees(from_above(2, summed, slot=UP_BASE + 2), 1, "bad_slot")
    v.sees(from_above(2, summed, generation=9), 1, "bad_generation")
    v.sees(result_from_ps(2, summed, slot=BASE + 2), 1, "malformed")  # a result to a group
    v.sees(from_above(2, summed, to_ip="10.0.3.2"), 1, "malformed")
    v.sees(from_above(2, summed), 1, "result", *copies(v, Frame.parse(from_above(2, summed))))
    v.sees(from_above(2, summed), 1, "pull_duplicate")
    v.sees(from_elsewhere(4, 2), 1, "resent", back(2, summed, 5, WORKER_4, slot=BASE + 2))
    v.sees(own(2), LOOP_PORT, "resent", back(2, summed, 5, LOOP_WORKER_IP, slot=BASE + 2))
    v.sees(partial(1, 2), 1, "resent", back(2, summed, 5, PLACE_1, slot=BASE + 2))


@entry
def a_head_copies_results_of_its_generation_alone(v: Vector) -> None:
    """A slot that still keeps a result of the former generation does not hold up one of this generation."""
    head(v)
    v.sees(own(2), LOOP_PORT, "aggregated")
    data = from_above(2, lanes(9), **DEGRADED)
    v.sees(data, 1, "result", *copies(v, Frame.parse(data)))
    v.release()
    head(v, generation=GENERATION + 1)
    v.sees(data, 1, "bad_generation")
    again = from_above(2, lanes(8), generation=GENERATION + 1)
    v.sees(again, 1, "result", *copies(v, Frame.parse(again)))
    v.sees(own(2, generation=GENERATION + 1), LOOP_PORT, "aggregated")


@entry
def a_heads_worker_takes_results_by_the_loop(v: Vector) -> None:
    """A result of the relayed tree that comes by eth0 is copied, not pulled; one of the worker's other tree
    is pulled.
    """
    head(v)
    bases = (BASE, UP_BASE + SIZE)
    v.steps.append(Attach(Puller(JOB, GENERATION, bases, SIZE, spec.LANES, PS_IP, PS_MAC)))
    v.sees(from_above(2, lanes(9)), 1, "result", *copies(v, Frame.parse(from_above(2, lanes(9)))))
    finds(v, 0)
    v.sees(from_above(2, lanes(8), tree=1, slot=UP_BASE + SIZE + 2), 1, "pulled")
    place = {f"p{SIZE + 2}": stored(2, lanes(8))}
    finds(v, 1, **place)


@entry
def a_head_that_lacks_a_sum_copies_a_degraded_result(v: Vector) -> None:
    """The place above was ticked: the head keeps the result if its own sum had begun, and copies it in
    any case.
    """
    head(v)
    v.sees(own(2), LOOP_PORT, "aggregated")
    data = from_above(2, lanes(9), **DEGRADED)
    v.sees(data, 1, "result", *copies(v, Frame.parse(data)))
    v.sees(data, 1, "pull_duplicate")
    v.sees(from_elsewhere(4, 2), 1, "late", back(2, lanes(9), 5, WORKER_4, slot=BASE + 2, **DEGRADED))
    unknown = from_above(3, lanes(8), **DEGRADED)
    v.sees(unknown, 1, "result", *copies(v, Frame.parse(unknown)))


@entry
def a_tick_at_the_top_is_copied_to_all(v: Vector) -> None:
    at_top(v)
    v.sees(partial(0, 2), 1, "aggregated")
    sent = copied(v, 2, sum_of(2, 0), 2, **DEGRADED)
    v.tick(2, "ticked", *sent, age=DEGRADED["age"], slot=UP_BASE + 2)
    v.sees(partial(1, 2), 1, "late", back(2, sum_of(2, 0), 2, PLACE_1, slot=UP_BASE + 2, **DEGRADED))


@entry
def a_switch_lets_copies_of_hosts_that_relay_pass(v: Vector) -> None:
    """A switch forwards copies of the sender's own job to hosts only. A host that does not relay may send
    results to groups only.
    """
    v.senders |= {1: (Sender(JOB, 0, True, True),), 2: (Sender(JOB, 1, True),), 3: (Sender(JOB, 2),)}
    v.admit(job_in_unit(3))
    for to_ip in ("10.0.1.3", "10.0.2.9", PS_IP):
        copy = result_from_ps(2, lanes(9), to_ip=to_ip)
        v.sees(copy, 1, "forwarded", unchanged(To.ROUTE))
        v.sees(copy, 2, "malformed")
        v.sees(copy, 3, "bad_sender")
    v.sees(result_from_ps(2, lanes(9), to_ip="10.0.1.3", job=8), 1, "bad_sender")
    v.sees(result_from_ps(2, lanes(9), to_ip=TOR_IP), 1, "malformed")
    v.sees(result_from_ps(2, lanes(9), to_ip=GROUP_IP), 1, "malformed")  # this switch is at the top
    copy = result_from_ps(2, lanes(9), to_ip="10.0.1.3")
    v.sees(copy[:-1], 1, "malformed")
    v.sees(copy[:-1] + bytes([copy[-1] ^ 1]), 1, "corrupt")


@entry
def a_switch_that_knows_no_tree_of_the_job_passes_them_too(v: Vector) -> None:
    v.senders |= {1: (Sender(JOB, 0, True, True),)}
    v.sees(result_from_ps(2, lanes(9), to_ip="10.0.2.9"), 1, "forwarded", unchanged(To.ROUTE))
    v.sees(partial(0, 2), 1, "forwarded", unchanged(To.ROUTE))
    v.push(0, 2, "forwarded", unchanged(To.ROUTE), to_ip=PS_IP)
    v.sees(result_from_ps(2, lanes(9), to_ip=GROUP_IP), 1, "bad_job")


@entry
def a_member_pulls_its_copy(v: Vector) -> None:
    v.is_host = True
    v.steps.append(Attach(Puller(JOB, GENERATION, (BASE,), SIZE, spec.LANES, PS_IP, PS_MAC)))
    v.sees(from_above(2, lanes(9)), 1, "pulled")
    v.sees(from_above(2, lanes(9)), 1, "pull_duplicate")
    finds(v, 1, p2=stored(2, lanes(9)))
