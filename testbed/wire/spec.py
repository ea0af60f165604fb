"""THE header of gradient packets, and related numbers. Every other statement of it (C, P4, NumPy, scapy, Lua)
is rendered from here; `operations` has the operations.

A packet is Ethernet, IPv4 without options, UDP with its checksum to `UDP_PORT`, the header below, and exactly
as many lanes as its field `lanes` says, at most as many as the fabric's MTU allows (`lanes_for`), or none
(`Op.body`). All fields are in network byte order. docs/protocol.md describes the processing of packets.

A lane is an unsigned 32-bit number. A worker sends `q + bias` with `bias = floor(2**31 / workers)` and `|q| <
bias`, so that a sum over all workers never carries out of its lane: switches that add several lanes at once
need that, and an int32 adder is not affected. The receiver subtracts `contributors * bias` from the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.wire.numbers import Number, named
from testbed.wire.operations import OPS as OPS
from testbed.wire.operations import Body as Body
from testbed.wire.operations import Flag as Flag
from testbed.wire.operations import Op as Op
from testbed.wire.operations import listed


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


MAGIC = 0x4F49  # "OI"
VERSION = 2
UDP_PORT = 47001
LANES = 360  # at Ethernet's MTU: 20 + 8 + 32 + 4 * 360 = 1500

HEADER: tuple[Field, ...] = (
    Field("magic", 16, f"{MAGIC:#06x}"),
    Field("version", 8, "of this format"),
    Field("op", 8, "the operation: WIRE_OP_*"),
    Field("flags", 8, listed()),
    Field("tree", 8, "which tree of the job, from 0"),
    Field("job", 16, "job id, unique among the running jobs of a testbed"),
    Field("worker", 16, "rank of the sender; in a partial, the sending place's number; in a result, 65535"),
    Field("contributors", 16, "how many workers are in the sum: 1 in a push"),
    Field("generation", 32, "which incarnation of the job; packets of another one never change a sum"),
    Field("slot", 32, "of the receiving place; in a result, of the place at the top"),
    Field("fragment", 32, "counts the tree's fragments from 0, never reused within a generation"),
    Field("count", 16, "how many of the lanes are valid; the rest is zero padding"),
    Field("age", 16, "milliseconds that the fragment waited before a tick completed it, else 0"),
    Field("lanes", 16, "how many lanes follow; in a notice, of the packet that it answers"),
    Field("reserved", 16, "zero"),
)

HEADER_BYTES = sum(field.bytes for field in HEADER)
PAYLOAD_BYTES = HEADER_BYTES + 4 * LANES  # of the UDP datagram
FRAME_HEADERS_BYTES = 14 + 20 + 8  # Ethernet, IPv4 without options, UDP

# The largest frame that veth passes to a native XDP program has 3490 bytes: one buffer, of a 4 KiB page.
ONE_BUFFER_MTU = 3476
MAX_MTU = 9000  # above ONE_BUFFER_MTU programs run in generic mode, with each frame in one buffer
MAX_WORKERS = 64  # a bitmap of contributors is one 64-bit word
MIN_LANES = 64  # in a job's packets: votes on five blocks fit (wire/votes.py)
NO_WORKER = 0xFFFF  # the field `worker` of a result

TTL = 64  # of packets that a switch or PS makes; forwarded packets keep theirs
ECT, CE = (
    0b10,
    0b11,
)  # the IP header's ECN field (RFC 3168): the sender reacts to marks; congestion experienced
DSCP_REPEATED = 3  # of packets that a worker sends again: RFC 2474's pool for local use
GROUP_BYTE = 239  # results, and nothing else, go to addresses in 239/8 (RFC 2365)
PROBE_ETHERTYPE = 0x88B5  # for probes whether a port is lit; IEEE's, for local experiments

NUMBERS: tuple[Number, ...] = (
    Number("WIRE_MAGIC", MAGIC, 16, in_hex=True),
    Number("WIRE_VERSION", VERSION, 8),
    Number("WIRE_UDP_PORT", UDP_PORT, 16),
    Number("WIRE_MAX_WORKERS", MAX_WORKERS, 16),
    Number("WIRE_NO_WORKER", NO_WORKER, 16, "in a result", in_hex=True),
    Number("WIRE_TTL", TTL, 8, "of what is made on the way"),
    Number("WIRE_ECT", ECT, 8, "ECN-capable (RFC 3168)"),
    Number("WIRE_CE", CE, 8, "congestion experienced: both bits"),
    Number("WIRE_DSCP_REPEATED", DSCP_REPEATED, 8, "of what a worker sends again"),
    Number("WIRE_GROUP_BYTE", GROUP_BYTE, 8, "the first of a group's address"),
    Number("WIRE_PROBE_ETHERTYPE", PROBE_ETHERTYPE, 16, "of the agent's question to the optics", in_hex=True),
    *named("WIRE_OP_", Op, 8),
    *named("WIRE_FLAG_", Flag, 8),
)


def bias(workers: int) -> int:
    """Return the number that each of `workers` adds to a signed lane to make it non-negative."""
    return 2**31 // workers


def lanes_for(mtu: int) -> int:
    """Return the lanes of a packet on a fabric of this MTU in bytes: an even number, since switches sum two
    at once.
    """
    return (mtu - 20 - 8 - HEADER_BYTES) // 8 * 2


def payload_bytes(lanes: int) -> int:
    """Return the bytes of the UDP datagram with this many lanes."""
    return HEADER_BYTES + 4 * lanes


def conditions(ops: Sequence[Op] = tuple(Op)) -> list[tuple[str, str]]:
    """Return the tests of an `op` for C and P4: macros of one argument, and their conditions."""
    runs: list[list[Op]] = []  # of consecutive numbers: two comparisons each
    for op in sorted(ops):
        if runs and op == runs[-1][-1] + 1:
            runs[-1].append(op)
        else:
            runs.append([op])
    ranges = [f"(op) >= WIRE_OP_{run[0].name} && (op) <= WIRE_OP_{run[-1].name}" for run in runs]
    known = ranges[0] if len(ranges) == 1 else " || ".join(f"({each})" for each in ranges)
    bare = " && ".join(f"(op) != WIRE_OP_{op.name}" for op in ops if op.body is Body.NONE)
    return [("WIRE_IS_OP", known), ("WIRE_HAS_LANES", bare)]
