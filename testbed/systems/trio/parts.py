"""The interfaces of a place's block records, as Trio-ML's program asks for them, whatever the place is made
of. `number` is a job's. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from testbed.systems.trio.standing import Reached, TreeStanding

BLOCKS = "blocks"
"""The program's name."""


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """The counts of a tree's blocks at a place: all that were made, those whose sums are not made, and by the
    number of a source those that went without it.
    """

    made: int
    active: int
    missed: dict[int, int]


@runtime_checkable
class CountedBlocks(Protocol):
    """The blocks of a place, which can be counted."""

    def counts(self, number: int, tree: int) -> BlockCounts | None:
        """Return the counts of a job's tree; None where it is not summed here by blocks."""


@runtime_checkable
class TimedBlocks(CountedBlocks, Protocol):
    """Blocks whose timers may fail, while the place sums on."""

    def failure(self) -> str | None:
        """Return why blocks age out here no more; None where they do, or where none are to."""


@runtime_checkable
class LeavingBlocks(CountedBlocks, Protocol):
    """Blocks that are summed without sources that left; nothing is done for a tree that is not summed here. A
    source that left is back by what it sends.
    """

    def standing(self, number: int, tree: int) -> TreeStanding | None:
        """Return how the sources of a tree stand; None where it is not summed here by blocks that age."""

    def leave(self, number: int, tree: int, sources: int) -> None:
        """Take sources, a bitmap, out of a tree: blocks that are made from now on do not wait for them."""

    def hear(self, number: int, tree: int, source: int, reached: Reached) -> None:
        """Note how far those are who are below a source."""

    def rise(self, number: int, tree: int, floors: Reached) -> None:
        """Have the floors of a tree rise, or stay."""
