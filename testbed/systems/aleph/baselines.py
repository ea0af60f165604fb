"""Baselines for ALEPH's clusterings: clusters of equal size as in HiPS, a greedy dominating set, a parameter
server alone, and a ring. Pure.
"""

from __future__ import annotations

import itertools
import math

from testbed.systems.aleph import domination
from testbed.systems.aleph.model import Clustering, Instance, clustering_of


def balanced(instance: Instance, clusters: int | None = None) -> Clustering:
    """Form `clusters` clusters of consecutive workers, of sizes that differ by one at most, each headed by
    its first worker: as HiPS does, whatever the rates and capacities. By default the square root of the
    number of workers, rounded up.
    """
    count = min(instance.size, clusters or math.isqrt(instance.size - 1) + 1)
    starts = [instance.size * number // count for number in range(count + 1)]
    return clustering_of(
        instance.size,
        {first: range(first + 1, after) for first, after in itertools.pairwise(starts) if after > first},
    )


def greedy(instance: Instance) -> Clustering:
    """Cluster by a greedy dominating set within capacities: the worker that gains the most members becomes
    the next head. Rates do not count.
    """
    return clustering_of(instance.size, domination.greedy(instance))


def none(instance: Instance) -> Clustering:
    """Form no clusters: every worker pushes to the parameter servers."""
    return Clustering(tuple(range(instance.size)))


def ring_time(instance: Instance) -> float:
    """Compute the communication time of a ring all-reduce: each worker sends and receives 2 (n - 1) / n
    vectors, and the slowest link sets the pace; a cut's rate is divided by how often the ring crosses it. No
    parameter server takes part.
    """
    ways = [(worker, (worker + 1) % instance.size) for worker in range(instance.size)]
    slowest = instance.least_time
    for cut in instance.cuts:
        out = sum(sender in cut.side and receiver in cut.other for sender, receiver in ways)
        back = sum(sender in cut.other and receiver in cut.side for sender, receiver in ways)
        slowest = max(slowest, max(out, back) / cut.rate)
    return 2 * (instance.size - 1) / instance.size * slowest
