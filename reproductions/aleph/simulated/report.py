"""The report of figures 13 to 16. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reproductions.reports import FigureReport
from reproductions.sweep import Spread
from testbed.systems.aleph.simulator import Iteration, Scene


@dataclass(frozen=True, slots=True)
class IterationMeans:
    """The spread over the seeds of each number of an `Iteration`, for a scheme at a swept value."""

    topology: str
    value: float
    scheme: str
    workers_gbps: Spread
    servers_gbps: Spread
    all_gbps: Spread
    time_s: Spread
    contributors: Spread
    overhead_gb: Spread
    both_ways_gb: Spread
    hops: Spread

    def spread(self, metric: str) -> Spread:
        """Return the spread of the metric with this name."""
        spread: Spread = getattr(self, metric)
        return spread


@dataclass(frozen=True, slots=True)
class IterationReport(FigureReport):
    """The report of one of figures 13 to 16. `options` is the scene that was asked for; its field `sweep` is
    swept.
    """

    version: int
    about: str
    sweep: str
    options: Scene
    seeds: Sequence[int]
    means: Sequence[IterationMeans]
    runs: Sequence[Iteration]
