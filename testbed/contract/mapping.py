"""Where a worker puts its fragments: the slots of a job's segment, by a hash of job and fragment (P4INC-AOI,
section VI-B). Pure.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

VOTE_SLOTS = 16  # the end of a segment, for votes on the scale
MIN_SLOTS = VOTE_SLOTS + 16
FIRST_VOTE = 2**31  # votes have fragment numbers of their own

_GOLDEN = 0x9E3779B1  # 2**32 over the golden ratio, odd: Knuth's multiplicative hash


def places(job: int, size: int) -> npt.NDArray[np.uint32]:
    """The slot within a segment of `size` slots for each fragment number modulo `size`: a permutation, the
    same on every worker.

    A fragment whose hash gives a slot that an earlier one has is moved to the next free slot.
    """
    taken = np.zeros(size, np.bool_)
    found = np.zeros(size, np.uint32)
    for fragment in range(size):
        place = ((fragment ^ (job << 16)) * _GOLDEN & 0xFFFFFFFF) * size >> 32
        while taken[place]:
            place = (place + 1) % size
        taken[place] = True
        found[fragment] = place
    return found
