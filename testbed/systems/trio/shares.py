"""Allocate shares of a place's table of block records to jobs, so that no bucket overflows (docs/trio.md).
Pure.
"""

from __future__ import annotations

from testbed.aggregation.program import Key
from testbed.aggregation.segments import NoRoomError
from testbed.systems.trio.contract import BUCKET, BUCKETS
from testbed.systems.trio.terms import BlockTerms


class Shares:
    """The number of records of each bucket that each tree may use."""

    def __init__(self, buckets: int = BUCKETS) -> None:
        self._buckets = buckets
        self._taken: dict[Key, int] = {}

    def take(self, key: Key, size: int, terms: object | None, is_lent: bool) -> int:
        """Allocate a tree's share. Return 0: its slots are in workers' rings only, and begin at 0
        everywhere.
        """
        assert isinstance(terms, BlockTerms)
        records = terms.records(self._buckets)
        if (left := BUCKET - sum(self._taken.values())) < records:
            held = ", ".join(f"job {job} ({count})" for (job, _), count in sorted(self._taken.items()))
            raise NoRoomError(
                f"{records} of the {BUCKET} block records of each of its {self._buckets} buckets are needed, "
                f"and {left} are free: {held or 'no jobs'}"
            )
        self._taken[key] = records
        return 0

    def free(self, key: Key) -> None:
        """Free the share of a tree; do nothing if it has none."""
        self._taken.pop(key, None)

    def jobs(self) -> int:
        """Count the jobs with shares here."""
        return len({job for job, _ in dict(self._taken)})
