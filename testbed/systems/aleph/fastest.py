"""Our clustering: the least communication time, and of those the fewest contributors, under the same
capacities as the paper's. Deterministic. Pure.

At a time T, a worker of rate B can head floor(T B) - 1 others, if its capacity lets it; how few contributors
are left then only falls as T grows, while the parameter servers take T times their rate. So the least T is
found by bisection. Where everybody can head anybody, or does within groups (racks), the workers with the most
room are the fewest heads that cover all, and the answer is an optimum. Elsewhere that is capacitated
domination, which is NP-hard: `domination` searches.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.systems.aleph import domination
from testbed.systems.aleph.domination import Domination
from testbed.systems.aleph.model import ROUNDING, Clustering, Instance, clustering_of, too_few

STEPS = 60  # of the bisection: each halves what is left


def cluster(instance: Instance) -> Clustering:
    """Return the clustering. RequestError where the servers take fewer contributors than any leaves."""
    groups = domination.groups(instance)
    whole = [group for group in groups if group.complete]
    rest = [group for group in groups if not group.complete]
    flat = _Flat(instance, [group.workers for group in whole])
    searches = {group.workers: Domination(instance, group.workers) for group in rest}

    def contributors(time: float) -> int:
        room = room_at(instance, time)
        return flat.contributors(room) + sum(search.contributors(room) for search in searches.values())

    low = instance.least_time
    high = max(
        low,
        instance.size / instance.server_rate,
        max((1 + most) / rate for most, rate in zip(instance.capacities, instance.rates, strict=True)),
    )
    if (least := contributors(high)) > instance.contributors:
        raise too_few(instance, least)

    def enough(time: float) -> bool:
        return contributors(time) <= taken_at(instance, time)

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
    for search in searches.values():
        clusters |= search.clusters(room)
    return clustering_of(instance.size, clusters)


def taken_at(instance: Instance, time: float) -> float:
    """Return how many contributors the parameter servers take within a time."""
    rate = instance.server_rate
    carried = math.inf if math.isinf(rate) else time * rate * (1 + ROUNDING)
    return min(instance.contributors, carried)


def room_at(instance: Instance, time: float) -> NDArray[np.int64]:
    """Return how many others each worker can head within a time."""
    rates, most = np.array(instance.rates), np.array(instance.capacities, np.int64)
    carried = np.full(instance.size, instance.size + 1.0)
    limited = np.isfinite(rates)
    carried[limited] = np.minimum(time * rates[limited] * (1 + ROUNDING), instance.size + 1.0)
    room = carried.astype(np.int64) - 1
    return np.clip(np.minimum(room, most), 0, None)


class _Flat:
    """The groups in which everybody can head anybody, one after the other in arrays."""

    def __init__(self, instance: Instance, groups: Sequence[tuple[int, ...]]) -> None:
        self._rates = np.array(instance.rates)
        self._workers = np.array([worker for group in groups for worker in group], np.int64)
        sizes = [len(group) for group in groups]
        self._group = np.repeat(np.arange(len(groups)), sizes)
        self._sizes = np.array(sizes, np.int64)
        self._before = np.concatenate(([0], np.cumsum(self._sizes)[:-1])).astype(np.int64)

    def contributors(self, room: NDArray[np.int64]) -> int:
        """Return how many are left: by group, so many of those with the most room as hold all of it."""
        return len(self._taken(room))

    def clusters(self, room: NDArray[np.int64]) -> dict[int, Sequence[int]]:
        """Return by head its members: each further one goes to the head that it makes the least busy."""
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
        """Return the places in the arrays of those that contribute; of equal room the faster first."""
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


def filled(
    heads: Sequence[int], members: Iterable[int], room: NDArray[np.int64], rates: NDArray[np.float64]
) -> dict[int, Sequence[int]]:
    """Return the members by head, where each head can head each of them: how many each has keeps all as idle
    as can be, and neighbours in number stay together.
    """
    sizes = dict.fromkeys(sorted(heads), 0)
    others = list(members)
    waiting = [(2 / float(rates[head]), 2, head) for head in heads if room[head] > 0]
    heapq.heapify(waiting)
    for _ in others:
        _, vectors, head = heapq.heappop(waiting)
        sizes[head] += 1
        if sizes[head] < room[head]:
            heapq.heappush(waiting, ((vectors + 1) / float(rates[head]), vectors + 1, head))
    dealt = iter(others)
    return {head: tuple(itertools.islice(dealt, size)) for head, size in sizes.items() if size}
