"""ALEPH's integrity check (its algorithm 2): the encoding of a question and its answer, fragment by fragment.

Each of the first `count` lanes of a question is for one fragment, from the header's fragment on. Its low bits
are the offset of the fragment's slot in the tree's segment, the same at all places; above them is the state.
A worker sends `SUMMED` in all lanes: a place fills in the state of fragments that no place below has found.
"""

from __future__ import annotations

from enum import StrEnum

from testbed.wire.numbers import Choice, Number, named

QUESTIONS = "questions"  # the data planes' program that answers questions


class Recovery(StrEnum):
    """The ways of recovering a job's lost packets."""

    WINDOW = "window"  # a worker infers from results which packets are lost
    INTEGRITY = "integrity"  # a worker asks its place, as in ALEPH's algorithm 2
    NONE = "none"  # no recovery: a baseline for lossless networks


class Found(Choice):
    """The state of a fragment's slot, for the asking worker."""

    SUMMED = 0, "the sum is complete here, and went to the place above; or nobody has looked"
    LACKS = 1, "no contribution of the asker's is there"
    HELD = 2, "the asker's is there, others are missing; or the slot is a newer fragment's"
    FINAL = 3, "the result is there"


SHIFT = 16  # of the state, above the offset
MOST = 256  # fragments of a question: a quarter of the largest segment

NUMBERS: tuple[Number, ...] = (
    *named("FOUND_", Found, 32),
    Number("FOUND_SHIFT", SHIFT, 32, "above the slot's offset in the segment"),
    Number("QUESTION_MOST", MOST, 16, "fragments that one question is of"),
)


def lane(offset: int, state: Found = Found.SUMMED) -> int:
    """Encode the lane of a fragment."""
    return state << SHIFT | offset


def state_in(lane: int) -> int:
    """Return the number of the state in a lane."""
    return lane >> SHIFT


def offset_in(lane: int) -> int:
    """Return the offset in a lane."""
    return lane & (1 << SHIFT) - 1
