"""The operations: what a packet asks for, and what its body is.

An operation is one entry here, and nothing else says its number; docs/protocol.md says what is done with it.
"""

from __future__ import annotations

from enum import Enum, IntFlag
from typing import Self

from testbed.wire.numbers import Choice


class Body(Enum):
    """The part of a packet that follows the header."""

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
    SUM = 9, Body.LANES, "place at the top of an owned tree to its owner: the sum of a fragment"
    PARAMETERS = 10, Body.LANES, "owner to the workers: bytes, which are copied and never summed"
    PARAMETER_BEAT = 11, Body.NONE, "worker to its place, and on to the owner: how far it is"
    GRADIENT_BEAT = 12, Body.NONE, "owner to the workers: how far it is"


BY_OWNERS = frozenset({Op.PARAMETERS, Op.GRADIENT_BEAT})
"""The operations that the owner of a tree may send, and nobody else."""
FOR_ENDS = frozenset({Op.SUM, Op.PARAMETERS, Op.PARAMETER_BEAT, Op.GRADIENT_BEAT})
"""The operations whose packets a host hands to the end of an owned tree that it has."""

NOT_IN_P4 = frozenset({Op.EMPTY, Op.QUESTION, Op.ANSWER})
"""The operations that the P4 switches do not know: to them a packet of these is malformed."""

OPS: dict[int, Op] = {int(op): op for op in Op}
"""By number, for what comes in."""


class Flag(IntFlag):
    """Bits of the field `flags`."""

    FINAL = 1  # the lanes hold the sum made at the top of the tree
    DEGRADED = 2  # the sum lacks workers; `contributors` says how many are in it
    ECN = 4  # congestion: a fragment met a slot that was still taken by another
    RETRANSMIT = 8  # the sender sent this packet before
    END = 16  # the last fragment of a request in an owned tree


def listed() -> str:
    """`1 final, 2 degraded, ...`: the meaning of the field `flags`."""
    return ", ".join(f"{int(flag)} {_spelled(str(flag.name))}" for flag in Flag)


def _spelled(name: str) -> str:
    return name if name == "ECN" else name.lower()
