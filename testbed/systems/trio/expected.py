"""Compute the expected duration of an iteration where workers are slowed by the Slow Worker Pattern (figure
13): if all wait for the slowest, and if blocks age out. Pure.

Times are relative to a typical iteration, which is computing plus the communication that is not hidden behind
it. A worker's delay in an iteration is the sum of its delays at three points (testbed/wire/stragglers.py). If
all wait, an iteration takes the typical time plus the longest delay of all workers, and all begin the next
together. If blocks age out, a result is ready some timeouts after a worker requests it, unless all others do
so before. A worker that requests it later gets it at once, and starts the next iteration as late as it was.

`waiting` is exact up to its grid. `aged` treats the workers' lateness as independent, with a distribution
that depends on the expected time of the first worker (mean field). `replay` uses the draws of one seed: over
many seeds it is the Monte Carlo simulation that checks both (tests/unit/test_trio_expected.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from testbed.wire.stragglers import LEAST, MOST, POINTS, SlowWorkers

STEP = 0.02  # of a typical iteration: the grid of delays
_LONGEST = len(POINTS) * MOST
_SPREAD = 5.0  # typical iterations, times the root of their number: no larger lateness occurs

Grid = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ages:
    """The times of ageing out, in typical iterations. A block waits for `timeout` after its last
    contribution; an iteration that lacks a worker takes `wait` longer: the timeouts that no computing hides.
    """

    timeout: float
    wait: float


def waiting(p: float, workers: int) -> float:
    """Compute the expected duration of an iteration if all workers wait for the slowest."""
    some_slower = 1 - np.cumsum(_delays(p)) ** workers
    return 1 + float(some_slower[:-1].sum()) * STEP


def aged(p: float, workers: int, iterations: int, ages: Ages) -> float:
    """Compute the expected duration of one of the first `iterations` if blocks age out, as the mean over the
    workers.
    """
    delays = _delays(p)
    late = np.zeros(len(delays) + math.ceil(_SPREAD * math.sqrt(iterations) / STEP))
    late[0] = 1.0  # distribution of a worker's lateness after the last result
    within = round(ages.timeout / STEP)
    results = 0.0
    for _ in range(iterations):
        asks = np.convolve(late, delays)[: len(late)]
        asked = np.minimum(np.cumsum(asks), 1.0)
        first = float(((1 - asked) ** workers).sum()) * STEP
        all_in_time = float(asked[min(within, len(asked) - 1)]) ** workers
        result = first + (1 - all_in_time) * ages.wait
        late = _after(asks, result / STEP)
        results += 1 + result
    mean_late = float(late @ np.arange(len(late))) * STEP
    return (results + mean_late) / iterations


def replay(pattern: SlowWorkers, workers: int, iterations: int, ages: Ages | None) -> float:
    """Compute the duration of an iteration with the pattern's own draws, as the mean over the workers; `ages`
    is None if all wait.
    """
    done = [0.0] * workers
    for iteration in range(iterations):
        asks = [
            done[rank]
            + 1
            + math.fsum(pattern.factor(rank, workers, iteration, point) for point in range(len(POINTS)))
            for rank in range(workers)
        ]
        result = max(asks) if ages is None else _result(sorted(asks), ages)
        done = [max(asked, result) for asked in asks]
    return math.fsum(done) / workers / iterations


def _result(asks: Sequence[float], ages: Ages) -> float:
    """Return when the result is ready, given the sorted times at which workers request it."""
    for earlier, later in pairwise(asks):
        if later > earlier + ages.timeout:
            return earlier + ages.wait
    return asks[-1]


def _delays(p: float) -> Grid:
    """Return the distribution of a worker's delay in an iteration, on the grid. The two end points of a
    uniform delay count half, so that the mean is exact.
    """
    at_point = np.zeros(round(MOST / STEP) + 1)
    at_point[round(LEAST / STEP) :] = p * STEP / (MOST - LEAST)
    at_point[[round(LEAST / STEP), -1]] /= 2
    at_point[0] += 1 - p
    total = np.ones(1)
    for _ in POINTS:
        total = np.convolve(total, at_point)
    return total


def _after(asks: Grid, result: float) -> Grid:
    """Return the distribution of lateness after a result, `result` steps later: a worker that requested
    before it has none.
    """
    whole, part = divmod(result, 1.0)
    return (1 - part) * _moved(asks, int(whole)) + part * _moved(asks, int(whole) + 1)


def _moved(asks: Grid, steps: int) -> Grid:
    late = np.zeros(len(asks))
    late[: len(asks) - steps] = asks[steps:]
    late[0] += asks[:steps].sum()
    return late
