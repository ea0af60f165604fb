"""The words of ALEPH's integrity check (its algorithm 2): a question's and its answer's, of each fragment.

Each of the first `count` lanes of a question is of one fragment, from the header's on: the offset of its slot
in the tree's segment, which is the same at all places, and above that what is known of it. A worker sends
`SUMMED` in all of them: a place fills in what nobody below has.
"""

from __future__ import annotations

from enum import StrEnum

from testbed.wire.numbers import Choice, Number, named

QUESTIONS = "questions"  # the data planes' program that answers them


class Recovery(StrEnum):
    """The ways by which a job's workers get lost packets again."""

    WINDOW = "window"  # a worker infers from results what is lost
    INTEGRITY = "integrity"  # it asks, as in ALEPH's algorithm 2
    NONE = "none"  # not at all: a baseline, for networks that lose nothing


class Found(Choice):
    """The states of a fragment's slot, to who asks."""

    SUMMED = 0, "the sum is complete here, and went to the place above; or nobody has looked"
    LACKS = 1, "no contribution of the asker's is there"
    HELD = 2, "the asker's is there, others are missing; or the slot is a newer fragment's"
    FINAL = 3, "the result is there"


SHIFT = 16  # of what was found, above the offset
MOST = 256  # fragments of a question: a quarter of the largest segment

NUMBERS: tuple[Number, ...] = (
    *named("FOUND_", Found, 32),
    Number("FOUND_SHIFT", SHIFT, 32, "above the slot's offset in the segment"),
    Number("QUESTION_MOST", MOST, 16, "fragments that one question is of"),
)


def lane(offset: int, state: Found = Found.SUMMED) -> int:
    """Return the lane of a fragment."""
    return state << SHIFT | offset


def state_in(lane: int) -> int:
    """Return the number of the state that a lane says."""
    return lane >> SHIFT


def offset_in(lane: int) -> int:
    """Return the offset that a lane names."""
    return lane & (1 << SHIFT) - 1
