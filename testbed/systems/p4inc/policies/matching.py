"""Select the waiting jobs that get INC: P4INC-AOI, algorithm 2, lines 1 to 14. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from testbed.scheduling.free_capacity import Loads
from testbed.scheduling.model import Job, Limits, Load, Progress, UnitIndex

_LAST = 1e-6
"""The weight of a job's volume relative to that of inter-unit traffic: jobs that save no traffic get the
remaining places.
"""


def saved(without: Load, its: Load) -> int:
    """Count how many streams fewer of a job cross the AOI with INC (`its`) than `without`."""
    return sum(count for _, count in without.links) - sum(count for _, count in its.links)


def assign(
    limits: Limits, waiting: Sequence[Progress], places: Sequence[int], loads: Loads
) -> dict[int, UnitIndex]:
    """Return the unit of each job that gets INC, given the `places` left by unit: in each round a matching of
    units and jobs that saves the most inter-unit traffic; as many rounds as a unit has places.
    """
    left = list(places)
    edges: list[tuple[UnitIndex, Job, float]] = []
    for progress in waiting:
        job = progress.job
        units = [unit for unit in job.inc_units(limits) if left[unit] > 0]
        if not units:
            continue
        without = loads.of(limits, job, None)
        for unit in units:
            its = loads.of(limits, job, unit)
            weight = (saved(without, its) + _LAST) * progress.remaining_gigabits
            if its.limit_gbps > 0 and weight > 0:
                edges.append((unit, job, weight))
    chosen: dict[int, UnitIndex] = {}
    # an edge whose weight is negligible beside the others may stay unmatched
    while edges and (matched := _matched(edges)):
        for unit, job in matched:
            chosen[job.id] = unit
            left[unit] -= 1
        edges = [edge for edge in edges if left[edge[0]] > 0 and edge[1].id not in chosen]
    return chosen


def _matched(edges: Sequence[tuple[UnitIndex, Job, float]]) -> list[tuple[UnitIndex, Job]]:
    """Find a matching of the largest weight, not necessarily of the most edges.

    SciPy's matching uses every row, so each unit has an extra column of weight 0 beside those of the jobs.
    """
    row_of = {unit: row for row, unit in enumerate(dict.fromkeys(unit for unit, _, _ in edges))}
    column_of = {job_id: column for column, job_id in enumerate(dict.fromkeys(job.id for _, job, _ in edges))}
    units, jobs = len(row_of), len(column_of)
    rows = np.fromiter((row_of[unit] for unit, _, _ in edges), np.int32, len(edges))
    columns = np.fromiter((column_of[job.id] for _, job, _ in edges), np.int32, len(edges))
    weights = np.fromiter((weight for _, _, weight in edges), np.float64, len(edges))
    own = np.arange(units, dtype=np.int32)
    entries = np.concatenate([weights, np.zeros(units)])
    # SciPy treats an entry of 0 as no edge; adding the same value to all entries does not change the best
    # matching, since every row is matched
    entries += max(1.0, float(weights.max()))
    graph = csr_array(
        (entries, (np.concatenate([rows, own]), np.concatenate([columns, jobs + own]))),
        shape=(units, jobs + units),
    )
    matched = zip(*min_weight_full_bipartite_matching(graph, maximize=True), strict=True)
    unit_at, job_at = list(row_of), {column_of[job.id]: job for _, job, _ in edges}
    return [(unit_at[row], job_at[column]) for row, column in matched if column < jobs]
