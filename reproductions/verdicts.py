"""The words that compare a number of ours with the paper's, and the conditions for each. Pure.

A tie is no agreement: where the paper has one scheme ahead and ours are level, our runs neither support nor
refute the claim.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

AGREES, SIZE, PARTLY, TIE, DIFFERS = "agrees", "same sign, other size", "in part", "tie", "differs"
WORDS = (AGREES, SIZE, PARTLY, TIE, DIFFERS)
BAND = 0.20
"""Share of the paper's number: a gain that deviates by no more agrees."""
LEVEL = 0.005
"""Share of the larger mean: two schemes that differ by no more are level, whatever the seeds say."""
ERRORS = 2.0
"""Two schemes are level if they differ by at most this many standard errors of the mean difference over
seeds.
"""
WEAK = 0.20
"""Share of the paper's gain: a smaller gain does not support the claim, even if it has the right sign."""
FLAT = 0.05
"""Share: a metric that changes by no more over a sweep neither falls nor grows."""


def near(ours: float, paper: float) -> bool:
    """Return whether a number differs from the paper's by at most BAND of the paper's."""
    return abs(ours - paper) <= BAND * abs(paper) + 1e-12


def of_gain(ours: float, paper: float, error: float = 0.0) -> str:
    """Return the verdict word for a gain (a share, above 0 where the paper has one). `error` is its standard
    error, 0 if there is one run.
    """
    if abs(ours) <= max(LEVEL, ERRORS * error):
        return TIE
    if ours < WEAK * paper:
        return DIFFERS
    return AGREES if near(ours, paper) else SIZE


def of_ratio(ours: float, paper: float) -> str:
    """Return the verdict word for a ratio that the paper has above 1: AGREES within BAND, TIE within LEVEL of
    1, SIZE for a gain that is at least WEAK of the paper's.
    """
    if near(ours, paper):
        return AGREES
    if abs(ours - 1) <= LEVEL:
        return TIE
    return SIZE if ours - 1 >= WEAK * (paper - 1) and ours > 1 else DIFFERS


def of_size(ours: float, paper: float) -> str:
    """Return the verdict word for an absolute number: AGREES within BAND of the paper's, SIZE within a factor
    of two.
    """
    if near(ours, paper):
        return AGREES
    return SIZE if paper / 2 <= ours <= 2 * paper else DIFFERS


def level(these: Sequence[float], those: Sequence[float]) -> bool:
    """Return whether two schemes are level; `these` and `those` are runs of the same seeds, compared in
    pairs.
    """
    apart = [this - other for this, other in zip(these, those, strict=True)]
    mean = statistics.fmean(apart)
    if abs(mean) <= LEVEL * max(abs(statistics.fmean(these)), abs(statistics.fmean(those))):
        return True
    return abs(mean) <= ERRORS * standard_error(apart)


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for a single value, which has no spread."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of `of` swept values have one scheme ahead of others, and how many have it level with them."""

    ahead: int
    level: int
    of: int

    def __str__(self) -> str:
        ties = f", tied at {self.level}" if self.level else ""
        return f"at {self.ahead} of {self.of}{ties}"

    @property
    def verdict(self) -> str:
        """AGREES where the scheme is ahead at every value; TIE where it is level at every one; PARTLY where
        it is ahead at some and behind at none, or ahead at most; else DIFFERS.
        """
        if self.ahead == self.of:
            return AGREES
        if self.level == self.of:
            return TIE
        unrefuted = self.ahead and self.ahead + self.level == self.of
        return PARTLY if unrefuted or 2 * self.ahead > self.of else DIFFERS
