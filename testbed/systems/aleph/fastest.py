"""Our clustering: the least communication time, and then the fewest contributors, under the same capacities
as the paper's. Deterministic. Pure.

Within a time T, a worker of rate B can head floor(T B) - 1 others, if its capacity allows. As T grows, the
fewest possible contributors only decrease, while the parameter servers can take T times their rate. So
bisection finds the least T. Where every worker can head every other, or does so within groups (racks), the
workers with the most room are the fewest heads that cover all, and the result is optimal. Elsewhere this is
capacitated domination, which is NP-hard: `domination` searches. Where links between units or racks are
narrow, `across` solves an integer program over groups of workers behind the same links.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.systems.aleph import across, domination
from testbed.systems.aleph.domination import Domination
from testbed.systems.aleph.model import Clustering, Instance, clustering_of, too_few
from testbed.systems.aleph.time_budget import filled, room_at, taken_at

STEPS = 60  # of the bisection: each halves the interval


def cluster(instance: Instance) -> Clustering:
    """Find the clustering of the least time. RequestError if the servers take fewer contributors than any
    clustering leaves.
    """
    if instance.cuts:
        return across.cluster(instance)
    groups = domination.groups(instance)
    whole = [group for group in groups if group.complete]
    rest = [group for group in groups if not group.complete]
    flat = _Flat(instance, [group.workers for group in whole])
    searches = [Domination(instance, group.workers) for group in rest]

    def contributors(time: float, most: float) -> int:
        """Return the number of contributors that the searches find, stopping once there are at most `most`; a
        lower bound instead, if that already exceeds `most`.
        """
        room = room_at(instance, time)
        flat_ones = flat.contributors(room)
        least = [search.least(room) for search in searches]
        counts = list(least)

        def allowed(at: int, known: Sequence[int]) -> float:
            return most - (flat_ones + sum(known) - known[at])

        for at, search in enumerate(searches):  # against the lower bounds of the other groups
            if least[at] <= allowed(at, least):
                counts[at] = search.contributors(room, allowed(at, least))
            if counts[at] > allowed(at, least):
                return flat_ones + sum(counts)
        for at, search in enumerate(searches):  # against the results of the other groups
            if least[at] <= allowed(at, counts):
                counts[at] = search.contributors(room, allowed(at, counts))
        return flat_ones + sum(counts)

    low = instance.least_time
    high = max(
        low,
        instance.size / instance.server_rate,
        max((1 + most) / rate for most, rate in zip(instance.capacities, instance.rates, strict=True)),
    )
    if (least := contributors(high, instance.contributors)) > instance.contributors:
        raise too_few(instance, least)

    def enough(time: float) -> bool:
        taken = taken_at(instance, time)
        return contributors(time, taken) <= taken

    if enough(low):
        high = low
    for _ in range(STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if enough(middle):
            high = middle
        else:
            low = middle
    room = room_at(instance, high)
    clusters = flat.clusters(room)
    for search in searches:
        clusters |= search.clusters(room)
    return clustering_of(instance.size, clusters)


class _Flat:
    """The groups in which every worker can head every other, concatenated in arrays."""

    def __init__(self, instance: Instance, groups: Sequence[tuple[int, ...]]) -> None:
        self._rates = np.array(instance.rates)
        self._workers = np.array([worker for group in groups for worker in group], np.int64)
        sizes = [len(group) for group in groups]
        self._group = np.repeat(np.arange(len(groups)), sizes)
        self._sizes = np.array(sizes, np.int64)
        self._before = np.concatenate(([0], np.cumsum(self._sizes)[:-1])).astype(np.int64)

    def contributors(self, room: NDArray[np.int64]) -> int:
        """Count the contributors: of each group, as many workers with the most room as cover all of it."""
        return len(self._taken(room))

    def clusters(self, room: NDArray[np.int64]) -> dict[int, Sequence[int]]:
        """Return the members by head; each member goes to the head that is then the least busy."""
        by_group: dict[int, list[int]] = {}
        taken = self._taken(room)
        for at in taken:
            by_group.setdefault(int(self._group[at]), []).append(int(self._workers[at]))
        heads = {int(self._workers[at]) for at in taken}
        members: dict[int, list[int]] = {}
        for worker, group in zip(self._workers.tolist(), self._group.tolist(), strict=True):
            if worker not in heads:
                members.setdefault(group, []).append(worker)
        clusters: dict[int, Sequence[int]] = {}
        for group, leaders in by_group.items():
            clusters |= filled(leaders, members.get(group, ()), room, self._rates)
        return clusters

    def _taken(self, room: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the array indices of the contributors: most room first, and of equal room the
        faster first.
        """
        if not len(self._workers):
            return self._workers
        held = 1 + room[self._workers]
        order = np.lexsort((self._workers, -self._rates[self._workers], -held, self._group))
        sums = np.cumsum(held[order])
        group = self._group[order]
        base = sums[self._before] - held[order][self._before]
        covered_before = sums - held[order] - base[group]
        taken: NDArray[np.int64] = order[covered_before < self._sizes[group]]
        return taken
