"""The expected iteration time beside stragglers: its borders, and a Monte Carlo of the pattern's draws."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.systems.trio.expected import Ages, aged, replay, waiting
from testbed.wire.stragglers import SlowWorkers

TEN_OF_210_MS = Ages(10 / 210, 30 / 210)
SEEDS, ITERATIONS = 31, 40


def drawn(p: float, workers: int, ages: Ages | None) -> float:
    return statistics.fmean(
        replay(SlowWorkers(p, seed), workers, ITERATIONS, ages) for seed in range(1, SEEDS + 1)
    )


def test_without_stragglers_nobody_waits() -> None:
    assert waiting(0.0, 6) == pytest.approx(1.0, abs=1e-9)
    assert aged(0.0, 6, 100, TEN_OF_210_MS) == pytest.approx(1.0, abs=1e-9)
    assert replay(SlowWorkers(0.0), 6, 10, None) == replay(SlowWorkers(0.0), 6, 10, TEN_OF_210_MS) == 1.0


def test_one_worker_takes_its_own_delays_whoever_waits() -> None:
    assert waiting(0.16, 1) == pytest.approx(1 + 3 * 0.16 * 1.25, rel=1e-3)
    assert aged(0.16, 1, 40, TEN_OF_210_MS) >= waiting(0.16, 1) * 0.999


def test_where_all_are_always_slow_the_longest_of_three_delays_each_counts() -> None:
    # of many workers, one has nearly the longest three
    assert 6.0 < waiting(1.0, 10_000) < 7.0


@pytest.mark.parametrize("p", [0.02, 0.08, 0.16])
@pytest.mark.parametrize("workers", [3, 6, 13])
def test_the_model_is_that_of_the_draws(p: float, workers: int) -> None:
    # draws do not change, so neither does what is compared
    assert waiting(p, workers) == pytest.approx(drawn(p, workers, None), rel=0.04)
    for ages in (TEN_OF_210_MS, Ages(10 / 575, 20 / 575)):
        assert aged(p, workers, ITERATIONS, ages) == pytest.approx(drawn(p, workers, ages), rel=0.10)


@given(st.floats(0, 1), st.integers(1, 20), st.floats(0.01, 0.5))
def test_ageing_out_never_takes_longer_than_waiting(p: float, workers: int, timeout: float) -> None:
    ages = Ages(timeout, timeout)
    pattern = SlowWorkers(p)
    assert replay(pattern, workers, 5, ages) <= replay(pattern, workers, 5, None) + 1e-9


def test_more_workers_or_a_larger_probability_take_longer() -> None:
    times = [waiting(p, workers) for workers in (2, 3, 6) for p in (0.01, 0.1, 0.5)]
    assert times[:3] == sorted(times[:3])
    assert times[::3] == sorted(times[::3])
    assert all(math.isfinite(each) for each in times)
