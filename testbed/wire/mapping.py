"""The tree by which each fragment of a worker goes, and the slot of the tree's segment that it goes to, by a
hash of job and fragment (P4INC-AOI, section VI-B). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

VOTE_SLOTS = 16  # the end of a segment, for votes on the scale
MIN_SLOTS = VOTE_SLOTS + 16
FIRST_VOTE = 2**31  # votes have fragment numbers of their own

MOST_PARTS = 1024  # of the pattern by which fragments go to trees
_EXACT = 1e-9  # of a fraction

_GOLDEN = 0x9E3779B1  # 2**32 over the golden ratio, odd: Knuth's multiplicative hash


def places(job: int, size: int) -> npt.NDArray[np.uint32]:
    """The slot within a segment of `size` slots for each fragment number modulo `size`: a permutation, the
    same on every worker.

    A fragment whose hash gives a slot that an earlier one has is moved to the next free slot.
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
    """The tree of each fragment number modulo the pattern's length, the same on every worker.

    Each tree has its fraction of the pattern, in the shortest one in which all fractions are whole, or else
    the nearest in MOST_PARTS, one at least; and its fragments lie as evenly as they can.
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
    """So many parts by the largest remainders, one for each at least."""
    counts = np.maximum(1, np.floor(fractions * parts + _EXACT)).astype(np.int64)
    while counts.sum() < parts:
        counts[np.argmax(fractions * parts - counts)] += 1
    while counts.sum() > parts:
        counts[np.argmax(np.where(counts > 1, counts - fractions * parts, -np.inf))] -= 1
    return counts
