"""Votes on scales: how a vector's fragments share scales, and the layout of votes in packets. Pure;
docs/protocol.md, Votes, has the rule, workloads/quantiser.py applies it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.wire.spec import MAX_WORKERS

SPECIAL = 255  # the biased binary32 exponent of infinity and NaN
SCALE_MAX = 126  # keeps 2**s and 2**-s normal numbers
LEAST = 30 - (MAX_WORKERS - 1).bit_length() + 126 - SCALE_MAX  # exponents up to this all have scale SCALE_MAX

SPARE_BITS = 2  # spare bits of a scale if sums do not wait for all workers; docs/trio.md, "Late votes"

LENGTH_LANES = 2  # first a vector's length and a check of its square; then small vectors' values
SPECIAL_LANE = LENGTH_LANES  # the number of workers with a NaN or infinity anywhere in the vector
FIRST_LANE = SPECIAL_LANE + 1  # where the blocks' counts begin
BLOCK_LANES = 8  # for the counts of a block
FRAGMENTS_A_PAGE = 25  # at least, so that votes are at most 4 % of the fragments

# Between these exponents buckets are as narrow as the number of counts allows: 2**-54 to 2**26 covers the
# gradients of parts whose losses differ by a factor of 1e10, and all of float16. Outside they are as wide as
# necessary, COARSE_MOST at most.
FINE_ABOVE, FINE_TO = 72, 152
COARSE_MOST = 12


@dataclass(frozen=True, slots=True)
class Ballot:
    """The layout of a job's votes. Fragments are numbered within their vector: `block_fragments` of them, a
    block, share a scale, and one packet, a page, votes on `page_blocks` blocks.

    A block has a count for each bucket of exponents. A count has `bits` bits, enough for the number of
    workers; a lane has `per_lane` counts.
    """

    lanes: int
    bits: int
    per_lane: int
    block_fragments: int
    page_blocks: int

    @classmethod
    def of(cls, workers: int, lanes: int) -> Ballot:
        """Return the ballot of a job with this many workers and lanes per packet."""
        bits, blocks = workers.bit_length(), (lanes - FIRST_LANE) // BLOCK_LANES
        return cls(lanes, bits, 32 // bits, -(-FRAGMENTS_A_PAGE // blocks), blocks)

    @property
    def block_elements(self) -> int:
        """The elements that share a scale."""
        return self.block_fragments * self.lanes

    def blocks(self, length: int) -> int:
        """Return the number of a vector's blocks."""
        return -(-length // self.block_elements)

    def pages(self, length: int) -> int:
        """Return the number of a vector's votes, if none of them carries its values."""
        return max(1, -(-self.blocks(length) // self.page_blocks))

    def tops(self) -> npt.NDArray[np.uint32]:
        """Return each bucket's largest exponent, ascending; the first bucket has all exponents up
        to LEAST.
        """
        return buckets(self.per_lane * BLOCK_LANES)

    def cells(self) -> npt.NDArray[np.uint32]:
        """Return the bucket of each exponent of finite numbers."""
        return np.searchsorted(self.tops(), np.arange(SPECIAL)).astype(np.uint32)


def is_carried(length: int, workers: int, lanes: int) -> bool:
    """Return whether a vector is so small that its vote carries all workers' values."""
    return length * workers + LENGTH_LANES <= lanes


def buckets(most: int) -> npt.NDArray[np.uint32]:
    """Return the largest exponents of at most `most` buckets, as fine as possible."""
    for fine in range(1, COARSE_MOST + 1):
        for coarse in range(fine, COARSE_MOST + 1):
            tops = {LEAST, *range(FINE_ABOVE, LEAST, -coarse)}
            tops |= {*range(FINE_TO, FINE_ABOVE, -fine), *range(SPECIAL - 1, FINE_TO, -coarse)}
            if len(tops) <= most:
                return np.array(sorted(tops), np.uint32)
    raise ValueError(f"{most} counts are too few")
