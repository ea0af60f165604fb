"""The terms on which a tree is summed by blocks at a place: what Trio-ML's program says in an entry. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.aggregation.entries import Entry


@dataclass(frozen=True, slots=True)
class BlockTerms:
    """The terms of a tree at a place that sums it by blocks, not in slots (docs/trio.md): how many active
    blocks it may have, how many a source has under way at most, how many results are kept, and how far ticks
    may be ahead of what a source has; the last three of vectors and of votes.
    """

    cap: int
    window: tuple[int, int]
    kept: tuple[int, int]
    ahead: tuple[int, int]
    age_out_ms: float = 0.0  # how long a block may wait for a source; 0: as long as it takes

    @property
    def data(self) -> int:
        """Return how many slots of a worker's ring are for vectors: those behind are the votes'."""
        return self.kept[0]

    def records(self, buckets: int) -> int:
        """Return how many records it may have in one bucket of a table with so many."""
        return sum(-(-sum(span) // buckets) for span in zip(self.window, self.kept, strict=True))


def terms_of(entry: Entry) -> BlockTerms:
    """Return the terms of an entry whose tree is summed by blocks."""
    assert isinstance(entry.terms, BlockTerms)
    return entry.terms
