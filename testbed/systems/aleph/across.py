"""Find the least communication time where links between units or racks are narrow, by small integer programs
solved with HiGHS. Deterministic. Pure.

Workers on the same sides of all cuts are a group. Within a given time, a group's best contributors are its
workers with the most room, and which member has which head changes no load. So a program needs one variable
for each possible head, and one for each ordered pair of groups: the members of one with heads in the other.
The least time is found by bisection; a solution's own time becomes the new upper limit.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.errors import TestbedError
from testbed.linear_programs.linear import LinearProgram
from testbed.systems.aleph.model import ROUNDING, Clustering, Instance, clustering_of, too_few
from testbed.systems.aleph.time_budget import filled, room_at, taken_at

PRECISION = 1e-7
TIME_LIMIT_S = 20.0
_HALF = 0.5


def cluster(instance: Instance) -> Clustering:
    """Find the clustering of the least time, with the fewest contributors among those. RequestError if the
    servers take fewer contributors than any clustering leaves.
    """
    low = instance.least_time
    alone = Clustering(tuple(range(instance.size)))
    slowest = max(
        2 * instance.size / min([*(cut.rate for cut in instance.cuts), *instance.rates]),
        instance.size / instance.server_rate,
    )
    best = alone if instance.size <= instance.contributors else _within(instance, slowest)
    if best is None:
        raise too_few(instance, instance.contributors + 1)
    high = best.time(instance)
    answered = _within(instance, low)
    if answered is not None:
        return answered
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        answered = _within(instance, middle)
        if answered is None:
            low = middle
        else:
            best, high = answered, min(middle, answered.time(instance))
    return _within(instance, best.time(instance)) or best


def groups(instance: Instance) -> list[tuple[int, ...]]:
    """Group the workers that are on the same sides of all cuts."""
    by_sides: dict[tuple[int, ...], list[int]] = {}
    for worker in range(instance.size):
        sides = tuple((worker in cut.side) - (worker in cut.other) for cut in instance.cuts)
        by_sides.setdefault(sides, []).append(worker)
    return [tuple(workers) for _, workers in sorted(by_sides.items())]


def _within(instance: Instance, time: float) -> Clustering | None:
    """Solve for a clustering with the fewest contributors within `time`; None if there is none."""
    known, room = groups(instance), room_at(instance, time)
    ordered = [sorted(group, key=lambda worker: (-room[worker], -instance.rates[worker])) for group in known]
    linear = LinearProgram()
    heads = [[linear.flag(cost=1.0) for _ in group] for group in ordered]
    pairs = list(itertools.product(range(len(known)), range(len(known))))
    members = {(of, under): linear.whole(0.0, float(len(known[of]))) for of, under in pairs}
    for at, group in enumerate(ordered):
        for first, second in itertools.pairwise(heads[at]):
            linear.row([(first, 1.0), (second, -1.0)], low=0.0)
        everybody = [(column, 1.0) for column in heads[at]]
        everybody += [(members[at, under], 1.0) for under in range(len(known))]
        linear.row(everybody, low=float(len(group)), high=float(len(group)))
        held = [(members[of, at], 1.0) for of in range(len(known))]
        held += [(column, -float(room[worker])) for column, worker in zip(heads[at], group, strict=True)]
        linear.row(held, high=0.0)
    linear.row([(column, 1.0) for columns in heads for column in columns], high=taken_at(instance, time))
    for cut in instance.cuts:
        within = [_side(group, cut.side, cut.other) for group in known]
        terms = [
            (column, part)
            for at, columns in enumerate(heads)
            for part in [{1: cut.other_servers, -1: cut.servers, 0: 0.0}[within[at]]]
            for column in columns
            if part
        ]
        terms += [(members[pair], 1.0) for pair in pairs if within[pair[0]] * within[pair[1]] < 0]
        if terms:
            linear.row(terms, high=time * cut.rate * (1 + ROUNDING))
    answer = linear.solve(TIME_LIMIT_S)
    if answer.values is None:
        return None
    values = answer.values
    leaders = [
        [worker for worker, column in zip(group, heads[at], strict=True) if values[column] > _HALF]
        for at, group in enumerate(ordered)
    ]
    counts = {pair: round(values[column]) for pair, column in members.items()}
    clustering = _dealt(instance, ordered, leaders, counts, room)
    if clustering.time(instance) > time * (1 + 1e-6):
        raise TestbedError(f"a clustering takes {clustering.time(instance):g}, and was to take {time:g}")
    return clustering


def _side(group: Sequence[int], side: frozenset[int], other: frozenset[int]) -> int:
    return (group[0] in side) - (group[0] in other)


def _dealt(
    instance: Instance,
    ordered: Sequence[Sequence[int]],
    leaders: Sequence[Sequence[int]],
    counts: dict[tuple[int, int], int],
    room: NDArray[np.int64],
) -> Clustering:
    """Assign members to heads so that `counts[(group, heads' group)]` members of each group are under heads
    of each.
    """
    rates = np.array(instance.rates)
    left = [sorted(set(group) - set(heads)) for group, heads in zip(ordered, leaders, strict=True)]
    clusters: dict[int, Sequence[int]] = {}
    for under, heads in enumerate(leaders):
        theirs: list[int] = []
        for of, waiting in enumerate(left):
            theirs += waiting[: counts[of, under]]
            del waiting[: counts[of, under]]
        clusters |= filled(heads, theirs, room, rates)
    return clustering_of(instance.size, clusters)
