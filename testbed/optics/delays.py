"""Durations as frozen data, and draws from their distributions. Pure: the source of randomness is an
argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

DISTRIBUTIONS = ("constant", "uniform", "normal", "lognormal", "values")
MOST_DELAY_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Delay:
    """A distribution of durations, in milliseconds.

    `constant`: always `a`. `uniform`: from `a` to `b`. `normal` and `lognormal`: mean `a` and standard
    deviation `b`; negative draws of `normal` become 0. `values`: each of the listed values is equally likely.
    """

    kind: str
    a: float = 0.0
    b: float = 0.0
    values: tuple[float, ...] = ()

    @property
    def mean_ms(self) -> float:
        if self.kind == "values":
            return sum(self.values) / len(self.values)
        return (self.a + self.b) / 2 if self.kind == "uniform" else self.a

    def draw_ns(self, random: Random) -> int:
        """Draw a duration in nanoseconds, one minute at most."""
        if self.kind == "uniform":
            value_ms = random.uniform(self.a, self.b)
        elif self.kind == "normal":
            value_ms = max(0.0, random.gauss(self.a, self.b))
        elif self.kind == "lognormal":
            variance = math.log1p(
                (self.b / self.a) ** 2
            )  # of the logarithms, for that deviation of the values
            value_ms = random.lognormvariate(math.log(self.a) - variance / 2, math.sqrt(variance))
        elif self.kind == "values":
            value_ms = random.choice(self.values)
        else:
            value_ms = self.a
        return round(min(value_ms, MOST_DELAY_MS) * 1e6)
