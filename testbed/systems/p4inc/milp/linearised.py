"""Appendix A of P4INC-AOI: products and extremes as rows of a program, equations (12) to (15). Knows no
scheduling.

Each function takes linear expressions and returns the column of the result. `big` is M, which must exceed
every absolute value in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.linear_programs.linear import LinearProgram


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear expression: `constant` and factors by column."""

    factors: Mapping[int, float] = field(default_factory=dict)
    constant: float = 0.0

    @classmethod
    def of(cls, column: int) -> Linear:
        return cls({column: 1.0})

    def __add__(self, other: Linear | float) -> Linear:
        if isinstance(other, Linear):
            both = {
                c: self.factors.get(c, 0.0) + other.factors.get(c, 0.0)
                for c in {**self.factors, **other.factors}
            }
            return Linear(both, self.constant + other.constant)
        return Linear(self.factors, self.constant + other)

    def __sub__(self, other: Linear | float) -> Linear:
        return self + other * -1.0 if isinstance(other, Linear) else self + -other

    def __mul__(self, factor: float) -> Linear:
        return Linear({c: factor * f for c, f in self.factors.items()}, factor * self.constant)

    def value(self, values: tuple[float, ...]) -> float:
        return self.constant + sum(f * values[c] for c, f in self.factors.items())


ZERO = Linear()


def at_least(program: LinearProgram, left: Linear, right: Linear) -> None:
    """Add left >= right."""
    difference = left - right
    program.row(difference.factors.items(), low=-difference.constant)


def equal(program: LinearProgram, left: Linear, right: Linear) -> None:
    difference = left - right
    program.row(difference.factors.items(), -difference.constant, -difference.constant)


def both(program: LinearProgram, a: Linear, b: Linear) -> Linear:
    """Add (12): a and b, both 0 or 1. The result is Boolean, so it needs no row for >= 0."""
    z = Linear.of(program.flag())
    at_least(program, a, z)
    at_least(program, b, z)
    at_least(program, z, a + b - 1)
    return z


def product(program: LinearProgram, a: Linear, b: Linear, big: float) -> Linear:
    """Add (13): a, 0 or 1, times a real b."""
    z = Linear.of(program.real(-math.inf))
    at_least(program, z, a * -big)
    at_least(program, a * big, z)
    at_least(program, z, b - (ZERO + 1 - a) * big)
    at_least(program, b + (ZERO + 1 - a) * big, z)
    return z


def maximum(program: LinearProgram, a: Linear, b: Linear, big: float) -> Linear:
    """Add (14)."""
    z, u, v = Linear.of(program.real(-math.inf)), Linear.of(program.flag()), Linear.of(program.flag())
    at_least(program, z, a)
    at_least(program, z, b)
    at_least(program, a + (ZERO + 1 - u) * big, z)
    at_least(program, b + (ZERO + 1 - v) * big, z)
    at_least(program, u + v, ZERO + 1)
    return z


def minimum(program: LinearProgram, a: Linear, b: Linear, big: float, *, printed: bool = False) -> Linear:
    """Add (15), with M subtracted where it is printed as added: with `printed`, a solution exists only if a =
    b. No equation of the model needs it.
    """
    z, u, v = Linear.of(program.real(-math.inf)), Linear.of(program.flag()), Linear.of(program.flag())
    sign = 1.0 if printed else -1.0
    at_least(program, a, z)
    at_least(program, b, z)
    at_least(program, z, a + (ZERO + 1 - u) * big * sign)
    at_least(program, z, b + (ZERO + 1 - v) * big * sign)
    at_least(program, u + v, ZERO + 1)
    return z
