"""Vectors of sums within one unit: completion, repetition, slots taken over by newer fragments, segments used
by the next job.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np

from testbed.aggregation.entries import Sender
from testbed.reference_model.output_ports import To
from testbed.wire import spec
from testbed.wire.frame import CE, ECT
from tests.vectors.build import (
    BASE,
    GENERATION,
    JOB,
    MASK,
    SIZE,
    TOR_IP,
    Table,
    Vector,
    altered,
    checksum_of,
    job_in_unit,
    lanes,
    notice,
    push,
    result,
    result_frame,
    sum_of,
    total,
    vector,
    worker_lanes,
    workers_at_ports,
)

TABLE: Table = {}
entry = vector(TABLE)
FULL = functools.partial(np.full, spec.LANES, dtype=np.uint32)


def job_of(v: Vector, workers: int) -> None:
    v.senders |= workers_at_ports(range(workers))
    v.admit(job_in_unit(workers))


def completion(v: Vector, workers: int) -> None:
    job_of(v, workers)
    for fragment in (0, 1):
        order = [(3 * turn + 1) % workers if workers % 3 else turn for turn in range(workers)]
        for worker in order[:-1]:
            v.push(worker, fragment, "aggregated")
        v.push(order[-1], fragment, "completed", result(fragment, sum_of(fragment, *range(workers)), workers))


for _workers in range(1, spec.MAX_WORKERS + 1):
    _made = Vector(f"completion with {_workers} workers")
    completion(_made, _workers)
    TABLE[_made.name] = _made


@entry
def checksums_around_zero(v: Vector) -> None:
    """A UDP checksum of 0 is sent as 65535, for 0 means none (RFC 768); values just above 0 need a second
    end-around carry.
    """
    job_of(v, 2)
    for fragment in range(10):
        mine, theirs = worker_lanes(0, fragment), worker_lanes(1, fragment)
        mine[0] = 0
        mine[0] = checksum_of(push(0, fragment, data=mine))  # makes the push's checksum 65535
        summed = total(mine, theirs)
        summed[0] = 2**17  # this much more than the first push's lane
        summed[0] += checksum_of(result_frame(fragment, summed, TOR_IP, 2).pack()) + fragment
        theirs[0] = summed[0] - mine[0]
        if not fragment:
            assert (
                checksum_of(push(0, fragment, data=mine))
                == checksum_of(result_frame(0, summed, TOR_IP, 2).pack())
                == 0xFFFF
            )
        v.push(0, fragment, "aggregated", data=mine)
        v.push(1, fragment, "completed", result(fragment, summed, 2), data=theirs)
        v.push(1, fragment, "resent", result(fragment, summed, 2, To.BACK), data=theirs)


@entry
def a_carry_of_ipv4s_checksum_carries_again(v: Vector) -> None:
    """A result keeps the IPv4 identification of the packet that completed it; here one that makes the sum of
    all words 65535 and a carry.

    In network byte order and in the other, in which an engine may add (RFC 1071, section 2).
    """
    job_of(v, 2)
    orders: tuple[Literal["big", "little"], ...] = ("big", "little")
    for fragment, order in enumerate(orders):
        header = result_frame(fragment, sum_of(fragment, 0, 1), TOR_IP, 2).pack()[14:34]
        rest = sum(int.from_bytes(header[at : at + 2], order) for at in range(0, 20, 2) if at != 10)
        assert rest >> 16, "there is a carry"
        identified = altered(push(1, fragment), 18, (0xFFFF - rest % 2**16).to_bytes(2, order))
        v.push(0, fragment, "aggregated")
        v.sees(identified, 2, "completed", result(fragment, sum_of(fragment, 0, 1), 2))


@entry
def a_contribution_counts_once(v: Vector) -> None:
    job_of(v, 3)
    v.push(0, 4, "aggregated")
    v.push(0, 4, "duplicate")
    v.push(0, 4, "duplicate", data=lanes(99), flags=int(spec.Flag.RETRANSMIT))
    v.push(2, 4, "aggregated")
    v.push(2, 4, "duplicate")
    v.push(1, 4, "completed", result(4, sum_of(4, 0, 1, 2), 3))


@entry
def a_complete_sum_is_sent_again_to_the_asker(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 4, "aggregated", count=17)
    v.push(1, 4, "completed", result(4, sum_of(4, 0, 1), 2, count=18), count=18)
    again = result(4, sum_of(4, 0, 1), 2, To.BACK, count=18)
    v.push(0, 4, "resent", again, count=17)
    v.push(1, 4, "resent", again, data=lanes(99), count=5, age=9, flags=int(spec.Flag.RETRANSMIT))
    v.push(0, 4, "resent", again, count=17)


@entry
def an_older_fragment_is_stale(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, SIZE + 2, "aggregated")
    v.push(1, 2, "stale")
    v.push(0, 2, "stale")
    v.push(1, SIZE + 2, "completed", result(SIZE + 2, sum_of(SIZE + 2, 0, 1), 2))
    v.push(1, 2, "stale")


@entry
def an_older_fragment_that_is_incomplete_is_not_pushed_out(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 2, "aggregated")
    v.push(1, SIZE + 2, "mismatch", notice(1, SIZE + 2, "10.0.1.2"))
    v.push(
        0,
        SIZE + 2,
        "mismatch",
        notice(0, SIZE + 2, "10.0.1.1"),
        flags=int(spec.Flag.RETRANSMIT),
        count=3,
        ttl=9,
    )
    v.push(1, 2, "completed", result(2, sum_of(2, 0, 1), 2))
    v.push(1, SIZE + 2, "aggregated")
    v.push(0, SIZE + 2, "completed", result(SIZE + 2, sum_of(SIZE + 2, 0, 1), 2))


@entry
def a_complete_older_fragment_gives_its_slot_up(v: Vector) -> None:
    job_of(v, 2)
    for fragment in (3, SIZE + 3, 5 * SIZE + 3):
        v.push(1, fragment, "aggregated")
        v.push(0, fragment, "completed", result(fragment, sum_of(fragment, 0, 1), 2))
    v.push(0, SIZE + 3, "stale")


@entry
def every_slot_of_the_segment_is_its_own(v: Vector) -> None:
    job_of(v, 2)
    for fragment in range(SIZE):
        v.push(0, fragment, "aggregated")
    for fragment in reversed(range(SIZE)):
        v.push(1, fragment, "completed", result(fragment, sum_of(fragment, 0, 1), 2))
    for fragment in range(SIZE):
        v.push(0, fragment, "resent", result(fragment, sum_of(fragment, 0, 1), 2, To.BACK))


@entry
def lanes_hold_sums_up_to_the_last_bit(v: Vector) -> None:
    job_of(v, 3)
    v.push(0, 0, "aggregated", data=FULL(2**31))
    v.push(1, 0, "aggregated", data=FULL(2**31 - 1))
    v.push(2, 0, "completed", result(0, FULL(MASK), 3), data=FULL(0))
    alternating = np.where(np.arange(spec.LANES) % 2, 2**31, 1).astype(np.uint32)
    v.push(0, 1, "aggregated", data=FULL(2**31 - 1))
    v.push(1, 1, "aggregated", data=alternating)
    v.push(2, 1, "completed", result(1, FULL(2**31 - 1) + alternating, 3), data=FULL(0))


@entry
def all_lanes_are_summed_whatever_count_says(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 0, "aggregated", count=0)
    v.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2, count=1), count=1)
    v.push(1, 0, "resent", result(0, sum_of(0, 0, 1), 2, To.BACK, count=1), count=0)


@entry
def age_and_flags_of_a_push_are_not_the_results(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 0, "aggregated", age=500, flags=0xD, contributors=9)
    v.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2), age=501, flags=0xC, contributors=12, ttl=3)


@entry
def a_mark_on_a_contribution_is_on_the_sum(v: Vector) -> None:
    job_of(v, 3)
    for fragment, marked in enumerate(((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (0, 0, 0))):
        tos = [CE if mark else ECT for mark in marked]
        v.push(0, fragment, "aggregated", tos=tos[0])
        v.push(1, fragment, "aggregated", tos=tos[1])
        summed = sum_of(fragment, 0, 1, 2)
        v.push(
            2, fragment, "completed", result(fragment, summed, 3, tos=CE if any(marked) else ECT), tos=tos[2]
        )
        # a repeated result has the ECN field of the push that asked for it
        v.push(0, fragment, "resent", result(fragment, summed, 3, To.BACK, tos=ECT), tos=ECT)
        v.push(1, fragment, "resent", result(fragment, summed, 3, To.BACK, tos=CE), tos=CE)


@entry
def a_mark_does_not_outlive_its_fragment(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 0, "aggregated", tos=CE)
    v.push(0, 0, "duplicate", tos=CE)
    v.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2, tos=CE), tos=ECT)
    v.push(0, SIZE, "aggregated", tos=ECT)
    v.push(0, SIZE, "duplicate", tos=CE)  # a duplicate's mark does not count
    v.push(1, SIZE, "completed", result(SIZE, sum_of(SIZE, 0, 1), 2, tos=ECT), tos=ECT)


@entry
def the_rest_of_the_tos_byte_is_that_of_the_packet_that_completed_the_sum(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 0, "aggregated", tos=0xB8 | CE)
    v.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2, tos=0x48 | CE), tos=0x48)


@entry
def fragments_compare_as_signed_differences(v: Vector) -> None:
    job_of(v, 2)
    slot: dict[str, Any] = {"slot": BASE}
    v.push(0, 5, "aggregated", **slot)
    v.push(0, 5 + 2**31, "stale", **slot)
    v.push(0, 5 + 2**31 - 1, "mismatch", notice(0, 5 + 2**31 - 1, "10.0.1.1", **slot), **slot)
    v.push(1, 5, "completed", result(5, sum_of(5, 0, 1), 2, **slot), **slot)
    v.push(1, 5 + 2**31, "stale", **slot)
    at = 5
    for step in (2**31 - 1, 2**31 - 1, 3, 1):  # up to 2**32 + 7, which wraps to 7
        before, at = at, (at + step) % 2**32
        v.push(0, at, "aggregated", **slot)
        v.push(1, before, "stale", **slot)
        v.push(1, at, "completed", result(at, sum_of(at, 0, 1), 2, **slot), **slot)
        v.push(1, (at + 2**31) % 2**32, "stale", **slot)


@entry
def votes_have_numbers_of_their_own_in_slots_of_their_own(v: Vector) -> None:
    job_of(v, 2)
    vote: dict[str, Any] = {"slot": BASE + SIZE - 1}
    for fragment in (2**31, 2**31 + 1):
        v.push(1, fragment, "aggregated", **vote)
        v.push(0, 0 if fragment == 2**31 else 1, "aggregated")
        v.push(0, fragment, "completed", result(fragment, sum_of(fragment, 0, 1), 2, **vote), **vote)


@entry
def members_need_not_be_the_first_workers(v: Vector) -> None:
    members = (0, 5, 31, 32, 63)
    v.senders |= workers_at_ports(members)
    v.admit(job_in_unit(0, workers=sum(1 << worker for worker in members)))
    for worker in members[:-1]:
        v.push(worker, 0, "aggregated")
    v.senders |= workers_at_ports([1, 62])
    v.push(1, 0, "bad_worker")
    v.push(62, 0, "bad_worker")
    v.push(63, 0, "completed", result(0, sum_of(0, *members), 5))


@entry
def two_jobs_do_not_meet(v: Vector) -> None:
    other: dict[str, Any] = {"job": 8, "generation": 4}
    v.senders |= workers_at_ports([0, 1])
    v.senders |= {3: (Sender(8, 0),), 4: (Sender(8, 1),)}
    v.admit(job_in_unit(2))
    v.admit(job_in_unit(2, generation=4, base=BASE + SIZE, group_ip="239.192.0.8"), 8)
    leaves = result(
        2,
        total(lanes(8), lanes(9)),
        2,
        **other,
        slot=BASE + SIZE + 2,
        to_ip="239.192.0.8",
        destination_mac="01:00:5e:40:00:08",
    )
    v.push(0, 2, "aggregated")
    v.push(0, 2, "aggregated", port=3, data=lanes(8), slot=BASE + SIZE + 2, **other)
    v.push(0, 2, "bad_slot", port=3, data=lanes(7), **other)
    v.push(1, 2, "bad_slot", slot=BASE + SIZE + 2)
    v.push(1, 2, "completed", leaves, port=4, data=lanes(9), slot=BASE + SIZE + 2, **other)
    v.push(1, 2, "completed", result(2, sum_of(2, 0, 1), 2))


@entry
def a_segment_goes_to_the_next_job(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 900, "aggregated", slot=BASE)  # stays incomplete
    v.push(0, 901, "aggregated", slot=BASE + 1)
    v.push(1, 901, "completed", result(901, sum_of(901, 0, 1), 2, slot=BASE + 1), slot=BASE + 1)
    v.release()
    v.push(1, 900, "bad_job", slot=BASE)
    following: dict[str, Any] = {"generation": GENERATION + 1}
    v.admit(job_in_unit(2, **following))
    v.push(0, 901, "bad_generation", slot=BASE + 1)
    for fragment in (0, 1):
        v.push(1, fragment, "aggregated", **following)
        v.push(1, fragment, "duplicate", **following)
        v.push(
            0, fragment, "completed", result(fragment, sum_of(fragment, 0, 1), 2, **following), **following
        )
    v.push(0, 900, "bad_generation", slot=BASE)


@entry
def a_joined_segment_keeps_nothing_of_its_former_jobs(v: Vector) -> None:
    job_of(v, 1)
    v.push(0, 2, "completed", result(2, worker_lanes(0, 2), 1))
    v.release()
    v.admit(job_in_unit(1, base=BASE - SIZE, size=2 * SIZE, generation=9))
    for fragment in (2, 2 + SIZE):
        slot: dict[str, Any] = {"slot": BASE - SIZE + fragment, "generation": 9}
        v.push(0, fragment, "completed", result(fragment, worker_lanes(0, fragment), 1, **slot), **slot)
    v.push(0, 2 + 2 * SIZE, "bad_slot", slot=BASE + SIZE, generation=9)


@entry
def other_generations_never_change_a_sum(v: Vector) -> None:
    job_of(v, 2)
    v.push(0, 0, "aggregated")
    for generation in (GENERATION - 1, GENERATION + 1, 0, MASK, GENERATION + 2**31):
        v.push(1, 0, "bad_generation", generation=generation)
    v.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2))
    v.push(1, 0, "bad_generation", generation=GENERATION + 1)


assert JOB != 8
