"""The words by which a place says how the contributors of a tree stand, and who left or came back is named.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.topology.places import Place

Reached = tuple[int, int]  # block numbers, of vectors and of votes


@dataclass(frozen=True, slots=True)
class TreeStanding:
    """The sources of a tree at a place: those that blocks waited for in vain since the last look, and those
    that left, as bitmaps; by source behind which block it is; and how many blocks were ever made.
    """

    lacked: int
    out: int
    reached: Mapping[int, Reached]
    made: int


@dataclass(frozen=True, slots=True)
class Departure:
    """A source that left at a place, or came back there: a worker by its number, or a place; with all
    `workers` below it. `events` is how many looks in a row it was missed in, 0 where all sources of a place
    had left; `made` how many blocks its place had made by then.
    """

    source: int | Place
    at: Place
    is_back: bool
    made: int
    workers: tuple[int, ...]
    events: int = 0


def beyond(block: int, other: int) -> int:
    """Return how far a block number is beyond another; they have 32 bits and come round."""
    return (block - other + 2**31) % 2**32 - 2**31
