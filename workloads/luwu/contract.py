"""The numbers and records that an end of an owned tree (docs/luwu-network.md) shares with the process that
submits requests to it: the settings of `ends_open`, and the head of the memory that both have mapped.
"""

from __future__ import annotations

from testbed.wire.numbers import Choice, Number, named
from testbed.wire.records import Kind, Member, Record, members

U32, U64 = Kind.U32, Kind.U64
REQUESTS = 64  # requests under way in a stream, at most


class Role(Choice):
    """The two kinds of end of an owned tree."""

    WORKER = 0, "gets parameters, gives gradients"
    OWNER = 1, "gives parameters, gets the sums of gradients"


class Direction(Choice):
    """The two streams, as an end sees them."""

    GIVEN = 0, "it sends"
    GOTTEN = 1, "it receives"


class State(Choice):
    """A request's completion word: its progress. It only grows."""

    FREE = 0, "none yet"
    SUBMITTED = 1, "its values are to be measured"
    MEASURED = 2, "its largest exponent is known, its scale is not"
    READY = 3, "it may be carried out"
    DONE = 4, "the buffer is the caller's again"
    FAILED = 5, "`error` says why"


class Format(Choice):
    """The format of the elements in a request's buffer."""

    BYTES = 0, "opaque: copied as they are"
    BINARY32 = 1, "numbers, summed with a scale"
    BINARY16 = 2, "the same, given only"
    BFLOAT16 = 3, "the same, given only"


class Wrong(Choice):
    """The reasons for which a request fails."""

    NOTHING = 0, "it did not"
    LENGTH = 1, "what came ends elsewhere than what was asked for"
    EARLIER = 2, "an earlier request of its stream has failed"


SETTINGS = Record(
    "end_settings",
    (
        *members(Kind.S32, "memory_fd", "socket_fd", "event_fd"),
        Member("role", U32, "ROLE_*"),
        *members(U32, "job", "worker", "workers", "generation"),
        Member("tree", U32, "its number on the wire"),
        Member("lanes", U32, "of every packet of the job"),
        Member("slots", U32, "of the tree's segment: fragment s has slot s modulo these"),
        Member("slot_base", U32, "where it begins at the place that a worker pushes to"),
        Member("depth", U32, "fragments that this end has room for"),
        Member("address", Kind.BE32, "of a worker's place; for the owner, of the tree's group"),
        Member("port", U32),
        Member("burst", U32, "packets that the kernel makes of one datagram, at most"),
        Member("beat_us", U32, "between beats while something comes"),
        Member("detect_us", U32, "without a new acknowledgement, then it goes back; its stagger included"),
        Member("rate_mbps", Kind.F64, "packets are paced by it; 0: they are not"),
    ),
    "What an end is opened with.",
)

REQUEST = Record(
    "end_request",
    (
        Member("state", U32, "STATE_*; written last; a futex"),
        Member("format", U32, "FORMAT_*"),
        Member("offset", U64, "of its buffer in the memory"),
        Member("elements", U64, "bytes where they are opaque"),
        Member("factor", Kind.F64, "by which a sum in units of the scale is multiplied, of what is gotten"),
        Member("scale", Kind.S32, "values times two to it become integers, of what is given"),
        Member("exponent", U32, "the largest biased exponent of binary32; 255: NaN or infinity"),
        Member("error", U32, "WRONG_*"),
        Member("rest", U32),
        Member("theirs", U64, "lanes that came until END; 0: END was not where ours is"),
        Member("zeroed", U64, "values that are not zero, and were given as zero"),
    ),
    "Writers: the asking process until READY but for `exponent`, the end after that.",
)

STREAM = Record(
    "end_stream",
    (
        Member("submitted", U64, "requests; writer: the asking process"),
        Member("done", U64, "requests, in their order; the end writes it, and all below"),
        Member("ack", U64, "the first fragment that is not acknowledged, or not here"),
        Member("next", U64, "given: the next fragment to be sent; gotten: the next to be taken"),
        Member("credit", U64, "the first fragment that may not be sent"),
        Member("packets", U64, "of fragments, sent or received"),
        Member("again", U64, "of these, sent before or received before"),
        Member("gone_back", U64, "times"),
        Member("overflowed", U64, "fragments that came beyond the credit: never, where all is right"),
        Member("beats", U64, "heard or sent"),
    ),
)

MEMORY = Record(
    "end_memory",
    (
        Member("stop", U32, "the asking process ends it"),
        Member("running", U32, "1 while the end runs"),
        Member("error", U32, "errno of the send that ended it; 0: none"),
        Member("pad", U32),
        Member("dropped", U64, "packets that the socket had no room for"),
        Member("refused", U64, "packets that are none of this tree's"),
        Member("busy_ns", U64, "processor time of the end"),
        Member("events", U64, "times that it slept and was woken"),
    ),
    "The head of the memory: this, then two `end_stream`, then ENDS_REQUESTS `end_request` of each.",
)

RECORDS = (SETTINGS, REQUEST, STREAM, MEMORY)

NUMBERS = (
    Number("ENDS_REQUESTS", REQUESTS, 32, "under way in a stream"),
    *named("ROLE_", Role, 32),
    *named("DIRECTION_", Direction, 32),
    *named("STATE_", State, 32),
    *named("FORMAT_", Format, 32),
    *named("WRONG_", Wrong, 32),
)
