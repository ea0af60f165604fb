"""The quantiser: exact within its stated bound, and never silent about what it cannot sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.contract import spec
from testbed.contract.endpoint import LEAST, SCALE_MAX, VOTE_LANES
from workloads import quantiser

finite = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**120), max_value=2.0**120)


def round_trip(arrays: list[np.ndarray]) -> tuple[np.ndarray, int]:
    workers, length = len(arrays), arrays[0].size
    votes = sum(
        quantiser.scale_lanes(quantiser.largest_exponent(a), length).astype(np.uint64) for a in arrays
    )
    exponent = quantiser.agreed_exponent(np.asarray(votes, np.uint32), workers, length)
    scale = quantiser.scale_of(exponent, workers)
    total = np.zeros(length, np.uint64)
    for array in arrays:
        lanes = np.zeros(length, ">u4")
        quantiser.encode(array, scale, workers, lanes, np.empty(length, np.float32))
        total += lanes
    assert total.max(initial=0) < 2**32, "a lane carried into its neighbour"
    out = np.empty(length, np.float32)
    quantiser.decode(total.astype(">u4"), scale, workers, workers, out)
    return out, scale


@given(st.lists(st.lists(finite, min_size=7, max_size=7), min_size=1, max_size=13))
def test_sum_is_within_the_stated_bound(rows: list[list[float]]) -> None:
    arrays = [np.array(row, np.float32) for row in rows]
    out, scale = round_trip(arrays)
    exact = np.sum([array.astype(np.float64) for array in arrays], axis=0)
    rounding = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert (np.abs(out - exact) <= quantiser.bound(scale, len(arrays)) + rounding).all()


@given(st.integers(-149, 119), st.floats(1, 2, exclude_max=True, width=32), st.integers(1, 64))
def test_the_bound_by_the_largest_magnitude_holds_in_every_binade(
    binade: int, part: float, workers: int
) -> None:
    arrays = [np.array([part * 2.0**binade, 0.377 * 2.0**binade], np.float32)] * workers
    out, scale = round_trip(arrays)
    stated = quantiser.largest_error(float(arrays[0][0]), workers)
    assert quantiser.bound(scale, workers) <= stated
    exact = workers * arrays[0].astype(np.float64)
    assert (np.abs(out - exact) <= stated + np.spacing(exact.astype(np.float32)).astype(np.float64)).all()


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
def test_one_value_that_is_not_finite_is_an_error_for_all(bad: float) -> None:
    arrays = [np.ones(5, np.float32) for _ in range(3)]
    arrays[1][4] = bad
    with pytest.raises(quantiser.NotFiniteError, match="1 of 3 workers"):
        round_trip(arrays)


def test_different_lengths_are_an_error() -> None:
    votes = quantiser.scale_lanes(127, 5) + quantiser.scale_lanes(127, 7)
    with pytest.raises(quantiser.DisagreementError, match="5 elements"):
        quantiser.agreed_exponent(votes, 2, 5)


def test_missing_vote_is_an_error() -> None:
    with pytest.raises(quantiser.DisagreementError, match="1 scale votes from 2 workers"):
        quantiser.agreed_exponent(quantiser.scale_lanes(127, 5), 2, 5)


def test_a_vote_fits_in_the_narrowest_packets_that_a_job_may_have() -> None:
    assert VOTE_LANES <= spec.MIN_LANES
    votes = sum(quantiser.scale_lanes(at, 7, spec.MIN_LANES).astype(np.uint64) for at in range(200))
    assert quantiser.agreed_exponent(np.asarray(votes, np.uint32), 200, 7) == 199


@pytest.mark.parametrize("workers", [1, 2, 64])
def test_exponents_that_are_counted_together_have_one_scale(workers: int) -> None:
    assert {quantiser.scale_of(exponent, workers) for exponent in range(LEAST + 1)} == {SCALE_MAX}
    assert quantiser.scale_of(LEAST + 1, spec.MAX_WORKERS) < SCALE_MAX


def test_counts_of_all_workers_carry_into_no_other() -> None:
    for exponent in (0, LEAST + 1, LEAST + 3, 254):
        votes = spec.MAX_WORKERS * quantiser.scale_lanes(exponent, 5)
        assert quantiser.agreed_exponent(votes, spec.MAX_WORKERS, 5) == max(LEAST, exponent)


def test_what_some_contributed_is_their_mean_times_the_workers() -> None:
    arrays = [np.array([1.5, -3.0, 0.0], np.float32), np.array([2.5, 1.0, 0.0], np.float32)]
    total = np.zeros(3, np.uint32)
    for array in arrays:
        lanes = np.zeros(3, ">u4")
        quantiser.encode(array, 20, 5, lanes, np.empty(3, np.float32))
        total += lanes.astype(np.uint32)
    out = np.empty(3, np.float32)
    quantiser.decode(total.astype(">u4"), 20, 5, 2, out)
    assert out.tolist() == [10.0, -5.0, 0.0]


def test_values_beyond_the_scale_are_cut_and_counted() -> None:
    values = np.array([3e38, -3e38, 1.0, 4.0], np.float32)
    lanes = np.zeros(4, ">u4")
    assert quantiser.encode_clipped(values, 27, 4, lanes) == 3
    most = spec.bias(4) - 1
    signed = [int(lane) - spec.bias(4) for lane in lanes]
    assert signed == [most, -most, 2**27, most]


def test_lengths_that_add_up_as_if_they_were_one_workers_are_told_apart() -> None:
    votes = sum(quantiser.scale_lanes(127, length) for length in (10, 5, 15))
    with pytest.raises(quantiser.DisagreementError, match="different lengths"):
        quantiser.agreed_exponent(np.asarray(votes), 3, 10)
