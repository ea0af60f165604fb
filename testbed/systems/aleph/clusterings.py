"""The clustering methods, by name. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from testbed.errors import RequestError
from testbed.systems.aleph import baselines, fastest, mwcha, optimum
from testbed.systems.aleph.model import Clustering, Instance

RING = "ring"


@dataclass(frozen=True, slots=True)
class Way:
    """A clustering method; `cluster` takes an instance and the seed of its random draws, which most methods
    ignore.
    """

    title: str
    cluster: Callable[[Instance, int], Clustering]


def _mwcha(variant: str, instance: Instance, seed: int) -> Clustering:
    return mwcha.cluster(instance, random.Random(seed), variant)


WAYS: dict[str, Way] = {
    "fastest": Way("within the paper's capacities, ours", lambda instance, seed: fastest.cluster(instance)),
    "unbound": Way(
        "the same, heads as slow as it takes", lambda instance, seed: fastest.cluster(instance.unbound())
    ),
    "mwcha": Way("algorithm 1, repaired", partial(_mwcha, mwcha.REPAIRED)),
    "mwcha-printed": Way("algorithm 1 as printed", partial(_mwcha, mwcha.PRINTED)),
    "balanced": Way("clusters of one size, as in HiPS", lambda instance, seed: baselines.balanced(instance)),
    "greedy": Way("a greedy dominating set", lambda instance, seed: baselines.greedy(instance)),
    "none": Way("a parameter server alone", lambda instance, seed: baselines.none(instance)),
}
OPTIMA: dict[str, Way] = {
    "least-time": Way(
        "the least time, by HiGHS", lambda instance, seed: optimum.least_time(instance).clustering
    ),
    "fewest": Way(
        "the fewest contributors, by HiGHS", lambda instance, seed: optimum.fewest(instance).clustering
    ),
}


def cluster(name: str, instance: Instance, seed: int = 1) -> Clustering:
    """Cluster an instance by the method of this name. RequestError lists the methods."""
    ways = WAYS | OPTIMA
    if name not in ways:
        raise RequestError(f"clusters {name!r}: accepted are {', '.join(ways)}")
    return ways[name].cluster(instance, seed)
