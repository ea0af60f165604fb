"""The operations: a packet's purpose, and the kind of its body.

Each operation is one entry here, the only place that states its number; docs/protocol.md describes its
processing.
"""

from __future__ import annotations

from enum import Enum, IntFlag
from typing import Self

from testbed.wire.numbers import Choice


class Body(Enum):
    """The part of a packet after the header."""

    LANES = "lanes"  # as many as the fabric's MTU holds
    NONE = "none"


class Op(Choice):
    """The field `op`: number, body, meaning."""

    body: Body

    def __new__(cls, value: int, body: Body, meaning: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.body, member.meaning = body, meaning
        return member

    PUSH = 1, Body.LANES, "worker to the place that it contributes to: its gradients of a fragment"
    PARTIAL = 2, Body.LANES, "place to the place above: the sum of what came to it"
    RESULT = 3, Body.LANES, "towards the workers: the sum made at the top"
    NOTICE = 4, Body.NONE, "to the sender of a push or partial sum: congestion"
    TICK = 5, Body.LANES, "to a place, by its control port alone: complete this fragment as it is"
    EMPTY = 6, Body.NONE, "worker to the place that it contributes to: its gradients are zeros, unsent"
    QUESTION = 7, Body.LANES, "worker to its place, and on to the place above: which fragments are missing"
    ANSWER = 8, Body.LANES, "place to the worker that asked: what it found in each fragment's slot"
    SUM = 9, Body.LANES, "place at the top of a tree with an owner to its owner: the sum of a fragment"
    PARAMETERS = 10, Body.LANES, "owner to the workers: bytes, which are copied and never summed"
    PARAMETER_BEAT = 11, Body.NONE, "worker to its place, and on to the owner: how far it is"
    GRADIENT_BEAT = 12, Body.NONE, "owner to the workers: how far it is"


BY_OWNERS = frozenset({Op.PARAMETERS, Op.GRADIENT_BEAT})
"""The operations that only the owner of a tree may send."""
FOR_ENDS = frozenset({Op.SUM, Op.PARAMETERS, Op.PARAMETER_BEAT, Op.GRADIENT_BEAT})
"""The operations whose packets a host passes to its end of a tree with an owner."""

NOT_IN_P4 = frozenset({Op.EMPTY, Op.QUESTION, Op.ANSWER})
"""The operations that the P4 switches do not implement: they treat such packets as malformed."""

OPS: dict[int, Op] = {int(op): op for op in Op}
"""By number, for received packets."""


class Flag(IntFlag):
    """Bits of the field `flags`."""

    FINAL = 1  # the lanes hold the sum made at the top of the tree
    DEGRADED = 2  # the sum lacks workers; `contributors` says how many are in it
    ECN = 4  # congestion: a fragment met a slot that was still taken by another
    RETRANSMIT = 8  # the sender sent this packet before
    END = 16  # the last fragment of a request in a tree with an owner


def listed() -> str:
    """Describe the field `flags`: `1 final, 2 degraded, ...`."""
    return ", ".join(f"{int(flag)} {_spelled(str(flag.name))}" for flag in Flag)


def _spelled(name: str) -> str:
    return name if name == "ECN" else name.lower()
