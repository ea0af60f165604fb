"""Floats to lanes and back: block floating point with one power-of-two scale per all-reduce. Pure NumPy; what
workers run is the same in C (workloads/native/lanes.c and votes.c).

All workers first learn the largest exponent among them: each sends a vote, a one in a count of its own for
the biased exponent of its largest magnitude (as IEEE 754 binary32 has it; up to LEAST all have one count,
since they have one scale), the network sums the votes, and the highest count that is not zero is the maximum.
There are four counts in a lane, a byte each, so that a vote fits in a job's packets, however few lanes these
have. Infinity and NaN have the exponent 255, so that every worker learns of them, too. Where the values of
all workers fit in the vote's lanes, it carries them instead, each in a lane of its own: every worker sums
them in binary64, and needs no second trip.

With `W` workers and largest exponent `E`, every |x| < 2**(E - 126); the scale is 2**s with s = 30 - ceil(log2
W) - (E - 126), hence |q| <= 2**(30 - ceil(log2 W)) < bias, and a sum of W lanes cannot leave 32 bits.

Where workers are missing in a sum, the result is the mean of those who contributed, times W. A worker whose
vote came too late may have values that the others' scale has no room for: these are cut to the largest that
fits, and counted.

Bound: |result - exact sum| <= W * 2**(-s - 1), plus the rounding of the result to binary32 (half a unit in
its last place).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from testbed.contract import spec
from testbed.contract.endpoint import (
    CELLS,
    CHECK_FACTOR,
    CHECK_SHIFT,
    LEAST,
    LENGTH_LANES,
    PER_LANE,
    SCALE_MAX,
    SPECIAL,
    VOTE_LANES,
)

Floats = npt.NDArray[np.float32]

FIRST_LANE = LENGTH_LANES  # with counts, or values


class NotFiniteError(ArithmeticError):
    """Some worker has a NaN or an infinity in its gradients."""


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


def scale_lanes(exponent: int, length: int, lanes: int = spec.LANES) -> npt.NDArray[np.uint32]:
    """The lanes of one worker's vote."""
    cell = max(0, exponent - LEAST)
    vote = np.zeros(lanes, np.uint32)
    vote[FIRST_LANE + cell // PER_LANE] = 1 << 8 * (cell % PER_LANE)
    vote[:LENGTH_LANES] = length, length_check(length)
    return vote


def agreed_exponent(lanes: npt.NDArray[np.uint32], voters: int, length: int) -> int:
    """The largest exponent among the workers who voted, from the sum of their votes; LEAST at least.

    Raises NotFiniteError if any of them has a NaN or an infinity, DisagreementError if the lengths differ or
    the votes do not add up.
    """
    counts = np.ascontiguousarray(lanes[FIRST_LANE:VOTE_LANES], "<u4").view(np.uint8)[:CELLS]
    if int(counts.sum()) != voters:
        raise DisagreementError(f"{int(counts.sum())} scale votes from {voters} workers")
    if [int(lane) for lane in lanes[:LENGTH_LANES]] != [voters * length, voters * length_check(length)]:
        raise DisagreementError(
            f"the workers reduce arrays of different lengths; this one has {length} elements"
        )
    exponent = int(np.flatnonzero(counts)[-1]) + LEAST
    if exponent == SPECIAL:
        raise NotFiniteError(f"{int(counts[-1])} of {voters} workers have NaN or infinity in their gradients")
    return exponent


def scale_of(exponent: int, workers: int) -> int:
    """The s of the scale 2**s."""
    return min(SCALE_MAX, 30 - math.ceil(math.log2(workers)) - (exponent - 126))


def bound(scale: int, workers: int) -> float:
    """Largest |result - exact sum| before the result is rounded to binary32."""
    return workers * 2.0 ** (-scale - 1)


def largest_error(largest: float, workers: int) -> float:
    """The largest value of `bound` for workers whose largest magnitude is `largest`, whatever its binade: the
    form that docs/training.md has.
    """
    return workers * max(largest * 2.0 ** (math.ceil(math.log2(workers)) - 30), 2.0 ** (-SCALE_MAX - 1))


def encode(values: Floats, scale: int, workers: int, lanes: npt.NDArray[np.uint32], scratch: Floats) -> None:
    """Writes the lanes (big-endian uint32, same length as `values`) of `values`. `scratch` is overwritten;
    same length, binary32.
    """
    np.multiply(values, np.float32(2.0**scale), out=scratch)
    np.rint(scratch, out=scratch)
    lanes[...] = scratch.astype(np.int32).view(np.uint32) + np.uint32(spec.bias(workers))


def encode_clipped(values: Floats, scale: int, workers: int, lanes: npt.NDArray[np.uint32]) -> int:
    """Encode values that may be too large for the scale, cut to what fits; return how many were."""
    most = spec.bias(workers) - 1
    scaled = np.rint(values.astype(np.float64) * 2.0**scale)
    lanes[...] = np.clip(scaled, -most, most).astype(np.int32).view(np.uint32) + np.uint32(spec.bias(workers))
    return int(np.count_nonzero(np.abs(scaled) > most))


def decode(lanes: npt.NDArray[np.uint32], scale: int, workers: int, contributors: int, out: Floats) -> None:
    """The inverse of `encode` on a sum of `contributors` lanes: their mean, times the workers."""
    offset = np.uint32(contributors * spec.bias(workers) & 0xFFFFFFFF)
    integers = (lanes.astype(np.uint32) - offset).view(np.int32)
    with np.errstate(over="ignore"):  # a sum beyond binary32 is infinity, as in a plain sum
        np.multiply(integers, workers / contributors * 2.0**-scale, out=out, casting="unsafe")
