"""The baselines of ALEPH's clusterings: clusters of one size as in HiPS, a greedy dominating set, a parameter
server alone, and a ring. Pure.
"""

from __future__ import annotations

import itertools
import math

from testbed.systems.aleph import domination
from testbed.systems.aleph.model import Clustering, Instance, clustering_of


def balanced(instance: Instance, clusters: int | None = None) -> Clustering:
    """Return so many clusters of one size, or sizes that differ by one, of workers in a row, the first of
    each its head: as HiPS has them, whatever rates and capacities are. Without a number the square root of
    the workers' is taken.
    """
    count = min(instance.size, clusters or math.isqrt(instance.size - 1) + 1)
    starts = [instance.size * number // count for number in range(count + 1)]
    return clustering_of(
        instance.size,
        {first: range(first + 1, after) for first, after in itertools.pairwise(starts) if after > first},
    )


def greedy(instance: Instance) -> Clustering:
    """Return the clusters of a greedy dominating set within capacities: the worker that gets the most members
    heads next. Capacities count, rates do not.
    """
    return clustering_of(instance.size, domination.greedy(instance))


def none(instance: Instance) -> Clustering:
    """Return no clusters: all push to the parameter servers."""
    return Clustering(tuple(range(instance.size)))


def ring_time(instance: Instance) -> float:
    """Return the communication time of a ring: each worker sends, and gets, its vector all but twice, and the
    slowest link sets the pace, cuts by how often the ring crosses them. No parameter server takes part.
    """
    ways = [(worker, (worker + 1) % instance.size) for worker in range(instance.size)]
    slowest = instance.least_time
    for cut in instance.cuts:
        out = sum(sender in cut.side and receiver in cut.other for sender, receiver in ways)
        back = sum(sender in cut.other and receiver in cut.side for sender, receiver in ways)
        slowest = max(slowest, max(out, back) / cut.rate)
    return 2 * (instance.size - 1) / instance.size * slowest
