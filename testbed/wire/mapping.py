"""Map each fragment of a worker to a tree, and to a slot in the tree's segment by a hash of job and fragment
(P4INC-AOI, section VI-B). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

VOTE_SLOTS = 16  # at the end of a segment, for votes on scales
MIN_SLOTS = VOTE_SLOTS + 16
FIRST_VOTE = 2**31  # votes have fragment numbers of their own

MOST_PARTS = 1024  # length of the pattern that maps fragments to trees
_EXACT = 1e-9  # tolerance of a fraction

_GOLDEN = 0x9E3779B1  # 2**32 over the golden ratio, odd: Knuth's multiplicative hash


def places(job: int, size: int) -> npt.NDArray[np.uint32]:
    """Return the slot within a segment of `size` slots for each fragment number modulo `size`: a permutation,
    the same on every worker.

    A fragment whose hash gives an already assigned slot is moved to the next free one.
    """
    taken = np.zeros(size, np.bool_)
    slots = np.zeros(size, np.uint32)
    for fragment in range(size):
        place = ((fragment ^ (job << 16)) * _GOLDEN & 0xFFFFFFFF) * size >> 32
        while taken[place]:
            place = (place + 1) % size
        taken[place] = True
        slots[fragment] = place
    return slots


def pattern(weights: Sequence[float]) -> npt.NDArray[np.uint32]:
    """Return the tree of each fragment number modulo the pattern's length, the same on every worker.

    Each tree has its fraction of the pattern, which is the shortest that makes all fractions whole; otherwise
    it has MOST_PARTS, and each tree the nearest count, at least one. A tree's fragments are spaced as evenly
    as possible.
    """
    fractions = np.array(weights, np.float64) / sum(weights)
    parts = next((parts for parts in range(1, MOST_PARTS) if _is_whole(fractions * parts)), MOST_PARTS)
    counts = _counts(fractions, parts)
    ends = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    trees = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    return np.asarray(trees[np.lexsort((trees, ends))])


def _is_whole(counts: npt.NDArray[np.float64]) -> bool:
    return bool((np.abs(counts - counts.round()) <= _EXACT * counts.size).all() and counts.min() > 0.5)


def _counts(fractions: npt.NDArray[np.float64], parts: int) -> npt.NDArray[np.int64]:
    """Apportion the parts by largest remainders, at least one each."""
    counts = np.maximum(1, np.floor(fractions * parts + _EXACT)).astype(np.int64)
    while counts.sum() < parts:
        counts[np.argmax(fractions * parts - counts)] += 1
    while counts.sum() > parts:
        counts[np.argmax(np.where(counts > 1, counts - fractions * parts, -np.inf))] -= 1
    return counts
