"""The state of the programs on links: faults (bpf/link_faults.c), congestion marks (bpf/link_marks.c),
delays (bpf/link_delay.c), and the isolation of users' jobs (bpf/link_apart.c).
"""

from __future__ import annotations

from testbed.wire.numbers import Number
from testbed.wire.records import Kind, Member, Record, members

U32, U64 = Kind.U32, Kind.U64

FAULT_RATES = ("loss", "duplication", "reordering", "corruption")
FAULT_COUNTERS = (
    Member("seen", U64),
    Member("lost", U64),
    Member("duplicated", U64),
    Member("held", U64),
    Member("released", U64),
    Member("corrupted", U64),
    Member("crowded", U64, "to be held, and no cell was free: passed at once"),
    Member("failed", U64, "a helper refused: the frame passed, or a held one is lost"),
    Member("merged", U64, "more than one frame in one buffer: the link is set to merge none"),
)

STAGE = Record(
    "stage",
    (
        *(Member(name, U64, "share of frames, of 2^32") for name in FAULT_RATES),
        Member("random", U64, "xorshift64*, never 0"),
        Member("first", U64, "frames held, by number: from first to before next"),
        Member("next", U64),
        *FAULT_COUNTERS,
        Member("egress", U32, "the wire's other inner end; this one where a bridge joins the two"),
        Member("distance", U32, "a held frame goes behind the frame that came this many after it"),
        *members(U32, "cells", "pad"),
    ),
    "Faults of one direction of a wire.",
)

CELL_KEY = Record("cell_key", members(U32, "ifindex", "cell"))

CELL = Record(
    "cell",
    (
        Member("due", U64, "by `seen`"),
        Member("length", U32),
        Member("frame", Kind.U8, "CELL_BYTES, the longest frame, is given by the loader", "CELL_BYTES"),
    ),
    "A frame held.",
)

MARK_COUNTERS = members(U64, "seen", "marked")
FRACTION_BITS = 16

QUEUE = Record(
    "queue",
    (
        Member("byte_time", U64, "what a byte takes, with FRACTION_BITS behind the point"),
        Member("bucket", U64, "what the token bucket may hold back"),
        Member("threshold", U64, "when to mark"),
        Member("limit", U64, "when the queue is full"),
        Member("level", U64, "what came and has not been sent, the bucket's credit included"),
        Member("at", U64, "when it was so"),
        *MARK_COUNTERS,
    ),
    "Marks of one direction of a wire. Times are in ns, at the link's rate.",
)

TENANT = Record(
    "tenant",
    (
        Member("user", U64, "the user id of its job, and 1; 0: it has no job"),
        Member("dropped", U64, "frames to hosts of other users' jobs"),
    ),
    "Whose job a host is.",
)

DELAYED = Record(
    "delayed",
    (
        Member("handed", U64, "frames that went to the thread"),
        Member("failed", U64, "a helper refused: the frame is lost"),
        Member("device", U32, "the ifindex by which they go"),
        Member("number", U32, "of the direction, from 0 to 65535"),
    ),
    "One delayed direction of a wire.",
)

HOST_IFINDEXES = 0x10000  # hosts' interfaces have ifindices from here on, derived from their addresses
APART_NUMBERS = (Number("HOST_IFINDEXES", HOST_IFINDEXES, 32),)
APART_RECORDS = (TENANT,)
DELAY_RECORDS = (DELAYED,)
MARK_NUMBERS = (Number("FRACTION_BITS", FRACTION_BITS, 32),)
FAULT_RECORDS = (STAGE, CELL_KEY, CELL)
MARK_RECORDS = (QUEUE,)
