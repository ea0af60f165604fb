"""Random numbers by purpose, and the times at which jobs come. Pure.

Each purpose has a stream of its own, all made from one seed, so that a sweep changes what it sweeps and
nothing else: 1,400 jobs begin with the same 800, and another number of units leaves arrival times and sizes
as they are.
"""

from __future__ import annotations

import numpy as np

PURPOSES = ("arrivals", "workers", "sizes", "placement", "servers", "trace")


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers for one of PURPOSES, independent of the others'."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSES.index(purpose),)))


def poisson_s(count: int, jobs_per_s: float, random: np.random.Generator) -> list[float]:
    """The times in seconds of the first `count` arrivals of a Poisson process that begins at 0."""
    return [float(time) for time in np.cumsum(random.exponential(1 / jobs_per_s, count))]
