"""The numbers and records shared by a worker's Python (workloads/endpoint.py) and its compiled endpoint
(workloads/native/).
"""

from __future__ import annotations

from testbed.wire import votes
from testbed.wire.numbers import Choice, Number, named
from testbed.wire.records import Kind, Member, Record, members

U32, U64 = Kind.U32, Kind.U64


class Event(Choice):
    """The return values of endpoint_run: how a vector ended, or why there is none."""

    IDLE = 0, "nothing is left to do"
    DONE = 1, "a vector is summed"
    QUIET = 2, "a timer expired in silence"
    NOT_FINITE = 3, "workers have NaN or infinity"
    DISAGREE = 4, "the workers reduce arrays of different lengths"
    IMPOSSIBLE = 5, "a result names as many contributors as cannot be"
    OVERTAKEN = 6, "others are so far ahead that a result was replaced before it was taken"
    LACKING = 7, "a gathered vector lacks parts of workers; all workers know it"
    REFUSED = 8, "the kernel refuses to send, for good; its errno is in the workers' place"


class Vector(Choice):
    """The kinds of vector, and the treatment of the worker's own part."""

    FLOATS = 0, "summed with a scale; the worker takes its part of the sum"
    LANES = 1, "summed as they are"
    GATHERED = 2, "every worker's part as it is; the others push zeros for it"


WAY = Record(
    "way",
    (
        Member("address", Kind.BE32, "of the place that the worker contributes to"),
        Member("slot_base", U32, "where the tree's segment begins there"),
        Member("queue_packets", U32, "what the shortest queue holds for this tree; 0: unknown"),
        Member("takes_empties", U32, "whether that place takes pushes without lanes"),
    ),
    "How a worker's fragments go by a tree of its job.",
)

SETTINGS = Record(
    "settings",
    (
        *members(Kind.S32, "ring_fd", "wake_fd", "socket_fd", "event_fd"),
        *members(U32, "job", "worker", "workers", "generation"),
        Member("lanes", U32, "of every packet of the job"),
        Member("slots", U32, "of each tree's segment"),
        *members(U32, "vote_slots", "ring_entries"),
        Member("ring_lanes", U32, "that an entry of the ring has room for"),
        *members(U32, "first_vote", "port", "trees"),
        Member("parts", U32, "of the pattern"),
        Member("first_tree", U32, "number of the first tree on the wire; the others follow"),
        Member("sender", U32, "number of this worker on the wire; `worker` counts those who sum here"),
        Member("window", U32, "fragments of a tree under way, at most; 0: half of the slots for vectors"),
        Member("vote_window", U32, "votes under way, at most; 0: half of vote_slots"),
        Member("spare_bits", U32, "of a scale, kept for workers whose votes come late"),
        Member("asks", U32, "whether it asks its places what is lost, and does not infer it"),
        Member("lossless", U32, "whether nothing is pushed again: a lost packet stops the job"),
        Member("rate_mbps", Kind.F64, "of the link; 0: it has none, and marks nothing"),
        Member("places", Kind.U32_IN, "slots - vote_slots of them"),
        Member("ways", Kind.WAYS_IN, "by tree"),
        Member("pattern", Kind.U32_IN, "the tree of each fragment modulo parts"),
        Member(
            "parallel",
            Kind.U32_IN,
            "whether results come by parallel circuits, and may overtake each other; null: never",
        ),
        Member("rate_now", Kind.F64_IN, "what the rate has become, 0 until it changes; null: it never does"),
        Member(
            "progress",
            Kind.U64_OUT,
            "twice the fragments summed so far, and 1 where more are pushed: for who waits for us",
        ),
        Member("cells", Kind.U32_IN, "the bucket of each exponent of a finite number"),
        Member("tops", Kind.U32_IN, "the largest exponent of each bucket"),
        Member("buckets", U32),
        Member("count_bits", U32, "of a bucket's count in a vote"),
        Member("block_fragments", U32, "that share a scale"),
        Member("page_blocks", U32, "that one vote is on"),
    ),
)

COUNTERS = Record(
    "counters",
    (
        *members(U64, "pushed", "retransmitted", "timeouts", "wakes", "notices", "reductions"),
        *members(Kind.F64, "window", "window_min", "window_sum", "rtt_us"),
        *members(U64, "window_samples", "marked"),
        Member("degraded", U64, "results in which workers are missing"),
        Member("left_out", U64, "values left out: a scale agreed on without this worker has no room"),
        Member("scaled", U64, "values that were pushed by a scale"),
        Member("zeroed", U64, "those of them that are not zero, and were pushed as zero"),
        Member("asked", U64, "questions that were sent"),
    ),
    "What an endpoint did. Windows are in packets; of several trees, the sum of theirs is the window now.",
)

RECORDS = (WAY, SETTINGS, COUNTERS)

# A checksum of a vector's length, in a vote (workloads/quantiser.py).
CHECK_FACTOR = 0x9E3779B97F4A7C15
CHECK_SHIFT = 38  # leaves 26 bits: 64 workers' checks have a sum below 2**32

NUMBERS = (
    *named("VECTOR_", Vector, 32),
    Number("VOTE_SPECIAL", votes.SPECIAL, 32, "exponent of infinity and NaN"),
    Number("VOTE_VALUES", votes.LENGTH_LANES, 32, "lane of a small vector's values, behind the lengths' two"),
    Number("VOTE_SPECIAL_LANE", votes.SPECIAL_LANE, 32, "how many workers have infinity or NaN"),
    Number("VOTE_FIRST", votes.FIRST_LANE, 32, "lane of the first block's counts"),
    Number("VOTE_BLOCK_LANES", votes.BLOCK_LANES, 32, "with the counts of a block"),
    Number("VOTE_SCALE_MAX", votes.SCALE_MAX, 32),
    Number("VOTE_CHECK_FACTOR", CHECK_FACTOR, 64, in_hex=True),
    Number("VOTE_CHECK_SHIFT", CHECK_SHIFT, 32),
)
