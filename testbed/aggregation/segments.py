"""Allocate the slots of one place in segments <MemID, Size> (P4INC-AOI, section VI-B). Pure.

The first slots are for as many jobs as the place promises to accept, in equal shares; the others are for
groups of jobs' workers. Groups get none of the jobs' slots, so no group keeps a job out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from testbed.errors import TestbedError

Key = tuple[int, int]  # a job, and the number of one of its trees


class NoRoomError(TestbedError):
    """A place accepts no more jobs, or has no free segment of the requested size."""


class Segments:
    """Allocates first fit: a tree gets the lowest free consecutive slots, of the jobs' or of the groups'.
    Adjacent freed segments merge.
    """

    def __init__(self, slots: int, jobs: int, group_slots: int = 0) -> None:
        """`slots` are for `jobs` jobs; `group_slots` more, for groups, follow them."""
        self._slots, self._jobs, self._group_slots = slots, jobs, group_slots
        self._taken: dict[Key, tuple[int, int]] = {}  # (MemID, Size)
        self._lent: dict[Key, tuple[int, int]] = {}  # the same for groups

    @property
    def default_size(self) -> int:
        """The equal share of each job that the place accepts at once."""
        return self._slots // self._jobs

    def take(self, key: Key, size: int) -> int:
        """Allocate a segment of `size` slots for a job's tree, and return its MemID. Raises NoRoomError,
        which lists the holders.
        """
        jobs = {job for job, _ in self._taken}
        if key[0] not in jobs and len(jobs) >= self._jobs:
            raise NoRoomError(f"it sums for {self._jobs} jobs at most, and has them: {_holders(self._taken)}")
        self._taken[key] = (_lowest(self._taken, range(self._slots), size, ""), size)
        return self._taken[key][0]

    def lend(self, key: Key, size: int) -> int:
        """Allocate a segment for a tree of a group; otherwise as `take`."""
        slots = range(self._slots, self._slots + self._group_slots)
        self._lent[key] = (_lowest(self._lent, slots, size, " for groups"), size)
        return self._lent[key][0]

    def free(self, key: Key) -> None:
        """Free the segment of a tree; does nothing if it has none."""
        self._taken.pop(key, None)
        self._lent.pop(key, None)

    def taken(self) -> dict[Key, tuple[int, int]]:
        """Return (job, tree) -> (MemID, Size), including groups'."""
        return {**self._taken, **self._lent}

    def jobs(self) -> int:
        """Return how many jobs have segments here, groups aside."""
        return len({job for job, _ in dict(self._taken)})


def _lowest(held: Mapping[Key, tuple[int, int]], slots: range, size: int, whose: str) -> int:
    """Return the start of the lowest `size` consecutive free slots."""
    start, longest = slots.start, 0
    for base, length in sorted(held.values()):
        if base - start >= size:
            break
        longest, start = max(longest, base - start), base + length
    else:
        if (last := slots.stop - start) < size:
            raise NoRoomError(
                f"no {size} of its {len(slots)} slots{whose} in a row are free: {_holders(held)}; the "
                f"longest free run has {max(longest, last)}"
            )
    return start


def _holders(held: Mapping[Key, tuple[int, int]]) -> str:
    slots: Counter[int] = Counter()
    for (job, _), (_, size) in held.items():
        slots[job] += size
    return ", ".join(f"job {job} ({size} slots)" for job, size in sorted(slots.items())) or "no jobs"
