"""Durations as frozen data, and what is drawn from them. Pure: the source of randomness is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

DISTRIBUTIONS = ("constant", "uniform", "normal", "lognormal", "values")
MOST_DELAY_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Delay:
    """A duration in milliseconds.

    `constant` at `a`; `uniform` from `a` to `b`; `normal` and `lognormal` with mean `a` and standard
    deviation `b`, the first cut off below 0; `values`: each of these as likely as any other.
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
        """Draw a duration, of a minute at most."""
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
