"""The slots of one switch, given out in segments <MemID, Size> (P4INC-AOI, section VI-B). Pure."""

from __future__ import annotations

from collections import Counter

from testbed.errors import TestbedError

Key = tuple[int, int]  # a job, and the number of one of its trees


class NoRoomError(TestbedError):
    """A switch takes no more jobs, or has no free segment of the size asked for."""


class Segments:
    """First fit: a job's tree gets the lowest free slots in a row. Freed neighbours are one free segment
    again.
    """

    def __init__(self, slots: int, jobs: int) -> None:
        self._slots, self._jobs = slots, jobs
        self._taken: dict[Key, tuple[int, int]] = {}  # (MemID, Size)

    @property
    def default_size(self) -> int:
        """An equal share for each of the jobs that the place takes at once."""
        return self._slots // self._jobs

    def take(self, key: Key, size: int) -> int:
        """The MemID of a segment of `size` slots for a job's tree. Raises NoRoomError, which says who
        holds what.
        """
        jobs = {job for job, _ in self._taken}
        if key[0] not in jobs and len(jobs) >= self._jobs:
            raise NoRoomError(f"it sums for {self._jobs} jobs at most, and has them: {self._holders()}")
        start = 0
        for base, length in sorted(self._taken.values()):
            if base - start >= size:
                break
            start = base + length
        if start + size > self._slots:
            raise NoRoomError(
                f"no {size} of its {self._slots} slots in a row are free: {self._holders()}; the longest "
                f"free run has {self._longest()}"
            )
        self._taken[key] = (start, size)
        return start

    def free(self, key: Key) -> None:
        """Takes the segment of a job's tree back; nothing if it has none."""
        self._taken.pop(key, None)

    def taken(self) -> dict[Key, tuple[int, int]]:
        """(Job, tree) -> (MemID, Size)."""
        return dict(self._taken)

    def jobs(self) -> int:
        """Return how many jobs have segments here."""
        return len({job for job, _ in dict(self._taken)})

    def _holders(self) -> str:
        slots: Counter[int] = Counter()
        for (job, _), (_, size) in self._taken.items():
            slots[job] += size
        return ", ".join(f"job {job} ({size} slots)" for job, size in sorted(slots.items())) or "no jobs"

    def _longest(self) -> int:
        ends = [0, *(base + size for base, size in sorted(self._taken.values()))]
        starts = [*(base for base, _ in sorted(self._taken.values())), self._slots]
        return max(start - end for end, start in zip(ends, starts, strict=True))
