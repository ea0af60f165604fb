"""The standing of a tree's sources at a place, as the place says it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


def beyond(block: int, other: int) -> int:
    """Return how far a block number is beyond another; they have 32 bits and come round."""
    return (block - other + 2**31) % 2**32 - 2**31
