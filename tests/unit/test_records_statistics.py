"""Means with their intervals, and what is called more than the noise: against SciPy's own answers, by hand,
and by how often equal set-ups are called different.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from testbed.records.statistics import Said, differences, mean, p_of

DRAWS = 400
A, B = [10.0, 10.2, 9.9, 10.1], [12.0, 12.3, 11.9, 12.2]


def test_a_mean_has_students_interval() -> None:
    average = mean(A)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(A), scale=stats.sem(A))
    assert (average.low, average.high) == (pytest.approx(low), pytest.approx(high))
    assert average.mean == pytest.approx(10.05)


def test_one_value_has_no_interval() -> None:
    average = mean([4.0])
    assert (average.mean, average.half_width, average.low, average.high) == (4.0, None, None, None)


def test_the_interval_has_the_true_mean_as_often_as_it_says() -> None:
    draws = np.random.default_rng(3)
    held = 0
    for _ in range(DRAWS):
        average = mean(list(draws.normal(5.0, 1.0, 4)))
        assert average.low is not None
        assert average.high is not None
        held += average.low <= 5.0 <= average.high
    assert stats.binomtest(held, DRAWS, 0.95).pvalue > 0.001, held


def test_two_of_many_runs_are_held_against_each_other_by_welch() -> None:
    (difference,) = differences([(A, B)])
    assert difference.p == pytest.approx(stats.ttest_ind(A, B, equal_var=False).pvalue)
    assert difference.said == Said.MORE
    assert difference.relative == pytest.approx(0.2039801)


def test_a_single_run_is_held_against_the_prediction_interval() -> None:
    spread = np.std(A, ddof=1) * math.sqrt(1 + 1 / len(A)) * stats.t.ppf(0.975, len(A) - 1)
    inside, outside = np.mean(A) + 0.99 * spread, np.mean(A) + 1.01 * spread
    for first, second in ((A, [inside]), ([inside], A)):
        assert differences([(first, second)])[0].said == Said.WITHIN
    for first, second in ((A, [outside]), ([outside], A)):
        assert differences([(first, second)])[0].said == Said.MORE


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([1.0], [9.0], Said.UNKNOWN),
        ([1.0], [1.0], Said.SAME),
        ([3.0, 3.0], [3.0, 3.0, 3.0], Said.SAME),
        ([3.0, 3.0], [4.0, 4.0], Said.MORE),
        ([3.0, 3.0], [4.0], Said.UNKNOWN),
        ([0.0, 0.0], [0.0, 1.0], Said.WITHIN),
    ],
)
def test_few_runs_and_values_that_do_not_vary(first: list[float], second: list[float], said: Said) -> None:
    assert differences([(first, second)])[0].said == said


def test_a_difference_from_nothing_has_no_share() -> None:
    (from_nothing,) = differences([([0.0, 0.0], [2.0, 3.0])])
    assert (from_nothing.absolute, from_nothing.relative) == (2.5, None)


def test_of_many_measures_each_needs_more() -> None:
    """A number that alone is called different is not any more beside nine that are equal. One that never
    varies, and is the same, is no comparison and costs nothing.
    """
    near = ([10.0, 10.4, 9.6], [10.9, 11.2, 10.6])
    assert differences([near])[0].said == Said.MORE
    equal = ([5.0, 6.0, 7.0], [5.1, 5.9, 7.0])
    assert differences([near, *[equal] * 9])[0].said == Said.WITHIN
    constant = ([5.0, 5.0, 5.0], [5.0, 5.0, 5.0])
    assert differences([near, *[constant] * 9])[0].said == Said.MORE


def test_p_values_are_adjusted_for_numbers_that_depend_on_each_other() -> None:
    pairs = [(A, B), (A, [10.1, 10.3, 10.2, 10.4]), (B, [12.0, 12.4, 12.1, 12.2])]
    raw = [p_of(*pair) for pair in pairs]
    adjusted = stats.false_discovery_control(raw, method="by")
    assert [each.p for each in differences(pairs)] == pytest.approx(list(adjusted))


def test_equal_set_ups_are_rarely_called_different() -> None:
    """Eight measures that hang together, of five runs a side."""
    draws, wrong = np.random.default_rng(7), 0
    for _ in range(150):
        shared = draws.normal(size=(2, 5))
        pairs = [tuple(shared + 0.5 * draws.normal(size=(2, 5))) for _ in range(8)]
        wrong += any(each.said == Said.MORE for each in differences([(list(a), list(b)) for a, b in pairs]))
    assert wrong <= 0.05 * 150, wrong


def test_a_difference_of_several_deviations_is_seen() -> None:
    draws, seen = np.random.default_rng(9), 0
    for _ in range(50):
        pairs = [(list(draws.normal(0, 1, 5)), list(draws.normal(5.0 * at, 1, 5))) for at in (0, 0, 1)]
        seen += differences(pairs)[2].said == Said.MORE
    assert seen > 45


def test_nearly_equal_values_give_no_warning() -> None:
    assert p_of([1.0, 1.0 + 1e-16, 1.0 + 3e-16], [1.0 + 2e-16, 1.0, 1.0]) is not None
