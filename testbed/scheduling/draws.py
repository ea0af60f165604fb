"""Draw random numbers by purpose, and the arrival times of jobs. Pure.

Each purpose has a stream of its own, all derived from one seed, so that a sweep changes only its own
parameter: 1,400 jobs begin with the same 800, and another number of units leaves arrival times and sizes
unchanged.
"""

from __future__ import annotations

import numpy as np

PURPOSES = ("arrivals", "workers", "sizes", "placement", "servers", "trace")


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the random numbers for one of PURPOSES, independent of the others'."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSES.index(purpose),)))


def poisson_s(count: int, jobs_per_s: float, random: np.random.Generator) -> list[float]:
    """Draw the times in seconds of the first `count` arrivals of a Poisson process that begins at 0."""
    return [float(time) for time in np.cumsum(random.exponential(1 / jobs_per_s, count))]
