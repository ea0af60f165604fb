"""The quantiser: exact within its stated bound, and never silent about what it cannot sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.wire import spec
from testbed.wire.votes import (
    BLOCK_LANES,
    FINE_ABOVE,
    FINE_TO,
    FIRST_LANE,
    LEAST,
    SCALE_MAX,
    Ballot,
    buckets,
    is_carried,
)
from workloads import quantiser

finite = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120)


def agreed(arrays: list[np.ndarray], ballot: Ballot) -> list[int]:
    votes = np.sum([quantiser.pages(array, ballot) for array in arrays], axis=0, dtype=np.uint64)
    assert votes.max(initial=0) < 2**32, "a lane carried into its neighbour"
    return quantiser.agreed_exponents(list(votes.astype(np.uint32)), len(arrays), arrays[0].size, ballot)


def round_trip(arrays: list[np.ndarray]) -> tuple[np.ndarray, int]:
    """The sum of one block's values, and its scale; none so small that its vote carries it."""
    workers, length = len(arrays), arrays[0].size
    (exponent,) = agreed(arrays, Ballot.of(workers, spec.LANES))
    scale = quantiser.scale_of(exponent, workers)
    total = np.zeros(length, np.uint64)
    for array in arrays:
        lanes = np.zeros(length, ">u4")
        quantiser.encode(array, scale, workers, lanes)
        total += lanes
    assert total.max(initial=0) < 2**32, "a lane carried into its neighbour"
    out = np.empty(length, np.float32)
    quantiser.decode(total.astype(">u4"), scale, workers, workers, out)
    return out, scale


def exact_sum(arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The sum in binary64, and what rounding it to binary32 may add to an error."""
    exact = np.sum([array.astype(np.float64) for array in arrays], axis=0)
    return exact, np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)


@given(st.lists(st.lists(finite, min_size=7, max_size=7), min_size=1, max_size=13))
def test_sum_is_within_the_stated_bound(rows: list[list[float]]) -> None:
    arrays = [np.array(row, np.float32) for row in rows]
    out, scale = round_trip(arrays)
    exact, rounding = exact_sum(arrays)
    assert (np.abs(out - exact) <= quantiser.bound(scale, len(arrays)) + rounding).all()


@given(
    st.integers(1, 9),
    st.sampled_from((64, 101, 360)),
    st.integers(0, 2**32),
    st.lists(st.integers(-140, 118), min_size=1, max_size=40),
)
def test_every_fragment_is_within_the_bound_of_its_own_largest(
    workers: int, lanes: int, seed: int, binades: list[int]
) -> None:
    """Whatever is beside it in the vector. Each block has a magnitude of its own."""
    ballot, chance = Ballot.of(workers, lanes), np.random.default_rng(seed)
    length = len(binades) * ballot.block_elements - int(chance.integers(ballot.block_elements))
    length += lanes if is_carried(length, workers, lanes) else 0
    magnitudes = np.resize(np.exp2(np.repeat(binades, ballot.block_elements).astype(np.float64)), length)
    arrays = [(chance.uniform(-2, 2, length) * magnitudes).astype(np.float32) for _ in range(workers)]
    out, scales, zeroed = quantiser.summed(arrays, lanes)
    exact, rounding = exact_sum(arrays)
    for block in range(ballot.blocks(length)):
        part = slice(block * ballot.block_elements, (block + 1) * ballot.block_elements)
        largest = max(float(np.abs(array[part]).max(initial=0)) for array in arrays)
        stated = quantiser.largest_error(largest, workers)
        assert quantiser.bound(scales[block], workers) == stated
        assert (np.abs(out[part] - exact[part]) <= stated + rounding[part]).all()
    assert all(count <= np.count_nonzero(array) for count, array in zip(zeroed, arrays, strict=True))


@given(st.integers(-149, 119), st.floats(1, 2, exclude_max=True, width=32), st.integers(1, 64))
def test_the_bound_by_the_largest_magnitude_holds_in_every_binade(
    binade: int, part: float, workers: int
) -> None:
    arrays = [np.array([part * 2.0**binade, 0.377 * 2.0**binade], np.float32)] * workers
    out, scale = round_trip(arrays)
    stated = quantiser.largest_error(float(arrays[0][0]), workers)
    assert quantiser.bound(scale, workers) == stated
    exact = workers * arrays[0].astype(np.float64)
    assert (np.abs(out - exact) <= stated + np.spacing(exact.astype(np.float32)).astype(np.float64)).all()


# What docs/training.md says: buckets are so many binades wide in the middle, and outside it at most.
WIDTHS = {1: (1, 1), 2: (1, 4), 3: (1, 4), 4: (2, 4), 7: (2, 4), 8: (2, 7), 15: (2, 7), 16: (3, 8)}
WIDTHS |= {31: (3, 8), 32: (4, 8), 63: (4, 8), 64: (5, 11)}


@pytest.mark.parametrize("workers", sorted(WIDTHS))
@given(magnitude=st.floats(2.0**-120, 2.0**120, width=32))
def test_the_bound_is_as_the_documents_have_it(workers: int, magnitude: float) -> None:
    fine, coarse = WIDTHS[workers]
    width = fine if 2.0**-54 <= magnitude < 2.0**26 else coarse
    logarithm = (workers - 1).bit_length()
    assert quantiser.largest_error(magnitude, workers) <= max(
        workers * magnitude * 2.0 ** (logarithm + width - 31), workers * 2.0**-127
    )


def test_below_the_largest_scale_the_bound_no_longer_falls_with_the_magnitude() -> None:
    out, _ = round_trip([np.full(2, 1.5 * 2.0**-128, np.float32)] * 3)
    error = float(np.abs(out - 3 * 1.5 * 2.0**-128).max())
    assert 3 * 2.0**-128 * 2.0 ** (2 - 30) < error <= quantiser.largest_error(2.0**-128, 3)


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 64])
@pytest.mark.parametrize(
    "value", [np.float32(3.4028235e38), np.float32(-3.4028235e38), np.float32(1.9999999), np.float32(1e-45)]
)
def test_extremes_do_not_overflow_a_lane(workers: int, value: np.float32) -> None:
    out, scale = round_trip([np.full(3, value, np.float32)] * workers)
    with np.errstate(over="ignore"):
        expected = np.float64(value) * workers
        assert (
            np.isinf(out).all()
            or np.abs(out - expected).max() <= quantiser.bound(scale, workers) + abs(expected) * 2**-23
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [4, 40 * spec.LANES])
def test_one_value_that_is_not_finite_is_an_error_for_all(bad: float, at: int) -> None:
    arrays = [np.ones(50 * spec.LANES, np.float32) for _ in range(3)]
    arrays[1][at] = bad
    with pytest.raises(quantiser.NotFiniteError, match="1 of 3 workers"):
        quantiser.summed(arrays)


BALLOT = Ballot.of(3, spec.LANES)


def test_different_lengths_are_an_error() -> None:
    votes = [quantiser.pages(np.ones(length, np.float32), BALLOT)[0] for length in (5, 7)]
    with pytest.raises(quantiser.DisagreementError, match="5 elements"):
        quantiser.agreed_exponents([np.asarray(sum(votes))], 2, 5, BALLOT)


@pytest.mark.parametrize("page", [0, 1])
def test_missing_vote_is_an_error(page: int) -> None:
    length = 50 * spec.LANES
    votes = quantiser.pages(np.ones(length, np.float32), BALLOT)
    assert len(votes) == 2
    both = [np.asarray(2 * vote) for vote in votes]
    assert quantiser.agreed_exponents(both, 2, length, BALLOT) == [127] * 50
    both[page][FIRST_LANE:] = votes[page][FIRST_LANE:]
    with pytest.raises(quantiser.DisagreementError, match="1 votes on a scale from 2 workers"):
        quantiser.agreed_exponents(both, 2, length, BALLOT)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8, 16, 32, 63, 64])
def test_votes_fit_in_every_packet_that_a_job_may_have_and_are_few(workers: int) -> None:
    for lanes in range(spec.MIN_LANES, spec.lanes_for(spec.MAX_MTU) + 1):
        ballot = Ballot.of(workers, lanes)
        assert FIRST_LANE + ballot.page_blocks * BLOCK_LANES <= lanes
        assert workers < 2**ballot.bits
        assert ballot.tops().size <= ballot.per_lane * BLOCK_LANES
        for length in (1, lanes, 26 * lanes, 10**6, 10**7 + 19):
            fragments = -(-length // lanes)
            assert ballot.pages(length) + fragments < 1.04 * (1 + fragments), "4 % over one vote a vector"
    assert Ballot.of(workers, spec.LANES).block_fragments == 1


@pytest.mark.parametrize("workers", sorted(WIDTHS))
def test_buckets_have_every_exponent_and_are_finest_in_the_middle(workers: int) -> None:
    ballot = Ballot.of(workers, spec.LANES)
    tops, cells = ballot.tops().astype(int), ballot.cells()
    assert [int(tops[cell]) >= at for at, cell in enumerate(cells)] == [True] * 255
    assert (tops[0], tops[-1]) == (LEAST, 254)
    widths = np.diff(tops)
    middle = (tops[1:] > FINE_ABOVE) & (tops[1:] <= FINE_TO)
    assert (widths[middle].max(), widths[~middle].max()) == WIDTHS[workers]


def test_too_few_counts_are_an_error() -> None:
    with pytest.raises(ValueError, match="5 counts are too few"):
        buckets(5)


@pytest.mark.parametrize("workers", [1, 2, 64])
def test_exponents_that_are_counted_together_have_one_scale(workers: int) -> None:
    assert {quantiser.scale_of(exponent, workers) for exponent in range(LEAST + 1)} == {SCALE_MAX}
    assert quantiser.scale_of(LEAST + 1, spec.MAX_WORKERS) < SCALE_MAX


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 8, 63, 64])
def test_counts_of_all_workers_carry_into_no_other(workers: int) -> None:
    ballot = Ballot.of(workers, spec.LANES)
    for top in ballot.tops():
        array = np.array([2.0 ** (float(top) - 127)] * 400, np.float32)
        assert agreed([array] * workers, ballot) == [top, top]


def test_what_some_contributed_is_their_mean_times_the_workers() -> None:
    arrays = [np.array([1.5, -3.0, 0.0], np.float32), np.array([2.5, 1.0, 0.0], np.float32)]
    total = np.zeros(3, np.uint32)
    for array in arrays:
        lanes = np.zeros(3, ">u4")
        quantiser.encode(array, 20, 5, lanes)
        total += lanes.astype(np.uint32)
    out = np.empty(3, np.float32)
    quantiser.decode(total.astype(">u4"), 20, 5, 2, out)
    assert out.tolist() == [10.0, -5.0, 0.0]


def test_values_that_become_zero_are_counted_and_zeros_are_not() -> None:
    values = np.array([1.0, 2.0**-30, -(2.0**-30), 0.0, -0.0, 2.0**-28, 1e-45], np.float32)
    assert quantiser.encode(values, 28, 2, np.zeros(7, ">u4")) == 3


def test_a_large_value_makes_zeros_of_small_ones_in_its_own_block_alone() -> None:
    arrays = [np.full(10 * spec.LANES, 1e-9, np.float32) for _ in range(2)]
    arrays[0][3 * spec.LANES + 7] = 10.0
    out, _, zeroed = quantiser.summed(arrays)
    assert zeroed == [spec.LANES - 1, spec.LANES]
    assert np.count_nonzero(out == np.float32(2e-9)) == 9 * spec.LANES


def test_lengths_that_add_up_as_if_they_were_one_workers_are_told_apart() -> None:
    votes = [quantiser.pages(np.ones(length, np.float32), BALLOT)[0] for length in (10, 5, 15)]
    with pytest.raises(quantiser.DisagreementError, match="different lengths"):
        quantiser.agreed_exponents([np.asarray(sum(votes))], 3, 10, BALLOT)
