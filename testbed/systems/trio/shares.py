"""The shares that jobs have of a place's table of block records (docs/trio.md): no bucket overflows. Pure."""

from __future__ import annotations

from testbed.aggregation.program import Key
from testbed.aggregation.segments import NoRoomError
from testbed.systems.trio.contract import BUCKET, BUCKETS
from testbed.systems.trio.terms import BlockTerms


class Shares:
    """The number of records of each bucket that each tree may have."""

    def __init__(self, buckets: int = BUCKETS) -> None:
        self._buckets = buckets
        self._taken: dict[Key, int] = {}

    def take(self, key: Key, size: int, terms: object | None, is_lent: bool) -> int:
        """Give a tree its share. Its slots, which are workers' rings' alone, begin at 0 everywhere."""
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
        """Take the share of a tree back; nothing if it has none."""
        self._taken.pop(key, None)

    def jobs(self) -> int:
        """Return how many jobs have shares here."""
        return len({job for job, _ in dict(self._taken)})
