"""The interfaces of a place's block records that Trio-ML's program uses, whatever engine the place has.
`number` is a job's. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from testbed.systems.trio.standing import Reached, TreeStanding

BLOCKS = "blocks"
"""The program's name."""


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """The counts of a tree's blocks at a place: completed ones, incomplete ones, and by source those
    completed without it.
    """

    made: int
    active: int
    missed: dict[int, int]


@runtime_checkable
class CountedBlocks(Protocol):
    """Blocks of a place that can be counted."""

    def counts(self, number: int, tree: int) -> BlockCounts | None:
        """Return the counts of a job's tree; None if it is not summed by blocks here."""


@runtime_checkable
class TimedBlocks(CountedBlocks, Protocol):
    """Blocks with timers, which may fail while the place keeps summing."""

    def failure(self) -> str | None:
        """Return why blocks no longer age out here; None if they do, or need not."""


@runtime_checkable
class LeavingBlocks(CountedBlocks, Protocol):
    """Blocks that can be summed without absent sources. Methods do nothing for a tree that is not summed
    here. An absent source returns by sending.
    """

    def standing(self, number: int, tree: int) -> TreeStanding | None:
        """Return the standing of a tree's sources; None if it is not summed here by blocks that age out."""

    def leave(self, number: int, tree: int, sources: int) -> None:
        """Remove sources (a bitmap) from a tree: blocks created from now on do not wait for them."""

    def hear(self, number: int, tree: int, source: int, reached: Reached) -> None:
        """Record the progress of the workers below a source that is a place."""

    def rise(self, number: int, tree: int, floors: Reached) -> None:
        """Raise the floors of a tree; lower values are ignored."""
