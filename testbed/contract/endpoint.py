"""The numbers and records that a worker's Python (workloads/endpoint.py) and its compiled endpoint
(workloads/native/) share.
"""

from __future__ import annotations

from testbed.contract.numbers import Choice, Number
from testbed.contract.records import Kind, Member, Record, members
from testbed.contract.spec import MAX_WORKERS

U32, U64 = Kind.U32, Kind.U64


class Event(Choice):
    """The answers of endpoint_run: how a vector ended, or why there is none."""

    IDLE = 0, "nothing is left to do"
    DONE = 1, "a vector is summed"
    QUIET = 2, "a timer expired in silence"
    NOT_FINITE = 3, "workers have NaN or infinity"
    DISAGREE = 4, "the workers reduce arrays of different lengths"
    IMPOSSIBLE = 5, "a result names as many contributors as cannot be"


WAY = Record(
    "way",
    (
        Member("address", Kind.BE32, "of the place that the worker contributes to"),
        Member("slot_base", U32, "where the tree's segment begins there"),
        Member("queue_packets", U32, "what the shortest queue holds for this tree; 0: unknown"),
        Member("pad", U32),
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
        Member("pad", U32),
        Member("rate_mbps", Kind.F64, "of the link; 0: it has none, and marks nothing"),
        Member("places", Kind.U32_IN, "slots - vote_slots of them"),
        Member("ways", Kind.WAYS_IN, "by tree"),
        Member("pattern", Kind.U32_IN, "the tree of each fragment modulo parts"),
        Member("rate_now", Kind.F64_IN, "what the rate has become, 0 until it changes; null: it never does"),
        Member(
            "progress",
            Kind.U64_OUT,
            "twice the fragments summed so far, and 1 where more are pushed: for who waits for us",
        ),
    ),
)

COUNTERS = Record(
    "counters",
    (
        *members(U64, "pushed", "retransmitted", "timeouts", "wakes", "notices", "reductions"),
        *members(Kind.F64, "window", "window_min", "window_sum", "rtt_us"),
        *members(U64, "window_samples", "marked"),
        Member("degraded", U64, "results in which workers are missing"),
        Member("clipped", U64, "values that did not fit a scale agreed on without this worker"),
    ),
    "What an endpoint did. Windows are in packets; of several trees, the sum of theirs is the window now.",
)

RECORDS = (WAY, SETTINGS, COUNTERS)

# The body of a vote, and of floats in lanes: workloads/quantiser.py says what they are for.
SPECIAL = 255  # the largest exponent: of infinity and NaN
LENGTH_LANES = 2  # a vector's length and a check of its square come first
SCALE_MAX = 126  # keeps 2**s and 2**-s normal numbers
LEAST = 30 - (MAX_WORKERS - 1).bit_length() + 126 - SCALE_MAX  # up to it every exponent has that scale
CELLS = SPECIAL + 1 - LEAST  # counts of votes, the first for all exponents up to LEAST
PER_LANE = 4  # cells: none carries into the next, since MAX_WORKERS fits in eight bits
VOTE_LANES = LENGTH_LANES + -(-CELLS // PER_LANE)
CHECK_FACTOR = 0x9E3779B97F4A7C15
CHECK_SHIFT = 38  # leaves 26 bits: 64 workers' checks have a sum below 2**32

NUMBERS = (
    Number("VOTE_SPECIAL", SPECIAL, 32, "exponent of infinity and NaN"),
    Number("VOTE_FIRST", LENGTH_LANES, 32, "lane of counts, behind the lengths' two"),
    Number("VOTE_LEAST", LEAST, 32, "exponents up to it are counted together: they have one scale"),
    Number("VOTE_CELLS", CELLS, 32, "counts"),
    Number("VOTE_PER_LANE", PER_LANE, 32, "counts in a lane, the first in its lowest byte"),
    Number("VOTE_SCALE_MAX", SCALE_MAX, 32),
    Number("VOTE_CHECK_FACTOR", CHECK_FACTOR, 64, in_hex=True),
    Number("VOTE_CHECK_SHIFT", CHECK_SHIFT, 32),
)
