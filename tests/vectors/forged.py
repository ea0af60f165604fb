"""Vectors of frames that must change nothing: malformed, corrupt, forged, or for another receiver."""

from __future__ import annotations

from testbed.aggregation.entries import Sender
from testbed.reference_model.output_ports import To
from testbed.wire import frame, spec
from tests.vectors.build import (
    BASE,
    GROUP_IP,
    MASK,
    OPTICAL,
    OTHER_IP,
    PS_IP,
    SIZE,
    TOR_IP,
    UP_BASE,
    Table,
    Vector,
    altered,
    job_at_ps,
    job_in_unit,
    packet,
    partial,
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

TABLE: Table = {}
entry = vector(TABLE)
IP, UDP, HEADER = 14, 34, 42  # offsets in a frame
OFFSETS = {}
_at = HEADER
for _field in spec.HEADER:
    OFFSETS[_field.name] = _at
    _at += _field.bytes


def half_a_sum(v: Vector) -> None:
    """Admit two workers; worker 0 has pushed fragment 0."""
    v.senders |= workers_at_ports([0, 1])
    v.admit(job_in_unit(2))
    v.push(0, 0, "aggregated")


def its_other_half(v: Vector) -> None:
    """Complete `half_a_sum`: the result must be that of two undisturbed pushes."""
    v.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2))


def header_with(name: str, value: int, data: bytes | None = None) -> bytes:
    """Return worker 1's push (or `data`) with one header field changed and a correct UDP checksum."""
    bits = {field.name: field.bits for field in spec.HEADER}[name]
    return summed(
        altered(push(1, 0) if data is None else data, OFFSETS[name], value.to_bytes(bits // 8, "big"))
    )


def summed(data: bytes) -> bytes:
    """Correct the UDP checksum over as many bytes as the UDP length says, or as there are."""
    size = int.from_bytes(data[UDP + 4 : UDP + 6], "big")
    datagram = altered(data, UDP + 6, b"\0\0")[UDP : UDP + size]
    return altered(data, UDP + 6, frame.udp_checksum(data[26:30], data[30:34], datagram).to_bytes(2, "big"))


def lengths(data: bytes, ip: int, udp: int) -> bytes:
    """Set the lengths in the IPv4 and UDP headers."""
    return summed(altered(altered(data, IP + 2, ip.to_bytes(2, "big")), UDP + 4, udp.to_bytes(2, "big")))


@entry
def what_is_not_well_formed_is_lost(v: Vector) -> None:
    half_a_sum(v)
    good = push(1, 0)
    size = len(good) - IP
    for name, values in {
        "magic": (0, 0x494F, spec.MAGIC ^ 1),
        "version": (0, spec.VERSION + 1, 255),
        "op": (0, 6, 13, 255),
        "count": (spec.LANES + 1, 0xFFFF),
        "lanes": (0, 1, 64, spec.LANES - 2, spec.LANES + 2, 0xFFFF),
    }.items():
        for value in values:
            v.sees(header_with(name, value), 2, "malformed")
    for bad in (
        lengths(good, size - 4, size - 20 - 4),
        lengths(good, size, size - 20 - 4),
        lengths(good, size - 4, size - 20),
        lengths(good + bytes(4), size + 4, size - 20 + 4),
        lengths(good, size, 8),
        lengths(good, size, 0),
        lengths(good, 20, size - 20),
        good[:-1],
        good[:-4],
        good[: HEADER + spec.HEADER_BYTES],
        good[: HEADER + 1],
        good[:HEADER],
        lengths(good[: HEADER + spec.HEADER_BYTES], 20 + 8 + spec.HEADER_BYTES, 8 + spec.HEADER_BYTES),
    ):
        v.sees(bad, 2, "malformed")
    its_other_half(v)


@entry
def bytes_behind_the_packet_are_no_part_of_it(v: Vector) -> None:
    half_a_sum(v)
    v.sees(push(1, 0) + b"trailer!", 2, "completed", result(0, sum_of(0, 0, 1), 2))


@entry
def what_lost_a_bit_is_lost(v: Vector) -> None:
    half_a_sum(v)
    good = push(1, 0)
    v.sees(altered(good, UDP + 6, b"\0\0"), 2, "corrupt")
    for at in (
        OFFSETS["flags"],
        OFFSETS["worker"] + 1,
        OFFSETS["slot"] + 3,
        OFFSETS["fragment"],
        UDP + 1,
        UDP + 7,
    ):
        v.sees(altered(good, at, bytes([good[at] ^ 0x10])), 2, "corrupt")
    for lane in (0, 1, spec.LANES // 2, spec.LANES - 1):
        at = HEADER + spec.HEADER_BYTES + 4 * lane + lane % 4
        v.sees(altered(good, at, bytes([good[at] ^ 1 << lane % 8])), 2, "corrupt")
    # the checksum covers the addresses
    v.sees(altered(good, IP + 12, bytes([good[IP + 12] ^ 2])), 2, "corrupt")
    its_other_half(v)


@entry
def a_checksum_that_comes_to_zero_is_sent_as_all_ones(v: Vector) -> None:
    half_a_sum(v)
    numbers = worker_lanes(1, 0).copy()
    numbers[0] = 0
    plain = push(1, 0, data=numbers)
    given = int.from_bytes(plain[UDP + 6 : UDP + 8], "big")
    numbers[0] = given  # makes the sum of all words 0xffff, whose complement is 0
    made = push(1, 0, data=numbers)
    assert made[UDP + 6 : UDP + 8] == b"\xff\xff"
    v.sees(altered(made, UDP + 6, b"\0\0"), 2, "corrupt")
    v.sees(made, 2, "completed", result(0, worker_lanes(0, 0) + numbers, 2))


@entry
def a_job_that_is_not_here(v: Vector) -> None:
    half_a_sum(v)
    for port, job in ((9, 70), (10, 0), (11, 0xFFFF)):
        v.senders[port] = (Sender(job, 1),)
        v.push(1, 0, "bad_job", port=port, job=job)
        v.sees(result_from_ps(0, worker_lanes(5, 0), job=job), OPTICAL[0], "bad_job")
    its_other_half(v)


@entry
def a_worker_that_is_no_member(v: Vector) -> None:
    half_a_sum(v)
    for port, worker in enumerate((2, 63, 64, 65, 0xFFFF), 9):
        v.senders[port] = (Sender(7, worker),)
        v.push(worker, 0, "bad_worker", port=port, from_ip="10.0.1.9")
    its_other_half(v)


@entry
def a_slot_outside_the_segment(v: Vector) -> None:
    half_a_sum(v)
    for slot in (0, BASE - 1, BASE + SIZE, BASE + 2 * SIZE, 511, 512, 2**31, MASK, (BASE + 2**31) % 2**32):
        v.push(1, 0, "bad_slot", slot=slot)
    its_other_half(v)


@entry
def a_host_cannot_speak_for_another(v: Vector) -> None:
    half_a_sum(v)
    v.senders[3] = ()  # a host without a worker
    v.senders[4] = (Sender(8, 1),)  # another job's worker 1
    v.senders[5] = (Sender(7, None, True),)  # a place of the same job
    for port in (1, 3, 4, 5):
        v.sees(push(1, 0), port, "bad_sender")
    v.push(0, 0, "bad_sender", port=2)
    v.push(1, 0, "bad_sender", job=8)
    v.push(1, 0, "bad_sender", job=0)
    # a worker does not pass for a switch or a parameter server
    v.sees(result_from_ps(0, worker_lanes(5, 0)), 2, "bad_sender")
    v.sees(packet(spec.Op.NOTICE, 0, frame.NO_LANES, PS_IP, TOR_IP, flags=4, count=0).pack(), 2, "bad_sender")
    its_other_half(v)


@entry
def checks_come_in_order(v: Vector) -> None:
    half_a_sum(v)
    v.senders |= {8: (Sender(9, 99),), 9: (Sender(7, 99),)}
    wrong = push(99, 0, job=9, generation=99, slot=MASK, from_ip="10.0.1.2")
    corrupt = altered(wrong, UDP + 6, b"\0\0")
    v.sees(altered(corrupt, OFFSETS["op"], b"\0"), 2, "malformed")
    v.sees(corrupt, 2, "corrupt")
    v.sees(wrong, 2, "bad_sender")
    v.sees(wrong, 8, "bad_job")
    v.sees(push(99, 0, generation=99, slot=MASK, from_ip="10.0.1.2"), 9, "bad_generation")
    v.sees(push(99, 0, slot=MASK, from_ip="10.0.1.2"), 9, "bad_worker")
    v.push(1, 0, "bad_slot", slot=MASK)
    its_other_half(v)


@entry
def ops_that_do_not_belong_at_a_switch(v: Vector) -> None:
    half_a_sum(v)
    v.sees(push(1, 0, to_ip=GROUP_IP), OPTICAL[0], "malformed")
    v.sees(partial(1, 0, to_ip=TOR_IP), OPTICAL[0], "bad_worker")
    v.sees(tick(0), OPTICAL[0], "bad_sender")
    v.sees(tick(0, to_ip=GROUP_IP), OPTICAL[0], "bad_sender")
    v.sees(result_from_ps(0, worker_lanes(5, 0), to_ip=TOR_IP), OPTICAL[0], "malformed")
    # a worker may push to any place, and send nothing else
    v.push(1, 0, "forwarded", unchanged(To.ROUTE), to_ip=OTHER_IP)
    v.push(1, 0, "malformed", to_ip=GROUP_IP)
    v.sees(partial(0, 0), 2, "bad_sender")
    v.sees(partial(1, 0, to_ip=TOR_IP), 2, "bad_sender")
    v.sees(tick(0), 2, "bad_sender")
    its_other_half(v)


@entry
def ops_that_do_not_belong_at_a_ps(v: Vector) -> None:
    v.is_host = True
    v.admit(job_at_ps(2))
    v.sees(partial(0, 0), 1, "aggregated")
    v.sees(push(1, 0, to_ip=PS_IP, slot=UP_BASE), 1, "bad_worker")
    v.sees(tick(0, to_ip=PS_IP, slot=UP_BASE), 1, "bad_sender")
    v.sees(result_from_ps(0, worker_lanes(5, 0)), 1, "malformed")
    v.sees(result_from_ps(0, worker_lanes(5, 0), job=8), 1, "bad_job")
    v.sees(packet(spec.Op.NOTICE, 0, frame.NO_LANES, OTHER_IP, PS_IP, flags=4, count=0).pack(), 1, "bad_job")
    v.sees(partial(1, 0, to_ip=OTHER_IP), 1, "bad_job")
    leaves = result(0, sum_of(0, 0, 1), 4, To.GROUP, PS_IP, slot=UP_BASE)
    v.sees(partial(1, 0), 1, "completed", leaves)


@entry
def what_is_for_somebody_else_passes(v: Vector) -> None:
    half_a_sum(v)
    v.sees(push(1, 0, to_ip=OTHER_IP), OPTICAL[0], "forwarded", unchanged(To.ROUTE))
    v.sees(partial(1, 0), OPTICAL[0], "forwarded", unchanged(To.ROUTE))
    other_port = summed(altered(push(1, 0), UDP + 2, b"\x12\x34"))
    v.sees(other_port, 2, "forwarded", unchanged(To.ROUTE))
    fragment = altered(push(1, 0), IP + 6, b"\x20\x00")  # more fragments follow
    v.sees(fragment, 2, "forwarded", unchanged(To.ROUTE))
    v.sees(altered(push(1, 0), IP + 6, b"\x00\x01"), 2, "forwarded", unchanged(To.ROUTE))
    v.sees(altered(push(1, 0), IP + 9, b"\x06"), 2, "forwarded", unchanged(To.ROUTE))
    v.sees(altered(push(1, 0), IP, b"\x46"), 2, "to_ovs", unchanged(To.STACK))
    v.sees(altered(push(1, 0), 12, b"\x08\x06"), 2, "to_ovs", unchanged(To.STACK))
    v.sees(push(1, 0)[:33], 2, "to_ovs", unchanged(To.STACK))
    its_other_half(v)
