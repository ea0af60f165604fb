"""Convert floats to lanes and back: block floating point, with a power-of-two scale for each block of a
vector. Pure NumPy; workers run the same in C (workloads/native/lanes.c and votes.c).

A block is a fragment, or several where packets are small (testbed/wire/votes.py). Workers first agree on the
largest exponent that any of them has in each block. A worker sends votes. For each block a vote has a row of
counts, and the worker adds one to the count of its own exponent: the biased exponent, as in IEEE 754
binary32, of its largest magnitude in the block. The network sums the votes, and the highest count that is not
zero belongs to the maximum. A count stands for a bucket of exponents, and the block gets the scale of the
largest exponent in the bucket. A worker with an infinity or a NaN anywhere in the vector says so in its first
vote. Where the values of all workers fit in one vote, it carries the values instead, each in a lane of its
own: every worker sums them in binary64, without a second round trip.

With `W` workers and agreed exponent `E`, every |x| of the block is below 2**(E - 126); its scale is 2**s with
s = 30 - ceil(log2 W) - (E - 126), hence |q| <= 2**(30 - ceil(log2 W)) < bias, and a sum of W lanes fits in 32
bits.

Where a sum lacks workers, the result is the mean of the contributors, times W. A worker whose vote came too
late may have values in a block that are too large for the others' scale: it then contributes no values to the
block, only its presence. Where sums do not wait for all workers (block records that age out), s is smaller by
SPARE_BITS, for values of late workers that are up to four times as large.

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
    """Results of a gathered vector lack workers, and so the parts of these workers are missing. All workers
    see the same results, and raise this at the same vector.
    """


class UnheardError(NotFiniteError):
    """A worker has a NaN or an infinity, and the vote lacked workers: others may have summed without this
    worker's vote, and not know of it.
    """


class DisagreementError(RuntimeError):
    """The workers reduce arrays of different lengths."""


def largest_exponent(array: Floats) -> int:
    """Return the biased binary32 exponent of the largest magnitude: 0 for zeros and denormals, 255 if any
    element is not finite.
    """
    if array.size == 0:
        return 0
    bits = array.view(np.uint32)
    # without the sign bit, magnitudes order as unsigned integers, and NaN is above infinity
    return int((bits & np.uint32(0x7FFFFFFF)).max() >> 23)


def length_check(length: int) -> int:
    """Return 26 bits of the square of a length.

    If the sum of all workers' lengths is W times ours, and the sum of the squares too, all lengths are equal
    to ours.
    """
    return (length * length * CHECK_FACTOR & 0xFFFFFFFFFFFFFFFF) >> CHECK_SHIFT


def pages(array: Floats, ballot: Ballot) -> list[Lanes]:
    """Make one worker's votes on a vector, as lanes, for a vector too large for its votes to carry its
    values.
    """
    elements, cells = ballot.block_elements, ballot.cells()
    votes = [np.zeros(ballot.lanes, np.uint32) for _ in range(ballot.pages(array.size))]
    for vote in votes:
        vote[:LENGTH_LANES] = array.size, length_check(array.size)
    votes[0][SPECIAL_LANE] = largest_exponent(array) == SPECIAL
    for block in range(ballot.blocks(array.size)):
        exponent = largest_exponent(array[block * elements :][:elements])
        bucket = int(cells[exponent]) if exponent < SPECIAL else 0  # any bucket: no values will be pushed
        page, at = divmod(block, ballot.page_blocks)
        lane, count = divmod(bucket, ballot.per_lane)
        votes[page][FIRST_LANE + at * BLOCK_LANES + lane] = 1 << ballot.bits * count
    return votes


def agreed_exponents(votes: Sequence[Lanes], voters: int, length: int, ballot: Ballot) -> list[int]:
    """Return the largest exponent of each block's bucket, from the sums of the voters' votes, one sum per
    page.

    Raises NotFiniteError if any voter has a NaN or an infinity, DisagreementError if the lengths differ or a
    block's counts do not add up to the voters.
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
    """Return the s of a block's scale 2**s (module docstring), at most SCALE_MAX."""
    return min(SCALE_MAX, 30 - math.ceil(math.log2(workers)) - spare_bits - (exponent - 126))


def bound(scale: int, workers: int) -> float:
    """Return the largest |result - exact sum| before the result is rounded to binary32."""
    return workers * 2.0 ** (-scale - 1)


def largest_error(largest: float, workers: int, spare_bits: int = 0) -> float:
    """Return the `bound` of a block in which the largest magnitude of all workers is `largest`, as
    docs/training.md states it.
    """
    ballot = Ballot.of(workers, spec.LANES)
    exponent = largest_exponent(np.array([largest], np.float32))
    return bound(scale_of(int(ballot.tops()[ballot.cells()[exponent]]), workers, spare_bits), workers)


def encode(values: Floats, scale: int, workers: int, lanes: npt.NDArray[np.uint32]) -> int:
    """Write a block's values as lanes (big-endian uint32, same length as `values`). Return how many values
    are not zero but were rounded to zero.
    """
    scaled = np.rint(values * np.float32(2.0**scale))
    lanes[...] = scaled.astype(np.int32).view(np.uint32) + np.uint32(spec.bias(workers))
    return int(np.count_nonzero((scaled == 0) & (values != 0)))


def decode(lanes: npt.NDArray[np.uint32], scale: int, workers: int, contributors: int, out: Floats) -> None:
    """Convert sums of `contributors` lanes back to floats: the contributors' mean, times the number of
    workers.
    """
    offset = np.uint32(contributors * spec.bias(workers) & 0xFFFFFFFF)
    integers = (lanes.astype(np.uint32) - offset).view(np.int32)
    with np.errstate(over="ignore"):  # a sum beyond binary32 is infinity, as in a plain sum
        np.multiply(integers, workers / contributors * 2.0**-scale, out=out, casting="unsafe")


def summed(arrays: Sequence[Floats], lanes: int = spec.LANES) -> tuple[Floats, list[int], list[int]]:
    """Compute, exact to the bit, what a job's workers get from their vectors where no worker is missing.

    Return the sum, the scale of each block (none for a vector that its votes carry), and how many values of
    each worker were rounded to zero.
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
