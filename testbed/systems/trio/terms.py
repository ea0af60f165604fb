"""The terms by which a place sums a tree by blocks: Trio-ML's part of an entry. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.aggregation.entries import Entry


@dataclass(frozen=True, slots=True)
class BlockTerms:
    """The terms of a tree at a place that sums it by blocks, not in slots (docs/trio.md). `cap`: its most
    active blocks. By vectors and votes: `window`, the most blocks that a source has under way; `kept`, the
    results kept; `ahead`, how far ticks may be ahead of what a source has.
    """

    cap: int
    window: tuple[int, int]
    kept: tuple[int, int]
    ahead: tuple[int, int]
    age_out_ms: float = 0.0  # how long a block may wait for a source; 0: forever

    @property
    def data(self) -> int:
        """The slots of a worker's ring that are for vectors; those after them are for votes."""
        return self.kept[0]

    def records(self, buckets: int) -> int:
        """Return how many records the tree may use in each bucket of a table with `buckets` buckets."""
        return sum(-(-sum(span) // buckets) for span in zip(self.window, self.kept, strict=True))


def terms_of(entry: Entry) -> BlockTerms:
    """Return the block terms of an entry."""
    assert isinstance(entry.terms, BlockTerms)
    return entry.terms
