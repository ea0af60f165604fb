"""The runs of a sweep by scheme and value: means over the seeds, and comparisons of schemes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from reproductions.verdicts import Tally, level


class Run(Protocol):
    """One run: a scheme, with a seed, at a value of the swept field; its other attributes are metrics."""

    @property
    def value(self) -> float: ...
    @property
    def scheme(self) -> str: ...
    @property
    def seed(self) -> int: ...


AnyRun = TypeVar("AnyRun", bound=Run)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, least, most and standard deviation (0 for one seed) over the seeds."""

    mean: float
    least: float
    most: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), min(values), max(values), deviation)


class Sweep(Generic[AnyRun]):
    """Runs by scheme and swept value."""

    def __init__(self, runs: Sequence[AnyRun]) -> None:
        self.runs = tuple(runs)
        self.values = tuple(sorted({run.value for run in runs}))
        self.schemes = tuple(dict.fromkeys(run.scheme for run in runs))
        self.seeds = tuple(sorted({run.seed for run in runs}))
        self._by = {(run.scheme, run.value, run.seed): run for run in runs}

    def has(self, *schemes: str) -> bool:
        return set(schemes) <= set(self.schemes)

    def run(self, scheme: str, value: float, seed: int) -> AnyRun:
        return self._by[scheme, value, seed]

    def each(self, scheme: str, value: float, metric: str) -> list[float]:
        """Return a metric's value for each seed."""
        return [float(getattr(self.run(scheme, value, seed), metric)) for seed in self.seeds]

    def spread(self, scheme: str, value: float, metric: str) -> Spread:
        return Spread.of(self.each(scheme, value, metric))

    def means(self, scheme: str, metric: str) -> tuple[float, ...]:
        """Return a metric's mean at each swept value, in ascending order of the values."""
        return tuple(self.spread(scheme, value, metric).mean for value in self.values)

    def reduction(self, metric: str, to: str, of: str) -> float:
        """Return by what share of `of` scheme `to` is lower, averaged over the swept values at which `of` is
        above 0.
        """
        pairs = zip(self.means(to, metric), self.means(of, metric), strict=True)
        shares = [1 - low / high for low, high in pairs if high > 0]
        return statistics.fmean(shares) if shares else 0.0

    def reductions(self, metric: str, to: str, of: str) -> list[float]:
        """Return `reduction` for each seed alone, averaged over the swept values."""
        shares_of_seeds = []
        for at in range(len(self.seeds)):
            pairs = [
                (self.each(to, value, metric)[at], self.each(of, value, metric)[at]) for value in self.values
            ]
            shares = [1 - low / high for low, high in pairs if high > 0]
            shares_of_seeds.append(statistics.fmean(shares) if shares else 0.0)
        return shares_of_seeds

    def ahead(self, metric: str, scheme: str, others: Sequence[str]) -> Tally:
        """Count the swept values at which a scheme has less than every other scheme, and those at which it is
        level with one and behind none; schemes are compared seed by seed.
        """
        ahead = tied = 0
        for value in self.values:
            ours = self.each(scheme, value, metric)
            theirs = [self.each(other, value, metric) for other in others]
            levels = [level(ours, other) for other in theirs]
            behind = [
                not same and statistics.fmean(ours) > statistics.fmean(other)
                for same, other in zip(levels, theirs, strict=True)
            ]
            ahead += not any(behind) and not any(levels)
            tied += not any(behind) and any(levels)
        return Tally(ahead, tied, len(self.values))
