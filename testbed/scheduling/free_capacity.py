"""Compute the capacity that running jobs use, and the capacity that is left: equations (3), (5) and (6) of
P4INC-AOI, section IV. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from testbed.scheduling.model import Job, Limits, Load, Pair, Progress, UnitIndex, load

SLACK = 1e-9
"""A share of a capacity: sums of rates in another order differ by less."""


class Loads:
    """A cache of `model.load` by job and mode, for one set of limits."""

    def __init__(self) -> None:
        self._limits: Limits | None = None
        self._known: dict[tuple[int, UnitIndex | None], tuple[Job, Load]] = {}

    def of(self, limits: Limits, job: Job, inc: UnitIndex | None) -> Load:
        """Return a job's load in a mode, from the cache if the job and the limits are the same objects."""
        if limits is not self._limits:
            self._limits = limits
            self._known.clear()
        key = (job.id, inc)
        known = self._known.get(key)
        if known is None or known[0] is not job:
            known = (job, load(limits, job, inc))
            self._known[key] = known
        return known[1]


class Room:
    """The capacity left of the limits. Circuits count only as far as they are needed: an idle one can be
    cleared, so it uses no port here.

    With `fixed` circuits, links have these and no others.
    """

    def __init__(self, limits: Limits, fixed: Mapping[Pair, int] | None = None) -> None:
        self.limits = limits
        self.fixed = fixed
        self.inc_left = list(limits.inc)
        self.switch_used = [0.0] * len(limits.ports)
        self.ports_used = [0] * len(limits.ports)
        self.link_used: dict[Pair, float] = {}
        self.circuits: dict[Pair, int] = {}
        self._switch_most = [gbps * (1 + SLACK) for gbps in limits.switch_gbps]

    @classmethod
    def beside(
        cls, limits: Limits, running: Iterable[tuple[Progress, Load]], fixed: Mapping[Pair, int] | None = None
    ) -> Room:
        """Compute the capacity that is left beside the jobs that run, each at its rate."""
        room = cls(limits, fixed)
        for progress, job_load in running:
            room.take(job_load, progress.rate_gbps)
            if job_load.inc is not None:
                room.inc_left[job_load.inc] -= 1
        return room

    def limit(self, job_load: Load) -> float:
        """Return the largest rate that a job could have here, alone."""
        if self.fixed is None or not job_load.links:
            return job_load.limit_gbps
        circuit_gbps = self.limits.circuit_gbps
        return min(
            job_load.limit_gbps,
            *(self.fixed.get(pair, 0) * circuit_gbps(pair) / count for pair, count in job_load.links),
        )

    def fits(self, job_load: Load, gbps: float) -> bool:
        """Return whether each worker of a job could have `gbps` more; INC places are not considered."""
        used, most = self.switch_used, self._switch_most
        for unit, count in job_load.switches:
            if used[unit] + count * gbps > most[unit]:
                return False
        grown: dict[int, int] = {}
        for pair, count in job_load.links:
            more = self._circuits(pair, self.link_used.get(pair, 0.0) + count * gbps) - self.circuits.get(
                pair, 0
            )
            if more <= 0:
                continue
            if self.fixed is not None:
                if self.circuits.get(pair, 0) + more > self.fixed.get(pair, 0):
                    return False
                continue
            for unit in pair:
                grown[unit] = grown.get(unit, 0) + more
                if self.ports_used[unit] + grown[unit] > self.limits.ports[unit]:
                    return False
        return True

    def take(self, job_load: Load, gbps: float) -> None:
        """Subtract `gbps` more for each worker of a job, without checking that it fits."""
        for unit, count in job_load.switches:
            self.switch_used[unit] += count * gbps
        for pair, count in job_load.links:
            used = self.link_used.get(pair, 0.0) + count * gbps
            self.link_used[pair] = used
            needed, had = self._circuits(pair, used), self.circuits.get(pair, 0)
            if needed > had:
                self.circuits[pair] = needed
                self.ports_used[pair[0]] += needed - had
                self.ports_used[pair[1]] += needed - had

    def largest(self, job_load: Load, ceiling_gbps: float) -> float:
        """Return the largest rate up to `ceiling_gbps` that still fits."""
        rate = ceiling_gbps
        for unit, count in job_load.switches:
            rate = min(rate, (self.limits.switch_gbps[unit] - self.switch_used[unit]) / count)
        if rate <= 0 or not job_load.links:
            return max(rate, 0.0)
        given = {pair: self.circuits.get(pair, 0) for pair, _ in job_load.links}
        free_ports = {
            unit: self.limits.ports[unit] - self.ports_used[unit] for pair in given for unit in pair
        }

        def bears(pair: Pair, count: int) -> float:
            return (given[pair] * self.limits.circuit_gbps(pair) - self.link_used.get(pair, 0.0)) / count

        # add one circuit at a time to the link that limits: every larger rate needs it there
        while True:
            least, pair = min((bears(pair, count), pair) for pair, count in job_load.links)
            if least >= rate:
                return rate
            if self.fixed is not None:
                if given[pair] >= self.fixed.get(pair, 0):
                    return max(least, 0.0)
            elif min(free_ports[pair[0]], free_ports[pair[1]]) <= 0:  # below: ports in use are down
                return max(least, 0.0)
            given[pair] += 1
            free_ports[pair[0]] -= 1
            free_ports[pair[1]] -= 1

    def _circuits(self, pair: Pair, gbps: float) -> int:
        return math.ceil(gbps / self.limits.circuit_gbps(pair) - SLACK)
