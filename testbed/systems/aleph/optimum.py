"""Optimal clusterings by integer programs solved with HiGHS: the fewest aggregators, as in (1), and the least
communication time. Pure.

The third line of (1) is read as an intersection: V_i and V_j have no worker in common. As printed, an empty
union for every two aggregators, it would allow only one aggregator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.errors import TestbedError
from testbed.linear_programs.linear import LinearProgram
from testbed.systems.aleph import across, domination
from testbed.systems.aleph.domination import Neighbourhood
from testbed.systems.aleph.model import ROUNDING, Clustering, Instance, clustering_of, too_few
from testbed.systems.aleph.time_budget import room_at, taken_at

TIME_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Optimum:
    """A clustering, its number of contributors or its time, and the proven lower bound of that value; equal
    if `proven`.
    """

    clustering: Clustering
    value: float
    bound: float

    @property
    def proven(self) -> bool:
        return self.bound >= self.value * (1 - 1e-9)


def fewest(instance: Instance, time_limit_s: float = TIME_LIMIT_S) -> Optimum:
    """Find a clustering with the fewest contributors (min |D|): aggregators, and workers without a head."""
    best = _fewest(instance, instance.capacities, time_limit_s)
    if best.bound > instance.contributors:
        raise too_few(instance, round(best.bound))
    if best.value > instance.contributors:
        raise TestbedError(f"no clustering within {time_limit_s:g} s; a longer time may find one")
    return best


def least_time(instance: Instance, time_limit_s: float = TIME_LIMIT_S) -> Optimum:
    """Find a clustering of the least communication time, by bisection over all possible times. For each time,
    solve for the fewest contributors that heads leave within it; `time_limit_s` applies to each solution.
    """
    if instance.cuts:
        clustering = across.cluster(instance)
        return Optimum(clustering, clustering.time(instance), clustering.time(instance))
    best = fewest(instance, time_limit_s).clustering
    times = [time for time in _times(instance) if time < best.time(instance) * (1 - ROUNDING)]
    low, high, bound = 0, len(times), instance.least_time
    while low < high:
        middle = (low + high) // 2
        room = room_at(instance, times[middle])
        least = _fewest(instance, tuple(room.tolist()), time_limit_s)
        taken = taken_at(instance, times[middle])
        if least.value <= taken:
            best, high = min(best, least.clustering, key=lambda each: each.time(instance)), middle
            continue
        low = middle + 1
        if least.bound > taken:
            bound = max(bound, times[low] if low < len(times) else best.time(instance))
    value = best.time(instance)
    return Optimum(best, value, min(bound, value))


def _times(instance: Instance) -> list[float]:
    """Return all possible communication times, sorted: of every node with every load."""
    loads = {
        (1 + members) / rate
        for rate, most in zip(instance.rates, instance.capacities, strict=True)
        for members in range(most + 1)
    }
    loads |= {count / instance.server_rate for count in range(1, instance.size + 1)}
    return sorted(load for load in loads if load >= instance.least_time * (1 - ROUNDING))


def _fewest(instance: Instance, room: tuple[int, ...], time_limit_s: float) -> Optimum:
    """Solve for the fewest contributors that heads with this room leave, whatever the servers take."""
    linear = LinearProgram()
    own = [linear.flag(cost=1.0) for _ in instance.rates]
    groups = domination.groups(instance)
    for group in groups:
        if group.complete:
            _counts(linear, group, own, room)
        else:
            _assignments(linear, instance, group, own, room)
    answer = linear.solve(time_limit_s)
    if answer.values is None:
        return Optimum(Clustering(tuple(range(instance.size))), float(instance.size), 1.0)
    clusters: dict[int, tuple[int, ...]] = {}
    for group in groups:
        heads = [worker for worker in group.workers if answer.values[own[worker]] > 0.5 and room[worker]]
        clusters |= domination.assigned(instance, group, room, heads)
    clustering = clustering_of(instance.size, clusters)
    value = len(clustering.contributors)
    return Optimum(clustering, value, min(value, math.ceil(answer.bound - 1e-6)))


def _counts(linear: LinearProgram, group: Neighbourhood, own: list[int], room: tuple[int, ...]) -> None:
    """Add a member count for each head; where every worker can head every other, only counts matter."""
    held = [(own[worker], 1.0) for worker in group.workers]
    for worker in group.workers:
        if room[worker]:
            members = linear.real(0.0, float(room[worker]))
            linear.row([(members, 1.0), (own[worker], -float(room[worker]))], high=0.0)
            held.append((members, 1.0))
    linear.row(held, low=float(len(group.workers)), high=float(len(group.workers)))


def _assignments(
    linear: LinearProgram, instance: Instance, group: Neighbourhood, own: list[int], room: tuple[int, ...]
) -> None:
    """Add lines 2 to 4 of (1): each worker is in one set, sets are within capacities, and only aggregators
    have members. For given heads the members are a matching, whose linear program has integer solutions.
    """
    ways: dict[int, list[int]] = {worker: [own[worker]] for worker in group.workers}
    for head in group.workers:
        near = [worker for worker in group.workers if instance.adjacent(head, worker)] if room[head] else []
        members = []
        for worker in near:
            member = linear.real(0.0, 1.0)
            linear.row([(member, 1.0), (own[head], -1.0)], high=0.0)
            ways[worker].append(member)
            members.append(member)
        if members:
            linear.row([*((m, 1.0) for m in members), (own[head], -float(room[head]))], high=0.0)
    for columns in ways.values():
        linear.row([(column, 1.0) for column in columns], low=1.0, high=1.0)
