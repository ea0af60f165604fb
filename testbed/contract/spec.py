"""THE wire format of gradient packets. Every other statement of it (C, P4, NumPy, scapy) is rendered from
here.

A packet is Ethernet, IPv4 without options, UDP with its checksum to `UDP_PORT`, the header below, and exactly
as many lanes as the fabric's MTU holds (`lanes_for`); a notice has no lanes. All fields are in network byte
order. What is done with packets: docs/protocol.md.

A lane is an unsigned 32-bit number. A worker sends `q + bias` with `bias = floor(2**31 / workers)` and `|q| <
bias`, so that a sum over all workers never carries out of its lane: switches that add several lanes at once
need that, and an int32 adder does not mind. The receiver takes `contributors * bias` off the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag


@dataclass(frozen=True, slots=True)
class Field:
    """One header field: its name, width in bits (whole bytes) and meaning."""

    name: str
    bits: int
    meaning: str

    @property
    def bytes(self) -> int:
        """Width in bytes."""
        return self.bits // 8


class Op(IntEnum):
    """What a packet asks for."""

    PUSH = 1  # worker to its switch: this worker's gradients of a fragment
    PARTIAL = 2  # switch to PS: the sum over the workers of one unit
    RESULT = 3  # towards the workers: the sum over all workers
    NOTICE = 4  # to the sender of a push or partial sum: congestion; without lanes


class Flag(IntFlag):
    """Bits of the `flags` field."""

    FINAL = 1  # the lanes hold the sum over all workers of the job
    DEGRADED = 2  # the sum lacks workers; `contributors` says how many are in it
    ECN = 4  # congestion: a fragment met a slot that was still taken by another
    RETRANSMIT = 8  # the sender sent this packet before


MAGIC = 0x4F49  # "OI"
VERSION = 1
UDP_PORT = 47001
LANES = 360  # at Ethernet's MTU: 20 + 8 + 32 + 4 * 360 = 1500

HEADER: tuple[Field, ...] = (
    Field("magic", 16, "0x4F49"),
    Field("version", 8, "of this format"),
    Field("op", 8, "1 push, 2 partial, 3 result, 4 notice"),
    Field("flags", 8, "1 final, 2 degraded, 4 ECN, 8 retransmit"),
    Field("reserved", 8, "zero"),
    Field("job", 16, "job id, unique among the running jobs of a testbed"),
    Field("worker", 16, "rank of the sender; in a partial, the index of the sender's unit in the job"),
    Field("contributors", 16, "how many workers are summed in the lanes"),
    Field("generation", 32, "which incarnation of the job; packets of another one never change a sum"),
    Field("slot", 32, "of the receiving switch; in a result, of the switch or PS that summed"),
    Field("fragment", 32, "counts the job's fragments from 0, never reused within a generation"),
    Field("count", 16, "how many of the lanes are valid; the rest is zero padding"),
    Field("age", 16, "milliseconds that the oldest contribution waited, for degraded results"),
    Field("trailer", 32, "zero"),
)

HEADER_BYTES = sum(field.bytes for field in HEADER)
PAYLOAD_BYTES = HEADER_BYTES + 4 * LANES  # of the UDP datagram
FRAME_BYTES = 14 + 20 + 8 + PAYLOAD_BYTES

MAX_MTU = (
    3476  # the largest frame that veth gives to an XDP program in one buffer has 3490 bytes (4 KiB pages)
)
MAX_WORKERS = 64  # a bitmap of contributors is one 64-bit word


def bias(workers: int) -> int:
    """What each of `workers` adds to a signed lane to make it non-negative."""
    return 2**31 // workers


def lanes_for(mtu: int) -> int:
    """How many lanes a packet has on a fabric of this MTU in bytes; an even number, since switches sum two at
    once.
    """
    return (mtu - 20 - 8 - HEADER_BYTES) // 8 * 2


def payload_bytes(lanes: int) -> int:
    """Of the UDP datagram with so many lanes."""
    return HEADER_BYTES + 4 * lanes
