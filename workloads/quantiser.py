"""Floats to lanes and back: block floating point, with a power-of-two scale for each block of a vector. Pure
NumPy; what workers run is the same in C (workloads/native/lanes.c and votes.c).

A block is a fragment, or several where packets are small (testbed/wire/votes.py). All workers first learn
the largest exponent among them in each block: each sends votes, a one in a count of its own for the biased
exponent of its largest magnitude there (as IEEE 754 binary32 has it), the network sums the votes, and the
highest count that is not zero has the maximum. A count stands for a bucket of exponents, and the block has
the scale of the largest one in it. Whoever has an infinity or a NaN anywhere in the vector says so in its
first vote. Where the values of all workers fit in one vote, it carries them instead, each in a lane of its
own: every worker sums them in binary64, and needs no second trip.

With `W` workers and agreed exponent `E`, every |x| of the block is below 2**(E - 126); its scale is 2**s with
s = 30 - ceil(log2 W) - (E - 126), hence |q| <= 2**(30 - ceil(log2 W)) < bias, and a sum of W lanes cannot
leave 32 bits.

Where workers are missing in a sum, the result is the mean of those who contributed, times W. A worker whose
vote came too late may have values in a block that the others' scale has no room for: it leaves the block out,
and contributes nothing but that it is there. Where sums do not wait for all (block records that age out), s
is less by SPARE_BITS, for values of late workers that are up to four times as large.

Bound: |result - exact sum| <= W * 2**(-s - 1), plus the rounding of the result to binary32 (half a unit in
its last place).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.wire import spec
from testbed.wire.endpoint import CHECK_FACTOR, CHECK_SHIFT
from testbed.wire.votes import (
    BLOCK_LANES,
    FIRST_LANE,
    LENGTH_LANES,
    SCALE_MAX,
    SPECIAL,
    SPECIAL_LANE,
    Ballot,
    is_carried,
)

Floats = npt.NDArray[np.float32]
Lanes = npt.NDArray[np.uint32]


class NotFiniteError(ArithmeticError):
    """Some worker has a NaN or an infinity in its gradients."""


class PartMissingError(RuntimeError):
    """Results of a gathered vector lack workers, whose parts are missing. All workers see the same results,
    and so raise it at the same vector.
    """


class UnheardError(NotFiniteError):
    """The same where workers were missing in the vote: others may have summed without it, and not know."""


class DisagreementError(RuntimeError):
    """The workers do not reduce arrays of the same length."""


def largest_exponent(array: Floats) -> int:
    """Biased binary32 exponent of the largest magnitude: 0 for zeros and denormals, 255 if any element is not
    finite.
    """
    if array.size == 0:
        return 0
    bits = array.view(np.uint32)
    # as unsigned integers without the sign bit, magnitudes keep their order, and NaN is above infinity
    return int((bits & np.uint32(0x7FFFFFFF)).max() >> 23)


def length_check(length: int) -> int:
    """26 bits of the length's square. Lengths whose sum and whose squares' sum are W times ours are all
    ours.
    """
    return (length * length * CHECK_FACTOR & 0xFFFFFFFFFFFFFFFF) >> CHECK_SHIFT


def pages(array: Floats, ballot: Ballot) -> list[Lanes]:
    """The lanes of one worker's votes on a vector, none of which carries its values."""
    elements, cells = ballot.block_elements, ballot.cells()
    votes = [np.zeros(ballot.lanes, np.uint32) for _ in range(ballot.pages(array.size))]
    for vote in votes:
        vote[:LENGTH_LANES] = array.size, length_check(array.size)
    votes[0][SPECIAL_LANE] = largest_exponent(array) == SPECIAL
    for block in range(ballot.blocks(array.size)):
        exponent = largest_exponent(array[block * elements :][:elements])
        bucket = int(cells[exponent]) if exponent < SPECIAL else 0  # of its values nothing will be pushed
        page, at = divmod(block, ballot.page_blocks)
        lane, count = divmod(bucket, ballot.per_lane)
        votes[page][FIRST_LANE + at * BLOCK_LANES + lane] = 1 << ballot.bits * count
    return votes


def agreed_exponents(votes: Sequence[Lanes], voters: int, length: int, ballot: Ballot) -> list[int]:
    """The largest exponent of each block's bucket, from the sums of its voters' votes, page by page.

    Raises NotFiniteError if any of them has a NaN or an infinity, DisagreementError if the lengths differ or
    the votes do not add up.
    """
    tops, exponents = ballot.tops(), list[int]()
    for lanes in votes:
        if [int(lane) for lane in lanes[:LENGTH_LANES]] != [voters * length, voters * length_check(length)]:
            raise DisagreementError(
                f"the workers reduce arrays of different lengths; this one has {length} elements"
            )
    if special := int(votes[0][SPECIAL_LANE]):
        raise NotFiniteError(f"{special} of {voters} workers have NaN or infinity in their gradients")
    for block in range(ballot.blocks(length)):
        page, at = divmod(block, ballot.page_blocks)
        lanes = votes[page][FIRST_LANE + at * BLOCK_LANES :][:BLOCK_LANES]
        shifts = ballot.bits * np.arange(ballot.per_lane, dtype=np.uint32)
        counts = (lanes[:, None].astype(np.uint32) >> shifts & (1 << ballot.bits) - 1).ravel()
        if int(counts.sum()) != voters:
            raise DisagreementError(f"{int(counts.sum())} votes on a scale from {voters} workers")
        exponents.append(int(tops[np.flatnonzero(counts)[-1]]))
    return exponents


def scale_of(exponent: int, workers: int, spare_bits: int = 0) -> int:
    """The s of the scale 2**s."""
    return min(SCALE_MAX, 30 - math.ceil(math.log2(workers)) - spare_bits - (exponent - 126))


def bound(scale: int, workers: int) -> float:
    """Largest |result - exact sum| before the result is rounded to binary32."""
    return workers * 2.0 ** (-scale - 1)


def largest_error(largest: float, workers: int, spare_bits: int = 0) -> float:
    """The `bound` of a block whose largest magnitude among all workers is `largest`, as docs/training.md
    states it.
    """
    ballot = Ballot.of(workers, spec.LANES)
    exponent = largest_exponent(np.array([largest], np.float32))
    return bound(scale_of(int(ballot.tops()[ballot.cells()[exponent]]), workers, spare_bits), workers)


def encode(values: Floats, scale: int, workers: int, lanes: npt.NDArray[np.uint32]) -> int:
    """Write the lanes (big-endian uint32, same length as `values`) of a block's values; return how many are
    not zero and have the lane of a zero.
    """
    scaled = np.rint(values * np.float32(2.0**scale))
    lanes[...] = scaled.astype(np.int32).view(np.uint32) + np.uint32(spec.bias(workers))
    return int(np.count_nonzero((scaled == 0) & (values != 0)))


def decode(lanes: npt.NDArray[np.uint32], scale: int, workers: int, contributors: int, out: Floats) -> None:
    """The inverse of `encode` on a sum of `contributors` lanes: their mean, times the workers."""
    offset = np.uint32(contributors * spec.bias(workers) & 0xFFFFFFFF)
    integers = (lanes.astype(np.uint32) - offset).view(np.int32)
    with np.errstate(over="ignore"):  # a sum beyond binary32 is infinity, as in a plain sum
        np.multiply(integers, workers / contributors * 2.0**-scale, out=out, casting="unsafe")


def summed(arrays: Sequence[Floats], lanes: int = spec.LANES) -> tuple[Floats, list[int], list[int]]:
    """Return what a job makes of its workers' vectors, to the bit, where nobody is missing: the sum, the
    scale of each block (none of a small vector), and how many values of each worker became zero.
    """
    workers, length, ballot = len(arrays), arrays[0].size, Ballot.of(len(arrays), lanes)
    out, zeroed = np.zeros(length, np.float32), [0] * workers
    if is_carried(length, workers, lanes):
        out[...] = np.sum([array.astype(np.float64) for array in arrays], axis=0)
        return out, [], zeroed
    each = np.array([pages(array, ballot) for array in arrays], np.uint32)
    scales = [
        scale_of(exponent, workers)
        for exponent in agreed_exponents(list(each.sum(0, np.uint32)), workers, length, ballot)
    ]
    for block, scale in enumerate(scales):
        part = slice(block * ballot.block_elements, (block + 1) * ballot.block_elements)
        total, own = np.zeros(out[part].size, np.uint32), np.empty(out[part].size, ">u4")
        for worker, array in enumerate(arrays):
            zeroed[worker] += encode(array[part], scale, workers, own)
            total += own.astype(np.uint32)
        decode(total, scale, workers, workers, out[part])
    return out, scales, zeroed
