"""The words in which a number of the paper's and one of ours are compared, and when each holds. Pure.

A tie is no agreement: where the paper has one scheme ahead and ours are level, the claim is neither shown nor
refuted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

AGREES, SIZE, PARTLY, TIE, DIFFERS = "agrees", "same sign, other size", "in part", "tie", "differs"
WORDS = (AGREES, SIZE, PARTLY, TIE, DIFFERS)
BAND = 0.20
"""Of the paper's number: a gain that is off by no more agrees with it."""
LEVEL = 0.005
"""Of two means: what is less apart is level, whatever the seeds say."""
ERRORS = 2.0
"""Standard errors of the mean difference over the seeds: what is less apart is level."""
WEAK = 0.20
"""Of the paper's gain: what gains less shows none of it, whatever its sign."""
FLAT = 0.05
"""What changes by no more over a sweep neither falls nor grows."""


def near(ours: float, paper: float) -> bool:
    """Return whether a number is within BAND of the paper's, as a share of it."""
    return abs(ours - paper) <= BAND * abs(paper) + 1e-12


def of_gain(ours: float, paper: float, error: float = 0.0) -> str:
    """Return the word for a gain (a share, above 0 where the paper has one); `error` is its standard error, 0
    if there is one run.
    """
    if abs(ours) <= max(LEVEL, ERRORS * error):
        return TIE
    if ours < WEAK * paper:
        return DIFFERS
    return AGREES if near(ours, paper) else SIZE


def of_ratio(ours: float, paper: float) -> str:
    """Return the word for a ratio that the paper has above 1: near it, or a gain that is at least WEAK of the
    paper's.
    """
    if near(ours, paper):
        return AGREES
    if abs(ours - 1) <= LEVEL:
        return TIE
    return SIZE if ours - 1 >= WEAK * (paper - 1) and ours > 1 else DIFFERS


def of_size(ours: float, paper: float) -> str:
    """Return the word for a number of a size that the paper has: near it, or within a factor of two."""
    if near(ours, paper):
        return AGREES
    return SIZE if paper / 2 <= ours <= 2 * paper else DIFFERS


def level(these: Sequence[float], those: Sequence[float]) -> bool:
    """Return whether two schemes are level: runs of the same seeds, pair by pair."""
    apart = [this - other for this, other in zip(these, those, strict=True)]
    mean = statistics.fmean(apart)
    if abs(mean) <= LEVEL * max(abs(statistics.fmean(these)), abs(statistics.fmean(those))):
        return True
    return abs(mean) <= ERRORS * standard_error(apart)


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for one value, of which nothing is known."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Tally:
    """The count of swept values at which a claim that one scheme is ahead of others holds, at how many they
    are level, and how many there are.
    """

    ahead: int
    level: int
    of: int

    def __str__(self) -> str:
        ties = f", tied at {self.level}" if self.level else ""
        return f"at {self.ahead} of {self.of}{ties}"

    @property
    def verdict(self) -> str:
        """AGREES where it holds at every value, TIE where they are level at every one; PARTLY where it holds
        at some and is nowhere refuted, or at most.
        """
        if self.ahead == self.of:
            return AGREES
        if self.level == self.of:
            return TIE
        unrefuted = self.ahead and self.ahead + self.level == self.of
        return PARTLY if unrefuted or 2 * self.ahead > self.of else DIFFERS
