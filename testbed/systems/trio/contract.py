"""Block records: the table of a place in which jobs are summed by blocks, not in slots (docs/trio.md).

The records are the values of maps of bpf/systems/blocks.h, which says who writes and reads each. The numbers
are the P4 program's too (p4/systems/blocks.p4).
"""

from __future__ import annotations

from enum import IntEnum

from testbed.topology.model import MOST_RECORDS
from testbed.wire.numbers import Number
from testbed.wire.places import P4_OWN_CELLS
from testbed.wire.records import Kind, Lanes, Member, Record, members
from testbed.wire.spec import Field

U16, U32, U64 = Kind.U16, Kind.U32, Kind.U64

BUCKET = 8  # records, under one lock
VOTE_WINDOW = 16  # most votes that a worker may have under way
KEPT_WINDOWS = 4  # results are kept for this many windows
# the same for vectors and votes where workers may leave: the others go on at full speed for this long
LEAVING_WINDOWS = 16, 64
LOOK_TIMEOUTS = 10  # timeouts between two checks for permanent stragglers
MOST_SOURCES = 256  # of a place: the paper's masks
MOST_BUCKETS = MOST_RECORDS // BUCKET  # of a place
BUCKETS = 4096  # of a place, if they fit in MOST_TABLE_BYTES
MOST_TABLE_BYTES = 64 << 20  # memory of a place's records, unless their number is configured
MOST_JOB_RECORDS = 1024  # of all places
P4_RECORDS = P4_OWN_CELLS  # of a P4 switch
P4_JOB_RECORDS = 64
P4_SOURCES = 64  # of a place there: the bits of one word
P4_WINDOW = 102  # window with P4 switches: room for three such jobs, as rows are powers of two


class Space(IntEnum):
    """The block numberings of a tree: blocks of vectors and of votes on their scales are counted
    separately.
    """

    DATA = 0
    VOTES = 1


def salts(number: int, tree: int) -> tuple[int, int]:
    """Return the offsets of the blocks of a job's tree in a table, by space."""
    first, second = (((number << 9 | tree << 1 | space) * 0x9E3779B1 & 0xFFFFFFFF) >> 12 for space in Space)
    return first, second


NUMBERS: tuple[Number, ...] = (
    Number("BUCKET_BLOCKS", BUCKET, 32, "records of a bucket"),
    Number("MAX_SOURCES", MOST_SOURCES, 32, "of a place"),
    Number("MAX_BUCKETS", MOST_BUCKETS, 32, "of a place"),
    Number("MAX_JOB_RECORDS", MOST_JOB_RECORDS, 32, "of all places"),
    Number("BLOCK_SPACES", len(Space), 32, "vectors, and votes on their scales"),
    Number("KEY_SHIFT", 33, 32, "of the job record's serial number, above the space and the block"),
    Number("MARK_SHIFT", 9, 32, "of the block, above the count of sources"),
)

JOB_RECORD = Record(
    "job_record",
    (
        Member("workers", U64, "sources: bitmaps of ranks,", MOST_SOURCES // 64),
        Member("places", U64, "and of the numbers of places", MOST_SOURCES // 64),
        Member("out", U64, "of these, those that left: new blocks do not wait for them", MOST_SOURCES // 64),
        Member("floor", U64, "before it every source has all results, by space; 32 bits of it", len(Space)),
        Member("serial", U32, "never used again; 0: no record"),
        Member("expected", U32, "sources"),
        Member("table", U32, "index into buckets and blocks"),
        Member("buckets", U32, "of that: a power of two"),
        Member("cap", U32, "active blocks, at most"),
        Member("active", U32, "those whose result is not made"),
        Member("made", U32, "all that were ever made"),
        Member("pad", U32),
        Member("salt", U32, "of a block's bucket, by space", len(Space)),
        Member("data", U32, "slots from here on are votes'"),
        Member("slots", U32, "of a worker's ring"),
        Member("window", U32, "blocks that a source has under way, at most, by space", len(Space)),
        Member("kept", U32, "blocks whose results are kept, by space", len(Space)),
        Member("ahead", U32, "how far ticks may be ahead of what a source has, by space", len(Space)),
        Member("missed", U32, "blocks that went without a source", MOST_SOURCES),
        Member(
            "reached",
            U32,
            "behind the newest block that came from a source, space by space",
            len(Space) * MOST_SOURCES,
        ),
    ),
    "A tree of a job at a place where it is summed by blocks: figure 17 of the paper.",
)

BUCKET_RECORD = Record(
    "block_bucket",
    (
        Member("lock", U64, "0 free, 1 held, as a slot's"),
        Member("keys", U64, "serial number of the job record, space and block; 0: no record", BUCKET),
        Member(
            "marks",
            U32,
            "the block's low bits and how many sources came; 0: nothing waits here",
            BUCKET,
        ),
        Member("found", U32, "a place in the bucket; scratch of who holds the lock"),
        Member("pad", U32, "to two cache lines", 5),
    ),
)

BLOCK = Record(
    "block_record",
    (
        Member("start_ns", U64, "when the first packet came,"),
        Member("touched_ns", U64, "and when the last contribution was added; CLOCK_MONOTONIC"),
        Member("sources", U64, "bitmap of those that came", MOST_SOURCES // 64),
        Member("awaits", U64, "and of those that it is a sum of when all came", MOST_SOURCES // 64),
        *members(U32, "job"),
        Member("state", U32, "SLOT_*"),
        Member("flags", U32, "SUM_*"),
        Member("contributors", U32, "workers in the sum"),
        Member("received", U32, "sources that came"),
        Member("slot", U32, "where workers keep the result"),
        Member("count", U16, "of the last packet summed"),
        Member("age", U16, "of the packet that completed it"),
        Member("expected", U32, "sources: how many it awaits"),
        Member(
            "pairs", U64, "two lanes each, the first in the upper half; one addition sums both", Lanes(per=2)
        ),
    ),
    "Figure 18 of the paper. The block itself is in the bucket's key.",
)

RECORDS = (JOB_RECORD, BUCKET_RECORD, BLOCK)

P4_NUMBERS: tuple[Number, ...] = (
    Number("BLOCKS", P4_RECORDS, 32, "records"),
    Number("BLOCK_JOBS", P4_JOB_RECORDS, 32, "job records"),
    Number("BLOCK_SOURCES", P4_SOURCES, 32, "of a job record: 2 ** 6"),
)

P4_TERMS: tuple[Field, ...] = (
    Field("record", 32, "the job record"),
    Field("sources", 32, "the first of its sources"),
    Field("data", 32, "slots from here on are votes'"),
    Field("cap", 32, "active blocks, at most"),
    Field("first", 32, "record of a tree's vectors"),
    Field("mask", 32, "of a block's record among these, whose number is a power of two"),
    Field("window", 32, "blocks that a source has under way, at most"),
    Field("reach", 32, "how far beyond the floor a block may be: what is kept, and a window"),
    Field("ahead", 32, "how far ticks may be ahead of what a source has"),
    Field("vote_first", 32, "the same of votes"),
    Field("vote_mask", 32, ""),
    Field("vote_window", 32, ""),
    Field("vote_reach", 32, ""),
    Field("vote_ahead", 32, ""),
)
"""A tree that is summed by blocks, in the P4 program: the parameters of its action `set_terms`."""


def buckets_for(lanes: int, records: int | None = None) -> int:
    """Return the number of buckets of a place: for `records` records, or as many as fit in memory at this
    number of lanes per packet.
    """
    if records is not None:
        return records // BUCKET
    buckets = BUCKETS
    while buckets * BUCKET * BLOCK.dtype(lanes).itemsize > MOST_TABLE_BYTES:
        buckets //= 2
    return buckets
