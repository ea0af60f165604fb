"""The verdicts on packets: names, as in the model, and numbers of the counters in the data planes.
docs/protocol.md says when each is given.
"""

from __future__ import annotations

from enum import Flag, StrEnum, auto
from typing import Self

from testbed.wire.numbers import Number


class Engine(Flag):
    """The data plane that counts a verdict."""

    XDP = auto()
    P4 = auto()


class Verdict(StrEnum):
    """A verdict is its name in lower case; `number` is its counter's index in every data plane."""

    number: int
    engines: Engine
    meaning: str

    def __new__(cls, name: str, engines: Engine, meaning: str) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.number = len(cls.__members__)
        member.engines, member.meaning = engines, meaning
        return member

    FORWARDED = "forwarded", Engine.XDP | Engine.P4, "IPv4, routed by its destination address"
    TO_OVS = "to_ovs", Engine.XDP, "left to Open vSwitch"
    AGGREGATED = "aggregated", Engine.XDP | Engine.P4, "a contribution was added, the sum is not complete"
    COMPLETED = "completed", Engine.XDP | Engine.P4, "the last contribution: result or partial sum sent"
    RESENT = "resent", Engine.XDP | Engine.P4, "duplicate of a complete sum: sent again from the slot"
    DUPLICATE = "duplicate", Engine.XDP | Engine.P4, "contribution already in the sum"
    STALE = "stale", Engine.XDP | Engine.P4, "fragment older than the slot's"
    MISMATCH = (
        "mismatch",
        Engine.XDP | Engine.P4,
        "slot still collecting an older fragment: the sender is told",
    )
    BAD_JOB = "bad_job", Engine.XDP | Engine.P4, "no such tree of such a job here"
    BAD_GENERATION = "bad_generation", Engine.XDP | Engine.P4, "another incarnation of the job"
    BAD_SLOT = "bad_slot", Engine.XDP | Engine.P4, "outside the job's segment"
    BAD_WORKER = "bad_worker", Engine.XDP | Engine.P4, "not a member"
    BAD_SENDER = "bad_sender", Engine.XDP | Engine.P4, "not what may be sent by that port"
    MALFORMED = "malformed", Engine.XDP | Engine.P4, "wrong length, magic, version, op or count"
    CORRUPT = "corrupt", Engine.XDP | Engine.P4, "UDP checksum wrong or missing"
    LOCK_BUSY = "lock_busy", Engine.XDP, "slot lock not had in time"
    RESULT = "result", Engine.XDP | Engine.P4, "result, or parameters, passed on to the job's group"
    PULLED = "pulled", Engine.XDP, "result stored in the worker's ring"
    PULL_DUPLICATE = "pull_duplicate", Engine.XDP, "result the ring had already"
    NOTICE = "notice", Engine.XDP | Engine.P4, "congestion notice passed on, or told to the worker"
    DARK = "dark", Engine.XDP, "arrived at a dark optical port"
    UNLIT = "unlit", Engine.XDP, "arrived at an optical port without a circuit"
    LIT = "lit", Engine.XDP, "crossed the optical switch"
    LATE = (
        "late",
        Engine.XDP | Engine.P4,
        "contribution to a sum that a tick completed: the sum is sent again",
    )
    TICKED = "ticked", Engine.XDP | Engine.P4, "a tick completed the sum: sent"
    TICK_LATE = "tick_late", Engine.XDP | Engine.P4, "a tick for a fragment that the slot does not wait for"
    SWITCHED = "switched", Engine.P4, "not IPv4 without options: routed or switched, whatever fits"
    UNROUTABLE = "unroutable", Engine.P4, "neither fits"
    ASKED = "asked", Engine.XDP, "question: answered, or sent on to the place above"
    ANSWERED = "answered", Engine.XDP, "answer: handed to the worker"
    CAPPED = "capped", Engine.XDP | Engine.P4, "no record for a further block of the job: the sender is told"
    TICK_EARLY = (
        "tick_early",
        Engine.XDP | Engine.P4,
        "a tick of a block for which a source is not ready",
    )
    BEAT = "beat", Engine.XDP | Engine.P4, "beat of a tree with an owner: noted, or sent on"
    HANDED = "handed", Engine.XDP, "packet of a tree with an owner: handed to the end at this host"
    HELD = "held", Engine.XDP, "for another unit: waits for its slot in the timetable"
    MISSED = "missed", Engine.XDP, "left its queue too late for its slot: back to the queue"


def names(engine: Engine) -> dict[int, str]:
    """Return the counters' names by index, for a data plane."""
    return {verdict.number: verdict.value for verdict in Verdict if engine in verdict.engines}


def numbers(engine: Engine) -> list[Number]:
    """Return the same as constants, and the number of counters to make."""
    counted = [verdict for verdict in Verdict if engine in verdict.engines]
    count = 1 + max(each.number for each in counted)
    return [
        *(Number(f"V_{each.name}", each.number, 32, each.meaning) for each in counted),
        Number("V_COUNT", count, 32, "how many counters there are"),
    ]
