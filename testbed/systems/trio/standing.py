"""The standing of a tree's sources at a place, as the place reports it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Reached = tuple[int, int]  # block numbers, of vectors and of votes


@dataclass(frozen=True, slots=True)
class TreeStanding:
    """The sources of a tree at a place: bitmaps of those for which blocks waited in vain since the last check
    (`lacked`), and of the absent ones (`out`); by source the number after its newest block; and the number of
    blocks completed so far.
    """

    lacked: int
    out: int
    reached: Mapping[int, Reached]
    made: int


def beyond(block: int, other: int) -> int:
    """Return how far one 32-bit block number is ahead of another, modulo 2^32."""
    return (block - other + 2**31) % 2**32 - 2**31
