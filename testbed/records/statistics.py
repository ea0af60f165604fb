"""Compute means of repeated runs with their confidence intervals, and whether two differ by more than the
noise. Pure.

Uses Student's t interval, and Welch's test, which does not assume equal variances. If one side has a single
run, tests whether that is outside the other's prediction interval. If several measures are compared at once,
the p-values are adjusted by the procedure of Benjamini and Yekutieli, which holds for any dependence between
the measures.
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


class Said(enum.StrEnum):
    """The answer to: does the difference exceed the noise?"""

    SAME = "the same"  # all values of both are equal
    MORE = "more than the noise"
    WITHIN = "not more than the noise"
    UNKNOWN = "noise not known"  # too few runs
    UNJUDGED = "not judged"  # the machine, rather than the set-up, may have determined the values


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of some runs' values, and half of its 95 % confidence interval; None for one run."""

    values: tuple[float, ...]
    mean: float
    half_width: float | None

    @property
    def low(self) -> float | None:
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        return None if self.half_width is None else self.mean + self.half_width


def mean(values: Sequence[float]) -> Mean:
    """Compute the mean of at least one value."""
    count = len(values)
    centre = math.fsum(values) / count
    if count < 2:
        return Mean(tuple(values), centre, None)
    spread = float(np.std(values, ddof=1)) / math.sqrt(count)
    return Mean(tuple(values), centre, spread * float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)))


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a second mean from a first: absolute, relative (None if the first is 0), the adjusted
    p-value, and the answer.
    """

    absolute: float
    relative: float | None
    p: float | None
    said: Said


def p_of(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Compute the probability of a difference at least this large if both sides had one distribution. None if
    there are too few runs: no side has two, or one has one and the other does not vary.
    """
    both_repeated = len(first) > 1 and len(second) > 1
    if np.ptp(first) == 0 and np.ptp(second) == 0:  # nothing varies, so no test applies
        return (1.0 if first[0] == second[0] else 0.0) if both_repeated else None
    if both_repeated:
        with warnings.catch_warnings():  # SciPy warns of nearly equal values
            warnings.simplefilter("ignore", RuntimeWarning)
            return float(stats.ttest_ind(first, second, equal_var=False).pvalue)
    many, (single,) = (first, second) if len(first) > 1 else (second, first)
    spread = float(np.std(many, ddof=1)) * math.sqrt(1 + 1 / len(many))
    away = abs(single - float(np.mean(many))) / spread
    return float(2 * stats.t.sf(away, len(many) - 1))


def differences(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[Difference]:
    """Compute each measure's difference of its second values from its first, with all compared at once.
    Measures with equal values in all runs count as no comparison.
    """
    raw = [None if is_same(*pair) else p_of(*pair) for pair in pairs]
    judged = [p for p in raw if p is not None]
    adjusted = iter(stats.false_discovery_control(judged, method="by") if judged else ())
    return [
        _difference(first, second, None if p is None else float(next(adjusted)))
        for (first, second), p in zip(pairs, raw, strict=True)
    ]


def is_same(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether all values of both are equal."""
    return len({*first, *second}) == 1


def _difference(first: Sequence[float], second: Sequence[float], p: float | None) -> Difference:
    before, after = float(np.mean(first)), float(np.mean(second))
    answer = Said.UNKNOWN
    if is_same(first, second):
        answer = Said.SAME
    elif p is not None:
        answer = Said.MORE if p < 1 - CONFIDENCE else Said.WITHIN
    return Difference(after - before, (after - before) / abs(before) if before else None, p, answer)
