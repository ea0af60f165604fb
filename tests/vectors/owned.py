"""Vectors of owned trees: sums that go to one owner alone, the owner's packets to all workers, and beats both
ways (docs/luwu-network.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.aggregation.entries import Entry, Sender
from testbed.reference_model.output_ports import To
from testbed.reference_model.pull import Puller
from testbed.topology.addresses import CONTROL_PORT
from testbed.wire import frame, spec
from testbed.wire.spec import Op
from tests.vectors.build import (
    BASE,
    FABRIC,
    GENERATION,
    GROUP_IP,
    GROUP_MAC,
    HOST_MAC,
    JOB,
    OPTICAL,
    PS_IP,
    PS_MAC,
    SIZE,
    TOR_IP,
    TOR_MAC,
    UP_BASE,
    UP_TOR_IP,
    Attach,
    Lanes,
    Leaves,
    Table,
    Vector,
    compared,
    empty,
    job_across,
    job_in_unit,
    job_passing,
    lanes,
    notice,
    packet,
    partial,
    push,
    result,
    result_frame,
    sum_of,
    tick,
    total,
    unchanged,
    vector,
    worker_lanes,
    workers_at_ports,
)
from tests.vectors.pulls import woken
from tests.vectors.questions import question

TABLE: Table = {}
entry = vector(TABLE)
OWNER_IP, OWNER_PORT = "10.0.1.3", 3
PLACE, PLACE_PORT = 5, OPTICAL[0]  # the number of a place below, and its port
END = int(spec.Flag.END)
ALL = (0, 1, PLACE)


def top(count: int = 2, **changes: Any) -> Entry:
    """Return the entry of the owner's switch, with workers 0, 1, ... and the place below."""
    fields = {"places": 1 << PLACE, "program": "owned", "owner_ip": OWNER_IP, **changes}
    return job_in_unit(count, **fields)


def inner(**changes: Any) -> Entry:
    """Return the entry of a switch with workers 1 and 3, below another unit's switch."""
    return job_across(**{"up_ip": UP_TOR_IP, "program": "owned", **changes})


def at_top(v: Vector, **changes: Any) -> None:
    v.senders |= {**workers_at_ports([0, 1]), OWNER_PORT: (Sender(JOB, None, is_owner=True),)}
    v.admit(top(**changes))


def at_inner(v: Vector, **changes: Any) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(inner(**changes))


def below(fragment: int, **changes: Any) -> bytes:
    """Return a partial sum over two workers from the place below."""
    slot = BASE + fragment % SIZE
    return partial(PLACE, fragment, **{"to_ip": TOR_IP, "from_ip": "10.0.6.254", "slot": slot, **changes})


def summed(fragment: int, lanes: Lanes, contributors: int = 4, **changes: Any) -> Leaves:
    """Return the sum expected to leave for the owner."""
    fields: dict[str, Any] = {"contributors": contributors, "slot": fragment % SIZE, "count": 360, **changes}
    return _routed(packet(Op.SUM, fragment, lanes, TOR_IP, OWNER_IP, **fields))


def upwards(fragment: int, lanes: Lanes, **changes: Any) -> Leaves:
    """Return the partial sum expected to leave `inner` for the place above."""
    fields: dict[str, Any] = {"worker": 1, "contributors": 2, "slot": UP_BASE + fragment % SIZE, **changes}
    return _routed(packet(Op.PARTIAL, fragment, lanes, TOR_IP, UP_TOR_IP, **fields))


def _routed(sent: frame.Frame) -> Leaves:
    return Leaves(
        To.ROUTE, {name: value for name, value in compared(sent).items() if name != "destination_mac"}
    )


def beat(worker: int, ack: int, credit: int, **changes: Any) -> bytes:
    """Return a worker's beat to its switch; `op` and the addresses may make it another sender's."""
    source, destination = changes.pop("from_ip", f"10.0.1.{worker + 1}"), changes.pop("to_ip", TOR_IP)
    macs = {"source_mac": HOST_MAC, "destination_mac": TOR_MAC}
    fields = {"worker": worker, "slot": credit, "count": 0, "contributors": 0, **macs, **changes}
    op = fields.pop("op", Op.PARAMETER_BEAT)
    return packet(op, ack, frame.NO_LANES, source, destination, **fields).pack()


def beat_up(ack: int, credit: int, **changes: Any) -> Leaves:
    """Return the beat expected to leave for the owner, or as `changes` say."""
    to_ip = changes.pop("to_ip", OWNER_IP)
    fields = {"worker": 0, "slot": credit, "count": 0, "contributors": 0, **changes}
    return _routed(packet(Op.PARAMETER_BEAT, ack, frame.NO_LANES, TOR_IP, to_ip, **fields))


def from_owner(op: Op, fragment: int, **changes: Any) -> bytes:
    """Return parameters or a beat as the owner sends them."""
    source, destination = changes.pop("from_ip", OWNER_IP), changes.pop("to_ip", GROUP_IP)
    content = changes.pop("data", lanes(fragment) if op is Op.PARAMETERS else frame.NO_LANES)
    macs = {"source_mac": HOST_MAC, "destination_mac": GROUP_MAC}
    fields = {"worker": spec.NO_WORKER, "slot": 0, "contributors": 0, **macs, **changes}
    return packet(op, fragment, content, source, destination, **fields).pack()


@entry
def sums_go_to_the_owner_alone(v: Vector) -> None:
    at_top(v)
    v.push(1, 3, "aggregated")
    v.sees(below(3), PLACE_PORT, "aggregated")
    v.push(0, 3, "completed", summed(3, sum_of(3, *ALL)))


@entry
def a_contribution_is_in_a_sum_once(v: Vector) -> None:
    at_top(v)
    v.push(0, 3, "aggregated")
    v.push(0, 3, "duplicate")
    v.push(0, 3, "duplicate", data=lanes(99))
    v.sees(below(3), PLACE_PORT, "aggregated")
    v.sees(below(3), PLACE_PORT, "duplicate")
    v.push(1, 3, "completed", summed(3, sum_of(3, *ALL)))


@entry
def a_sum_is_kept_and_goes_up_again(v: Vector) -> None:
    """A repeated contribution, whatever its content, makes the sum go again to the owner, not back to
    the sender.
    """
    at_top(v)
    for worker in (0, 1):
        v.push(worker, 3, "aggregated", count=9)
    v.sees(below(3, count=9), PLACE_PORT, "completed", summed(3, sum_of(3, *ALL), count=9))
    v.push(0, 3, "resent", summed(3, sum_of(3, *ALL), count=9))
    v.push(1, 3, "resent", summed(3, sum_of(3, *ALL), count=9), data=lanes(99), count=7)
    v.sees(below(3), PLACE_PORT, "resent", summed(3, sum_of(3, *ALL), count=9))


@entry
def a_newer_fragment_takes_the_slot_of_one_that_is_not_complete(v: Vector) -> None:
    at_top(v)
    v.push(0, 3, "aggregated", flags=END)
    v.push(1, 3, "aggregated")
    later = 3 + SIZE
    v.push(1, later, "aggregated", slot=BASE + 3)
    v.push(0, 3, "stale")
    v.sees(below(3), PLACE_PORT, "stale")
    v.push(0, later, "aggregated", slot=BASE + 3)
    v.sees(below(later), PLACE_PORT, "completed", summed(later, sum_of(later, *ALL)))
    v.push(1, 3, "stale")


@entry
def fragments_of_owned_trees_come_round(v: Vector) -> None:
    at_top(v, count=1, places=0)
    before, after = 2**32 - 5, 11  # in one slot
    assert before % SIZE == after % SIZE
    v.push(0, before, "completed", summed(before, sum_of(before, 0), 1))
    v.push(0, after, "completed", summed(after, sum_of(after, 0), 1))
    v.push(0, before, "stale")


@entry
def the_end_of_a_request_goes_up_with_its_sum(v: Vector) -> None:
    at_top(v)
    v.push(0, 3, "aggregated", flags=END, count=5)
    v.push(1, 3, "aggregated", flags=END | int(spec.Flag.RETRANSMIT), count=5)
    sent = summed(3, sum_of(3, *ALL), flags=END, count=5)
    v.sees(below(3, flags=END, count=5), PLACE_PORT, "completed", sent)
    v.push(0, 3, "resent", sent)
    v.push(0, 3 + SIZE, "aggregated", slot=BASE + 3)
    v.push(1, 3 + SIZE, "aggregated", slot=BASE + 3)
    v.sees(below(3 + SIZE), PLACE_PORT, "completed", summed(3 + SIZE, sum_of(3 + SIZE, *ALL)))


@entry
def a_mark_goes_up_with_the_sum(v: Vector) -> None:
    at_top(v)
    v.push(0, 3, "aggregated", tos=spec.CE)
    v.push(1, 3, "aggregated", tos=spec.ECT)
    v.sees(below(3, tos=spec.ECT), PLACE_PORT, "completed", summed(3, sum_of(3, *ALL), tos=spec.CE))
    v.push(0, 3, "resent", summed(3, sum_of(3, *ALL), tos=spec.ECT), tos=spec.ECT)


@entry
def a_place_below_sends_its_sums_to_the_one_above(v: Vector) -> None:
    at_inner(v)
    v.push(3, 20, "aggregated", flags=END)
    v.push(1, 20, "completed", upwards(20, sum_of(20, 1, 3), flags=END), flags=END)
    v.push(1, 20, "resent", upwards(20, sum_of(20, 1, 3), flags=END))


@entry
def nobody_else_contributes_to_an_owned_tree(v: Vector) -> None:
    at_top(v)
    v.sees(below(3, worker=6), PLACE_PORT, "bad_worker")
    v.sees(below(3, worker=0), PLACE_PORT, "bad_worker")
    v.sees(below(3, worker=64), PLACE_PORT, "bad_worker")
    v.sees(push(PLACE, 3), PLACE_PORT, "bad_worker")
    v.push(1, 3, "bad_sender", port=1)
    v.push(0, 3, "bad_sender", port=OWNER_PORT)
    v.sees(below(3), 1, "bad_sender")
    v.push(0, 3, "bad_slot", slot=BASE + SIZE)
    v.push(0, 3, "bad_slot", slot=BASE - 1)
    v.push(0, 3, "bad_generation", generation=9)
    v.push(0, 3, "malformed", data=lanes(1)[:64])
    v.push(0, 3, "bad_job", tree=1)


@entry
def a_beat_goes_up_when_all_members_were_heard(v: Vector) -> None:
    at_top(v)
    v.sees(beat(1, 4, 20), 2, "beat")
    v.sees(beat(0, 7, 19), 1, "beat")
    v.sees(beat(0, 8, 30), 1, "beat")
    v.sees(beat(PLACE, 5, 33), PLACE_PORT, "beat", beat_up(4, 20))


@entry
def a_beat_goes_up_on_growth_or_from_the_lowest_member(v: Vector) -> None:
    at_top(v)
    for member, port in ((0, 1), (1, 2)):
        v.sees(beat(member, 4, 20), port, "beat")
    v.sees(beat(PLACE, 4, 20), PLACE_PORT, "beat", beat_up(4, 20))
    v.sees(beat(1, 6, 22), 2, "beat")
    v.sees(beat(PLACE, 6, 22), PLACE_PORT, "beat")
    v.sees(beat(0, 4, 20), 1, "beat", beat_up(4, 20))  # replaces the beat before, had that been lost
    v.sees(beat(0, 5, 20), 1, "beat", beat_up(5, 20))
    v.sees(beat(1, 6, 22), 2, "beat")
    v.sees(beat(0, 5, 24), 1, "beat", beat_up(5, 22))
    v.sees(beat(0, 9, 24), 1, "beat", beat_up(6, 22))
    v.sees(beat(PLACE, 8, 23), PLACE_PORT, "beat")
    v.sees(beat(1, 7, 22), 2, "beat", beat_up(7, 22))


@entry
def beats_that_were_overtaken_change_nothing(v: Vector) -> None:
    at_top(v, places=0)
    v.sees(beat(1, 9, 30), 2, "beat")
    v.sees(beat(0, 9, 31), 1, "beat", beat_up(9, 30))
    v.sees(beat(1, 8, 29), 2, "beat")
    v.sees(beat(1, 10, 29), 2, "beat")
    v.sees(beat(1, 8, 40), 2, "beat", beat_up(9, 31))
    v.sees(beat(0, 8, 29), 1, "beat", beat_up(9, 31))
    v.sees(beat(0, 12, 50), 1, "beat", beat_up(10, 40))


@entry
def numbers_of_beats_come_round(v: Vector) -> None:
    at_top(v, places=0)
    v.sees(beat(1, 2**32 - 2, 2), 2, "beat")
    v.sees(beat(0, 2**32 - 1, 3), 1, "beat", beat_up(2**32 - 2, 2))
    v.sees(beat(1, 1, 5), 2, "beat", beat_up(2**32 - 1, 3))
    v.sees(beat(0, 2, 9), 1, "beat", beat_up(1, 5))
    v.sees(beat(0, 2**32 - 1, 3), 1, "beat", beat_up(1, 5))


@entry
def beats_are_members(v: Vector) -> None:
    at_top(v)
    v.sees(beat(6, 1, 1), PLACE_PORT, "bad_worker")
    v.sees(beat(64 + PLACE, 1, 1), PLACE_PORT, "bad_worker")
    v.sees(beat(1, 1, 1), 1, "bad_sender")
    v.sees(beat(0, 1, 1), OWNER_PORT, "bad_sender")
    v.sees(beat(0, 1, 1, generation=9), 1, "bad_generation")
    v.sees(beat(0, 1, 1, tree=1), 1, "bad_job")
    v.sees(beat(0, 1, 1, to_ip=OWNER_IP), 1, "forwarded", unchanged(To.ROUTE))
    v.sees(beat(0, 1, 1, to_ip=GROUP_IP), 1, "malformed")


@entry
def a_place_below_sends_its_beats_to_the_one_above(v: Vector) -> None:
    at_inner(v)
    v.sees(beat(3, 4, 20), 4, "beat")
    up = {"to_ip": UP_TOR_IP, "worker": 1}
    v.sees(beat(1, 5, 19), 2, "beat", beat_up(4, 19, **up))
    v.sees(beat(3, 4, 20), 4, "beat")
    v.sees(beat(1, 5, 19, flags=END | int(spec.Flag.RETRANSMIT)), 2, "beat", beat_up(4, 19, **up))


@entry
def a_beat_of_64_members_is_the_least_of_all(v: Vector) -> None:
    every = range(64)
    v.senders |= workers_at_ports(every)
    v.admit(top(64, places=0))
    for member in every[1:]:
        v.sees(beat(member, 100 + (member * 37) % 64, 300 + (member * 11) % 64), member + 1, "beat")
    v.sees(beat(0, 500, 700), 1, "beat", beat_up(101, 301))
    v.push(63, 3, "aggregated")
    for worker in every[1:-1]:
        v.push(worker, 3, "aggregated")
    v.push(0, 3, "completed", summed(3, sum_of(3, *every), 64))


@entry
def each_of_64_members_may_be_the_least(v: Vector) -> None:
    every = range(64)
    v.senders |= workers_at_ports(every)
    v.admit(top(64, places=0))
    for member in every[1:]:
        v.sees(beat(member, 100 + member, 300 + member), member + 1, "beat")
    v.sees(beat(0, 100, 300), 1, "beat", beat_up(100, 300))
    for member in every[:-1]:
        v.sees(beat(member, 500, 700), member + 1, "beat", beat_up(101 + member, 301 + member))


@entry
def the_owners_packets_go_to_all_workers(v: Vector) -> None:
    at_top(v)
    v.sees(from_owner(Op.PARAMETERS, 3), OWNER_PORT, "result", unchanged(To.OTHERS))
    v.sees(from_owner(Op.PARAMETERS, 3, flags=END, count=3), OWNER_PORT, "result", unchanged(To.OTHERS))
    v.sees(from_owner(Op.GRADIENT_BEAT, 7, slot=30), OWNER_PORT, "beat", unchanged(To.OTHERS))
    v.push(0, 3, "aggregated")  # the owner's packets changed no slot


@entry
def the_owners_packets_come_from_the_owner(v: Vector) -> None:
    at_top(v)
    v.senders[4] = (Sender(8, None, is_owner=True),)
    for op in (Op.PARAMETERS, Op.GRADIENT_BEAT):
        for port in (1, 2, 4, 9):
            v.senders.setdefault(port, ())
            v.sees(from_owner(op, 3), port, "bad_sender")
        v.sees(from_owner(op, 3, to_ip="239.192.0.8"), OWNER_PORT, "malformed")
        v.sees(from_owner(op, 3, to_ip=TOR_IP), OWNER_PORT, "malformed")
        v.sees(from_owner(op, 3, generation=9), OWNER_PORT, "bad_generation")
        v.sees(from_owner(op, 3, tree=1, to_ip=TOR_IP), OWNER_PORT, "bad_job")
        v.sees(from_owner(op, 3, to_ip="10.0.2.7"), OWNER_PORT, "forwarded", unchanged(To.ROUTE))
        few = lanes(1)[:64] if op is Op.PARAMETERS else frame.NO_LANES
        v.sees(from_owner(op, 3, lanes=64, data=few, count=0), OWNER_PORT, "malformed")
    sent = packet(Op.SUM, 3, lanes(3), TOR_IP, OWNER_IP, source_mac=HOST_MAC, destination_mac=TOR_MAC).pack()
    for port in (1, OWNER_PORT, 9):
        v.sees(sent, port, "bad_sender")
    v.sees(sent, FABRIC[2], "forwarded", unchanged(To.ROUTE))


@entry
def an_owned_tree_knows_no_other_operation(v: Vector) -> None:
    at_top(v)
    v.push(0, 3, "aggregated")
    v.sees(empty(1, 3), 2, "malformed")
    v.sees(question(0, 3, 1), 1, "malformed")
    v.sees(result_frame(3, lanes(3), PS_IP, 4).pack(), FABRIC[2], "malformed")
    v.sees(result_frame(3, lanes(3), PS_IP, 4, TOR_IP).pack(), FABRIC[2], "malformed")
    macs: dict[str, Any] = {"source_mac": HOST_MAC, "destination_mac": TOR_MAC}
    v.sees(packet(Op.NOTICE, 3, frame.NO_LANES, PS_IP, TOR_IP, **macs).pack(), FABRIC[2], "malformed")
    v.sees(packet(Op.ANSWER, 3, lanes(3), PS_IP, TOR_IP, **macs).pack(), FABRIC[2], "malformed")
    v.sees(packet(Op.SUM, 3, lanes(3), PS_IP, TOR_IP, **macs).pack(), FABRIC[2], "malformed")
    v.sees(tick(3), CONTROL_PORT, "bad_job")
    v.push(1, 3, "aggregated")


@entry
def an_owned_tree_passes_through_where_nobody_contributes(v: Vector) -> None:
    v.admit(job_passing(program="owned", up_ip=UP_TOR_IP))
    for op, verdict in ((Op.PARAMETERS, "result"), (Op.GRADIENT_BEAT, "beat")):
        v.sees(from_owner(op, 3), OPTICAL[1], verdict, unchanged(To.OTHERS))
    v.sees(below(3), PLACE_PORT, "bad_worker")
    v.sees(beat(PLACE, 3, 4), PLACE_PORT, "bad_worker")
    v.sees(below(3, to_ip=UP_TOR_IP), PLACE_PORT, "forwarded", unchanged(To.ROUTE))


@entry
def an_owned_tree_that_begins_again_knows_nothing_of_before(v: Vector) -> None:
    at_top(v, places=0)
    v.push(0, 3, "aggregated")
    v.sees(beat(0, 5, 20), 1, "beat")
    v.admit(top(places=0))  # as after a change of circuits: the same tree
    v.sees(beat(1, 4, 19), 2, "beat", beat_up(4, 19))
    v.push(1, 3, "completed", summed(3, sum_of(3, 0, 1), 2))
    v.release()
    v.push(0, 3, "bad_job")
    v.sees(beat(0, 6, 21), 1, "bad_job")
    v.admit(top(places=0, generation=GENERATION + 1))
    following = {"generation": GENERATION + 1}
    v.sees(beat(0, 6, 21), 1, "bad_generation")
    v.sees(beat(0, 0, 8, **following), 1, "beat")
    v.push(0, 2, "aggregated", **following)
    v.push(1, 3, "aggregated", **following)
    v.push(0, 3, "completed", summed(3, sum_of(3, 0, 1), 2, **following), **following)
    v.sees(beat(1, 0, 9, **following), 2, "beat", beat_up(0, 8, **following))


@entry
def packets_of_owned_trees_may_have_fewer_lanes(v: Vector) -> None:
    at_top(v, count=1, lanes=64)
    few: dict[str, Any] = {"data": worker_lanes(0, 3)[:64]}
    both = total(few["data"], worker_lanes(PLACE, 3)[:64])
    v.push(0, 3, "aggregated", **few)
    sent = below(3, data=worker_lanes(PLACE, 3)[:64])
    v.sees(sent, PLACE_PORT, "completed", summed(3, both, 3, count=64))
    v.push(0, 3, "resent", summed(3, both, 3, count=64), data=np.zeros(64, np.uint32))
    v.push(0, 3, "malformed")
    parameters = from_owner(Op.PARAMETERS, 3, data=lanes(3)[:64], lanes=64, count=64)
    v.sees(parameters, OWNER_PORT, "result", unchanged(To.OTHERS))


@entry
def other_trees_know_no_operation_of_owned_ones(v: Vector) -> None:
    v.senders |= {**workers_at_ports([0, 1]), OWNER_PORT: (Sender(JOB, None, is_owner=True),)}
    v.admit(job_in_unit(2))
    v.push(0, 3, "aggregated")
    v.sees(beat(1, 3, 9), 2, "malformed")
    for op in (Op.PARAMETERS, Op.GRADIENT_BEAT):
        v.sees(from_owner(op, 3), OWNER_PORT, "malformed")
        v.sees(from_owner(op, 3, to_ip=TOR_IP), OWNER_PORT, "malformed")
        v.sees(from_owner(op, 3), OPTICAL[0], "malformed")
        v.sees(from_owner(op, 3, to_ip=TOR_IP), OPTICAL[0], "malformed")
        v.sees(from_owner(op, 3, to_ip=TOR_IP, generation=9), OPTICAL[0], "bad_generation")
    macs: dict[str, Any] = {"source_mac": HOST_MAC, "destination_mac": TOR_MAC}
    v.sees(packet(Op.SUM, 3, lanes(3), PS_IP, TOR_IP, **macs).pack(), OPTICAL[0], "malformed")
    v.push(1, 3, "completed", result(3, sum_of(3, 0, 1), 2))


@entry
def owned_trees_and_others_share_a_place(v: Vector) -> None:
    at_top(v, places=0)
    v.senders |= {port + 10: workers_at_ports([port - 1], 8)[port] for port in (1, 2)}
    v.admit(job_in_unit(2, generation=9, base=BASE + SIZE, group_ip="239.192.0.8"), 8)
    other: dict[str, Any] = {"job": 8, "generation": 9}
    v.push(0, 3, "aggregated")
    v.push(0, 3, "aggregated", port=11, slot=BASE + SIZE + 3, **other)
    late = {"slot": BASE + SIZE + 3, **other}
    refused = notice(0, 3 + SIZE, "10.0.1.1", **late)
    v.push(0, 3 + SIZE, "mismatch", refused, port=11, **late)
    v.push(0, 3 + SIZE, "aggregated", slot=BASE + 3)
    v.push(1, 3 + SIZE, "completed", summed(3 + SIZE, sum_of(3 + SIZE, 0, 1), 2), slot=BASE + 3)


@entry
def a_host_hands_an_ends_packets_to_its_socket(v: Vector) -> None:
    v.is_host = True
    parameters = from_owner(Op.PARAMETERS, 3)
    v.sees(parameters, 1, "bad_job")
    v.steps.append(Attach(Puller(JOB, GENERATION, (UP_BASE,), SIZE, spec.LANES, PS_IP, PS_MAC)))
    for data in (
        parameters,
        from_owner(Op.GRADIENT_BEAT, 7, slot=30),
        beat(0, 3, 9, to_ip=PS_IP),
        packet(Op.SUM, 3, lanes(3), TOR_IP, PS_IP, source_mac=HOST_MAC, destination_mac=TOR_MAC).pack(),
    ):
        v.sees(data, 1, "handed", woken(data))
    v.sees(from_owner(Op.PARAMETERS, 3, generation=9), 1, "bad_generation")
    v.sees(from_owner(Op.PARAMETERS, 3, tree=1), 1, "bad_job")
    v.sees(from_owner(Op.GRADIENT_BEAT, 3, job=8), 1, "bad_job")
    v.sees(from_owner(Op.PARAMETERS, 3, data=lanes(1)[:64], lanes=64, count=64), 1, "malformed")
    v.steps.append(Attach(None))
    v.sees(parameters, 1, "bad_job")
