"""Votes on scales: how a vector's fragments share scales, and how votes on these are laid out in packets.
Pure; docs/protocol.md, Votes, says the rule, workloads/quantiser.py what comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.wire.spec import MAX_WORKERS

SPECIAL = 255  # the biased binary32 exponent of infinity and NaN
SCALE_MAX = 126  # keeps 2**s and 2**-s normal numbers
LEAST = 30 - (MAX_WORKERS - 1).bit_length() + 126 - SCALE_MAX  # up to it every exponent has that scale

SPARE_BITS = 2  # of a scale where sums do not wait for all; docs/trio.md, "Late votes"

LENGTH_LANES = 2  # a vector's length and a check of its square come first; then small vectors' values
SPECIAL_LANE = LENGTH_LANES  # how many workers have a NaN or an infinity anywhere in the vector
FIRST_LANE = SPECIAL_LANE + 1  # of the blocks' counts
BLOCK_LANES = 8  # for the counts of a block
FRAGMENTS_A_PAGE = 25  # at least, so that votes are at most 4 % of what fragments are

# Between these exponents buckets are as narrow as counts allow: 2**-54 to 2**26 holds the gradients of parts
# whose losses are 1e10 apart, and all that float16 has. Outside they are as wide as need be, this at most.
FINE_ABOVE, FINE_TO = 72, 152
COARSE_MOST = 12


@dataclass(frozen=True, slots=True)
class Ballot:
    """The form of a job's votes. Fragments are numbered within their vector here: `block_fragments` of them,
    a block, share a scale, and `page_blocks` blocks are voted on by one packet, a page.

    A block has a count for each bucket of exponents, of so many `bits` that it holds all workers, and so many
    counts `per_lane`.
    """

    lanes: int
    bits: int
    per_lane: int
    block_fragments: int
    page_blocks: int

    @classmethod
    def of(cls, workers: int, lanes: int) -> Ballot:
        """Return the ballot of a job of so many workers and lanes a packet."""
        bits, blocks = workers.bit_length(), (lanes - FIRST_LANE) // BLOCK_LANES
        return cls(lanes, bits, 32 // bits, -(-FRAGMENTS_A_PAGE // blocks), blocks)

    @property
    def block_elements(self) -> int:
        """Return how many elements share a scale."""
        return self.block_fragments * self.lanes

    def blocks(self, length: int) -> int:
        """Return how many blocks a vector has."""
        return -(-length // self.block_elements)

    def pages(self, length: int) -> int:
        """Return how many votes a vector has whose values none of them carries."""
        return max(1, -(-self.blocks(length) // self.page_blocks))

    def tops(self) -> npt.NDArray[np.uint32]:
        """Return by bucket its largest exponent, ascending; the first has all exponents up to LEAST."""
        return buckets(self.per_lane * BLOCK_LANES)

    def cells(self) -> npt.NDArray[np.uint32]:
        """Return by exponent, of finite numbers, its bucket."""
        return np.searchsorted(self.tops(), np.arange(SPECIAL)).astype(np.uint32)


def is_carried(length: int, workers: int, lanes: int) -> bool:
    """Return whether a vector is so small that its vote carries everybody's values."""
    return length * workers + LENGTH_LANES <= lanes


def buckets(most: int) -> npt.NDArray[np.uint32]:
    """Return the largest exponents of at most so many buckets, the finest that there can be."""
    for fine in range(1, COARSE_MOST + 1):
        for coarse in range(fine, COARSE_MOST + 1):
            tops = {LEAST, *range(FINE_ABOVE, LEAST, -coarse)}
            tops |= {*range(FINE_TO, FINE_ABOVE, -fine), *range(SPECIAL - 1, FINE_TO, -coarse)}
            if len(tops) <= most:
                return np.array(sorted(tops), np.uint32)
    raise ValueError(f"{most} counts are too few")
