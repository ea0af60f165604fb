"""Draw jobs' arrivals and the placement of their workers: P4INC-AOI, section VII-C. Pure.

The paper says "we randomly place workers in each simulation but try to place as many workers of each job in
one unit as possible", and does not say when servers become free again. If they did when a policy finishes
their job, placements would differ between the compared policies. So a job holds its servers from its arrival
for a nominal time, given in advance.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.scheduling.draws import poisson_s, stream
from testbed.scheduling.model import Job, UnitIndex

MEGABYTES_A_GIGABIT = 125.0


def first_slot(time_s: float, slot_s: float) -> int:
    """Return the first slot that begins at or after a time: a decision at its beginning knows the job."""
    return math.ceil(time_s / slot_s - 1e-9)


class Servers:
    """The servers of all units; each worker takes one. When too few are free, those due to become free
    soonest are reused.
    """

    def __init__(self, units: int, servers: int, random: np.random.Generator) -> None:
        self._free = np.full(units, servers, dtype=np.int64)
        self._random = random
        self._held: list[tuple[float, int, tuple[tuple[UnitIndex, int], ...]]] = []
        self._number = 0

    def place(self, workers: int, now_s: float, until_s: float) -> tuple[tuple[UnitIndex, int], ...]:
        """Place workers and return (unit, workers there), units ascending: in a random unit with room for
        all, else in as few units as possible.

        There may be at most as many workers as servers in total.
        """
        while self._held and (self._held[0][0] <= now_s or int(self._free.sum()) < workers):
            for unit, count in heapq.heappop(self._held)[2]:
                self._free[unit] += count
        placed: dict[UnitIndex, int] = {}
        left = workers
        while left:
            most = int(self._free.max())
            room = np.flatnonzero(self._free >= min(left, most))
            unit = UnitIndex(int(room[self._random.integers(len(room))]))
            placed[unit] = min(left, most)
            self._free[unit] -= placed[unit]
            left -= placed[unit]
        where = tuple(sorted(placed.items()))
        heapq.heappush(self._held, (until_s, self._number, where))
        self._number += 1
        return where


@dataclass(frozen=True, slots=True)
class Demand:
    """A job before placement: `megabytes` per worker; `update_s` is a_j; `held_s` is how long it nominally
    holds its servers.
    """

    workers: int
    megabytes: float
    update_s: float
    held_s: float


def dml_demands(
    count: int,
    seed: int,
    *,
    workers: Sequence[int],
    megabytes: tuple[float, float],
    iterations: float,
    update_gbytes_per_s: float,
    nominal_gbps: float,
) -> list[Demand]:
    """Draw training jobs: their number of workers from a list, the size of a push step uniformly from a
    range.

    A job has `iterations` steps (definition 1). Each moves the size once per worker and, without INC, is
    followed by an update at `update_gbytes_per_s` of the model's bytes. It holds its servers for the time
    that its volume takes at `nominal_gbps`.
    """
    numbers = stream(seed, "workers").integers(0, len(workers), count)
    sizes = stream(seed, "sizes").uniform(*megabytes, count)
    demands = []
    for number, size in zip(numbers, sizes, strict=True):
        moved = float(size) * iterations
        update_s = moved / 1000 / update_gbytes_per_s
        demands.append(
            Demand(int(workers[number]), moved, update_s, moved / MEGABYTES_A_GIGABIT / nominal_gbps)
        )
    return demands


def jobs_of(
    demands: Sequence[Demand], seed: int, *, jobs_per_s: float, slot_s: float, units: int, servers: int
) -> tuple[Job, ...]:
    """Turn demands into jobs 1, 2, ... in their order: draw arrivals and placements, and a random unit for
    each PS's server.

    A PS may be in any unit: it runs on processors, not on the workers' accelerators (section VII-B has racks
    for each).
    """
    place = Servers(units, servers, stream(seed, "placement"))
    anywhere = stream(seed, "servers").random(len(demands))
    times = poisson_s(len(demands), jobs_per_s, stream(seed, "arrivals"))
    jobs = []
    for number, (demand, time_s) in enumerate(zip(demands, times, strict=True)):
        jobs.append(
            Job(
                id=number + 1,
                workers=place.place(demand.workers, time_s, time_s + demand.held_s),
                ps=UnitIndex(int(anywhere[number] * units)),
                gigabits=demand.megabytes / MEGABYTES_A_GIGABIT,
                update_s=demand.update_s,
                arrival=first_slot(time_s, slot_s),
            )
        )
    return tuple(jobs)
