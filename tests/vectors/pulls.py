"""Vectors of results and notices at a worker's host: what is stored in the ring, what wakes the worker, and
what must change nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testbed.reference_model.output_ports import To
from testbed.reference_model.pull import Puller, Stored
from testbed.wire import frame, spec
from tests.vectors.build import (
    GENERATION,
    GROUP_IP,
    JOB,
    MASK,
    PS_IP,
    PS_MAC,
    SIZE,
    TOR_IP,
    UP_BASE,
    Ask,
    Attach,
    Holds,
    Lanes,
    Leaves,
    Table,
    Vector,
    altered,
    job_at_ps,
    lanes,
    packet,
    partial,
    push,
    result,
    result_from_ps,
    sum_of,
    tick,
    unchanged,
    vector,
)

TABLE: Table = {}
entry = vector(TABLE)
# the worker's host is the PS of other vectors
PULLER = Puller(JOB, GENERATION, (UP_BASE,), SIZE, spec.LANES, PS_IP, PS_MAC)


def worker(v: Vector, **changes: Any) -> None:
    v.is_host = True
    v.steps.append(Attach(replace(PULLER, **changes)))


def arrives(v: Vector, fragment: int, verdict: str, *leaves: Leaves, **changes: Any) -> None:
    v.sees(result_from_ps(fragment, changes.pop("data", lanes(fragment)), **changes), 1, verdict, *leaves)


def finds(v: Vector, received: int, notices: int = 0, **ring: Stored) -> None:
    """Check what the worker finds: results, notices, and the ring's content (`p3=...` is place 3)."""
    v.steps.append(Holds(received, notices, {int(place[1:]): stored for place, stored in ring.items()}))


def stored(fragment: int, summed: Lanes | None = None, contributors: int = 5, flags: int = 1) -> Stored:
    return Stored(fragment, contributors, flags, lanes(fragment) if summed is None else summed)


def notice(**changes: Any) -> bytes:
    fields = {"flags": int(spec.Flag.ECN), "count": 0, "slot": UP_BASE + 2, **changes}
    return packet(spec.Op.NOTICE, 2, frame.NO_LANES, TOR_IP, fields.pop("to_ip", PS_IP), **fields).pack()


def woken(data: bytes, port: int = spec.UDP_PORT) -> Leaves:
    """Return the result that wakes the worker, now addressed to the host itself and the worker's port."""
    made = altered(data, 0, bytes.fromhex(PS_MAC.replace(":", "")))
    made = altered(altered(altered(made, 22, b"\x40"), 24, b"\0\0"), 30, bytes([10, 0, 3, 1]))
    made = altered(altered(made, 24, frame.checksum(made[14:34]).to_bytes(2, "big")), 40, b"\0\0")
    return Leaves(To.STACK, None, altered(made, 36, port.to_bytes(2, "big")))


@entry
def results_land_at_the_place_of_their_slot(v: Vector) -> None:
    worker(v)
    arrives(v, 2, "pulled")
    arrives(v, 3, "pulled", slot=UP_BASE + 9, contributors=4, flags=3, count=0)
    arrives(v, 0, "pulled", slot=UP_BASE + SIZE - 1)
    finds(v, 3, p2=stored(2), p9=stored(3, contributors=4, flags=3), p15=stored(0))


@entry
def marks_and_repetitions_are_told_to_the_worker(v: Vector) -> None:
    worker(v)
    repeated = frame.DSCP_REPEATED << 2
    for fragment, tos in enumerate(
        (0, frame.ECT, frame.CE, repeated, repeated | frame.ECT, repeated | frame.CE, 0xE0)
    ):
        arrives(v, fragment, "pulled", tos=tos)
    flags = (1, 1, 0x101, 0x201, 0x201, 0x301, 1)
    finds(v, 7, **{f"p{fragment}": stored(fragment, flags=at) for fragment, at in enumerate(flags)})


@entry
def a_worker_is_told_of_queues_and_of_repetitions(v: Vector) -> None:
    worker(v)
    kinds = (0, 1, 2, 3, 12, 13, 15, 0xB8, 0xBB, 0xFF)
    for fragment, tos in enumerate(kinds):
        arrives(v, fragment, "pulled", tos=tos)
    flags = (1, 1, 1, 0x101, 0x201, 0x201, 0x301, 1, 0x101, 0x101)
    finds(v, len(kinds), **{f"p{at}": stored(at, flags=each) for at, each in enumerate(flags)})


@entry
def a_copy_changes_nothing(v: Vector) -> None:
    worker(v)
    arrives(v, 2, "pulled")
    arrives(v, 2, "pull_duplicate", data=lanes(99))
    arrives(v, 2, "pull_duplicate", contributors=1, flags=0)
    finds(v, 1, p2=stored(2))


@entry
def the_first_fragment_is_told_from_an_empty_place(v: Vector) -> None:
    worker(v)
    arrives(v, 0, "pulled")
    arrives(v, 0, "pull_duplicate", data=lanes(99))
    finds(v, 1, p0=stored(0))


@entry
def a_newer_result_takes_its_place_whether_it_was_read_or_not(v: Vector) -> None:
    worker(v)
    for fragment in (2, SIZE + 2, 3 * SIZE + 2):
        arrives(v, fragment, "pulled")
    arrives(v, 2 * SIZE + 2, "pull_duplicate")
    finds(v, 3, p2=stored(3 * SIZE + 2))


@entry
def numbers_of_results_come_round(v: Vector) -> None:
    worker(v)
    for fragment in (MASK - 1, MASK, 0, 2**31 - 1, 2**31, MASK):
        arrives(v, fragment, "pulled", slot=UP_BASE + 4)
    arrives(v, 2**31 - 1, "pull_duplicate", slot=UP_BASE + 4)  # half the number range away: counts as older
    arrives(v, 2**31 - 2, "pulled", slot=UP_BASE + 4)
    finds(v, 7, p4=stored(2**31 - 2))


@entry
def what_is_not_the_workers_is_lost(v: Vector) -> None:
    worker(v)
    arrives(v, 2, "pulled")
    arrives(v, SIZE + 2, "bad_job", job=JOB + 1)
    for generation in (GENERATION - 1, GENERATION + 1, 0, MASK):
        arrives(v, SIZE + 2, "bad_generation", generation=generation)
    for slot in (0, UP_BASE - 1, UP_BASE + SIZE, MASK, UP_BASE + 2**31):
        arrives(v, SIZE + 2, "bad_slot", slot=slot)
    arrives(v, SIZE + 2, "bad_job", job=JOB + 1, generation=0, slot=MASK)
    arrives(v, SIZE + 2, "bad_generation", generation=0, slot=MASK)
    finds(v, 1, p2=stored(2))


@entry
def what_is_damaged_on_its_way_to_a_worker_is_lost(v: Vector) -> None:
    worker(v)
    good = result_from_ps(2, lanes(2))
    for at in (30, 45, 50, 57, 74, 1513):
        v.sees(altered(good, at, bytes([good[at] ^ 0x20])), 1, "malformed" if at == 45 else "corrupt")
    v.sees(altered(good, 40, b"\0\0"), 1, "corrupt")
    v.sees(good[:-1], 1, "malformed")
    arrives(v, 2, "malformed", count=spec.LANES + 1)
    sent = notice()
    v.sees(altered(sent, 50, b"\xff"), 1, "corrupt")
    v.sees(altered(sent, 40, b"\0\0"), 1, "corrupt")
    finds(v, 0)
    v.sees(good, 1, "pulled")
    finds(v, 1, p2=stored(2))


@entry
def one_result_wakes_the_worker(v: Vector) -> None:
    worker(v)
    v.steps.append(Ask(2))
    arrives(v, 0, "pulled")
    arrives(v, 0, "pull_duplicate")
    good = result_from_ps(1, lanes(1), ttl=9)
    v.sees(good, 1, "pulled", woken(good))
    arrives(v, 2, "pulled")
    # wakes nobody: three results are stored already, and a worker checks that before it sleeps
    v.steps.append(Ask(3))
    arrives(v, 2, "pull_duplicate")
    arrives(v, 3, "pulled")
    v.steps.append(Ask(5))
    good = result_from_ps(4, lanes(4)) + b"behind"
    v.sees(good, 1, "pulled", woken(good))
    finds(v, 5, p4=stored(4))


@entry
def notices_are_counted_for_the_worker(v: Vector) -> None:
    worker(v)
    v.steps.append(Ask(1))
    v.sees(notice(), 1, "notice")
    v.sees(notice(worker=3, slot=MASK, to_ip=GROUP_IP, flags=0), 1, "notice")
    v.sees(notice(job=JOB + 1), 1, "bad_job")
    v.sees(notice(generation=GENERATION + 1), 1, "bad_generation")
    v.sees(notice(job=JOB + 1, generation=GENERATION + 1), 1, "bad_job")
    v.sees(notice(count=spec.LANES + 1), 1, "malformed")
    finds(v, 0, 2)


@entry
def a_host_without_a_worker_takes_no_results(v: Vector) -> None:
    v.is_host = True
    arrives(v, 2, "bad_job")
    v.sees(notice(), 1, "bad_job")
    worker(v)
    arrives(v, 2, "pulled")
    v.sees(notice(), 1, "notice")
    finds(v, 1, 1, p2=stored(2))
    v.steps.append(Attach(None))
    arrives(v, SIZE + 2, "bad_job")
    v.sees(notice(), 1, "bad_job")


@entry
def the_next_worker_has_a_ring_of_its_own(v: Vector) -> None:
    worker(v)
    v.steps.append(Ask(1))
    good = result_from_ps(2, lanes(2))
    v.sees(good, 1, "pulled", woken(good))
    v.sees(notice(), 1, "notice")
    v.steps.append(Attach(None))
    worker(v, generation=GENERATION + 1, bases=(7,), size=2)
    arrives(v, 2, "bad_generation")
    arrives(v, 2, "pulled", slot=7, generation=GENERATION + 1)
    arrives(v, 2, "pulled", slot=8, generation=GENERATION + 1)
    arrives(v, 2, "bad_slot", slot=9, generation=GENERATION + 1)
    finds(v, 2, 0, p0=stored(2), p1=stored(2))


@entry
def pushes_are_nobodys_at_a_host_and_other_traffic_passes(v: Vector) -> None:
    worker(v)
    v.sees(push(1, 0, to_ip=PS_IP), 1, "bad_job")
    v.sees(tick(0, to_ip=PS_IP), 1, "bad_sender")
    v.sees(partial(1, 0), 1, "bad_job")
    good = result_from_ps(2, lanes(2))
    for other in (
        altered(good, 36, b"\x12\x34"),
        altered(good, 20, b"\x20\0"),
        altered(good, 12, b"\x08\x06"),
        good[:33],
    ):
        v.sees(other, 1, "passed", unchanged(To.STACK))
    finds(v, 0)


@entry
def a_host_may_be_a_worker_and_a_parameter_server(v: Vector) -> None:
    worker(v, job=JOB + 1)
    v.admit(job_at_ps(2))
    v.sees(partial(0, 2), 1, "aggregated")
    arrives(v, 2, "pulled", job=JOB + 1)
    arrives(v, 3, "malformed")  # this host makes that job's results itself
    arrives(v, 3, "bad_job", job=JOB + 2)
    leaves = result(2, sum_of(2, 0, 1), 4, To.GROUP, PS_IP, slot=UP_BASE + 2)
    v.sees(partial(1, 2), 1, "completed", leaves)
    finds(v, 1, p2=stored(2))
