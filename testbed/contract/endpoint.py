"""What a worker's Python (workloads/endpoint.py) and its compiled endpoint (workloads/native/) share."""

from __future__ import annotations

from testbed.contract.numbers import Choice, Number
from testbed.contract.records import Kind, Member, Record, members

U32, U64 = Kind.U32, Kind.U64


class Event(Choice):
    """What endpoint_run says, and what became of a vector."""

    IDLE = 0, "nothing is left to do"
    DONE = 1, "a vector is summed"
    QUIET = 2, "a timer expired in silence"
    NOT_FINITE = 3, "workers have NaN or infinity"
    DISAGREE = 4, "the workers reduce arrays of different lengths"


SETTINGS = Record(
    "settings",
    (
        *members(Kind.S32, "ring_fd", "wake_fd", "socket_fd", "event_fd"),
        *members(U32, "job", "worker", "workers", "generation"),
        *members(U32, "lanes", "slot_base", "slots", "vote_slots", "ring_entries", "first_vote"),
        Member("address", Kind.BE32),
        Member("port", U32),
        Member("share", U32, "of the fragments that the shortest queue holds; 0: unknown"),
        Member("pad", U32),
        Member("rate_mbps", Kind.F64, "of the link; 0: it has none, and marks nothing"),
        Member("places", Kind.U32_IN, "slots - vote_slots of them"),
        Member("rate_now", Kind.F64_IN, "what the rate has become, 0 until it changes; null: it never does"),
        Member("progress", Kind.U64_OUT, "fragments summed so far, for who waits for us"),
    ),
)

COUNTERS = Record(
    "counters",
    (
        *members(U64, "pushed", "retransmitted", "timeouts", "wakes", "notices", "reductions"),
        *members(Kind.F64, "window", "window_min", "window_sum", "rtt_us"),
        *members(U64, "window_samples", "marked"),
    ),
    "What an endpoint did. Windows are in packets.",
)

RECORDS = (SETTINGS, COUNTERS)

# The body of a vote, and of floats in lanes: workloads/quantiser.py says what they are for.
EXPONENTS = 256  # lanes of the one-hot vector
SPECIAL = 255  # exponent of infinity and NaN
LENGTH_LANES = 2  # a vector's length and a check of its square come first
SCALE_MAX = 126  # keeps 2**s and 2**-s normal numbers
CHECK_FACTOR = 0x9E3779B97F4A7C15
CHECK_SHIFT = 38  # leaves 26 bits: 64 workers' checks have a sum below 2**32

NUMBERS = (
    Number("VOTE_EXPONENTS", EXPONENTS, 32, "lanes of the one-hot vector"),
    Number("VOTE_SPECIAL", SPECIAL, 32, "exponent of infinity and NaN"),
    Number("VOTE_FIRST", LENGTH_LANES, 32, "of the one-hot vector, behind the lengths' two"),
    Number("VOTE_SCALE_MAX", SCALE_MAX, 32),
    Number("VOTE_CHECK_FACTOR", CHECK_FACTOR, 64, in_hex=True),
    Number("VOTE_CHECK_SHIFT", CHECK_SHIFT, 32),
)
