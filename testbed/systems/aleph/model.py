"""ALEPH's model of a job's workers and of their clustering (section 4.1). Pure.

Workers are numbers from 0. Rates are in any one unit, and a time is for a gradient vector of one such unit:
with rates in Mb/s, a vector of x megabits takes x times as many seconds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.errors import RequestError

ROUNDING = 1e-9
"""Tolerance by which a quotient of two rates may fall short of the whole number it stands for."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Links that all traffic between two sides crosses, with their joint rate each way: the circuits between
    two units, or the link of a pod's rack. `side` has the workers on one side, `other` those on the other.
    `servers` and `other_servers` are the shares of each vector that parameter servers on the respective sides
    take.
    """

    rate: float
    side: frozenset[int]
    other: frozenset[int]
    servers: float = 0.0
    other_servers: float = 0.0

    def load(self, head: Sequence[int]) -> float:
        """Return the vectors that cross the cut each way: for a member and its head on different sides, the
        member's vector one way and the result back; for a contributor, its share for servers on the other
        side, and the result of that.
        """
        load = 0.0
        for worker, leader in enumerate(head):
            if worker == leader:
                load += self.other_servers if worker in self.side else 0.0
                load += self.servers if worker in self.other else 0.0
            elif (worker in self.side and leader in self.other) or (
                worker in self.other and leader in self.side
            ):
                load += 1.0
        return load


@dataclass(frozen=True, slots=True)
class Instance:
    """The workers of a job, to be clustered. `rates`: of each worker's link, each way (B_w; infinity:
    unlimited). `capacities`: how many workers each can aggregate besides itself, as a head (g_w).
    `neighbours`: the workers that each can head or be headed by, itself excluded; None: any. `servers`: the
    parameter servers' rates. `server_capacity`: how many contributors each server takes; None: any number.
    `unbound_capacities`: the capacities without their limit by rates; None: the same. `cuts`: links between
    the workers' units and racks that limit the traffic; with cuts, every worker can head every other.

    A worker of capacity 0 sends to the servers itself, or to a head. RequestError for contradictory values.
    """

    rates: tuple[float, ...]
    capacities: tuple[int, ...]
    servers: tuple[float, ...]
    neighbours: tuple[frozenset[int], ...] | None = None
    server_capacity: int | None = None
    unbound_capacities: tuple[int, ...] | None = None
    cuts: tuple[Cut, ...] = ()

    def __post_init__(self) -> None:
        if not self.rates or not self.servers:
            raise RequestError("a clustering needs at least one worker and one parameter server")
        for named, rates in (("worker", self.rates), ("parameter server", self.servers)):
            for number, rate in enumerate(rates):
                if not rate > 0:
                    raise RequestError(f"{named} {number}: a rate of {rate:g}; a rate above 0 is accepted")
        if len(self.capacities) != len(self.rates):
            raise RequestError(f"{len(self.capacities)} capacities of {len(self.rates)} workers")
        for number, capacity in enumerate(self.capacities):
            if capacity < 0:
                raise RequestError(f"worker {number}: a capacity of {capacity}; 0 or more is accepted")
        if self.cuts and self.neighbours is not None:
            raise RequestError("an instance has neighbours or cuts, not both")
        for number, cut in enumerate(self.cuts):
            if not cut.rate > 0:
                raise RequestError(f"cut {number}: a rate of {cut.rate:g}; a rate above 0 is accepted")
        if self.neighbours is not None:
            self._check_neighbours(self.neighbours)

    def _check_neighbours(self, neighbours: tuple[frozenset[int], ...]) -> None:
        if len(neighbours) != len(self.rates):
            raise RequestError(f"the neighbours of {len(neighbours)} of {len(self.rates)} workers")
        for worker, others in enumerate(neighbours):
            for other in others:
                if other == worker or not 0 <= other < len(neighbours) or worker not in neighbours[other]:
                    raise RequestError(
                        f"worker {worker}: a neighbour {other}; another worker that has it as a neighbour, "
                        f"too, is accepted"
                    )

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.rates)

    @property
    def server_rate(self) -> float:
        """The sum of all parameter servers' rates; each takes its share (`shares`)."""
        return math.fsum(self.servers)

    @property
    def least_time(self) -> float:
        """A lower bound of the time of every clustering: the slowest worker sends its own vector."""
        return 1 / min(self.rates)

    @property
    def contributors(self) -> int:
        """The most contributors (heads, and workers without one) that the servers take."""
        return self.size if self.server_capacity is None else self.server_capacity

    def unbound(self) -> Instance:
        """Return the instance in which a head may take longer than the slowest worker. Where all workers are
        equal and the servers slower, the paper's capacities let nobody head anybody.
        """
        unbound = self.unbound_capacities
        return self if unbound is None else replace(self, capacities=unbound)

    def adjacent(self, worker: int, other: int) -> bool:
        """Return whether either of two workers can head the other."""
        return worker != other and (self.neighbours is None or other in self.neighbours[worker])


def capacities(rates: Sequence[float]) -> tuple[int, ...]:
    """Compute each worker's aggregation capacity from its rate (g_w, the first line of (1), without C_w / c):
    the number of vectors that its rate carries, besides its own, in the time of the slowest worker.
    """
    slowest, others = min(rates), len(rates) - 1
    return tuple(
        others if math.isinf(rate) else min(others, math.floor(rate / slowest - 1 + ROUNDING))
        for rate in rates
    )


def shares(servers: Sequence[float]) -> tuple[float, ...]:
    """Compute each parameter server's share of every vector (section 7): its part of the total rate.
    Unlimited servers, if any, share everything equally.
    """
    if any(math.isinf(rate) for rate in servers):
        unlimited = sum(math.isinf(rate) for rate in servers)
        return tuple(1 / unlimited if math.isinf(rate) else 0.0 for rate in servers)
    total = math.fsum(servers)
    return tuple(rate / total for rate in servers)


@dataclass(frozen=True)
class Clustering:
    """The head of each worker. A worker that is its own head is a contributor: it sends the parameter servers
    the sum of its cluster, or its own gradients if nobody has it as a head. RequestError if a worker's head
    has another head.
    """

    head: tuple[int, ...]

    def __post_init__(self) -> None:
        for worker, head in enumerate(self.head):
            if not 0 <= head < len(self.head) or self.head[head] != head:
                raise RequestError(f"worker {worker}: a head {head}, which is no head")

    @functools.cached_property
    def contributors(self) -> tuple[int, ...]:
        """The contributors to the parameter servers (D): heads, and workers without one."""
        return tuple(worker for worker, head in enumerate(self.head) if worker == head)

    @functools.cached_property
    def clusters(self) -> dict[int, tuple[int, ...]]:
        """The members by head, the head itself excluded. Only workers with members are heads here."""
        members: dict[int, list[int]] = {}
        for worker, head in enumerate(self.head):
            if worker != head:
                members.setdefault(head, []).append(worker)
        return {head: tuple(members[head]) for head in sorted(members)}

    @property
    def heads(self) -> tuple[int, ...]:
        """The workers that aggregate for others."""
        return tuple(self.clusters)

    @functools.cached_property
    def direct(self) -> tuple[int, ...]:
        """The workers that send to the parameter servers and aggregate for nobody."""
        return tuple(worker for worker in self.contributors if worker not in self.clusters)

    def check(self, instance: Instance) -> None:
        """Raise RequestError unless the clustering is valid for the instance: heads within their capacities
        and adjacent to their members, and no more contributors than the servers take.
        """
        if len(self.head) != instance.size:
            raise RequestError(f"a clustering of {len(self.head)} workers; there are {instance.size}")
        for head, members in self.clusters.items():
            if len(members) > instance.capacities[head]:
                raise RequestError(
                    f"worker {head}: heads {len(members)}; its capacity is {instance.capacities[head]}"
                )
            for member in members:
                if not instance.adjacent(head, member):
                    raise RequestError(f"worker {member}: its head {head} is no neighbour of it")
        if len(self.contributors) > instance.contributors:
            raise RequestError(
                f"{len(self.contributors)} heads and workers without one; the parameter server takes "
                f"{instance.contributors}"
            )

    def loads(self) -> tuple[int, ...]:
        """Count the vectors that each worker's link carries each way: for a head, its members' vectors in and
        its sum out, and the result in and its copies out.
        """
        members = Counter(head for worker, head in enumerate(self.head) if worker != head)
        return tuple(1 + members[worker] for worker in range(len(self.head)))

    def time(self, instance: Instance) -> float:
        """Compute the communication time: the largest load over rate of any worker, cut, or the parameter
        servers. Capacities do not count.
        """
        own = max(load / rate for load, rate in zip(self.loads(), instance.rates, strict=True))
        cuts = max((cut.load(self.head) / cut.rate for cut in instance.cuts), default=0.0)
        return max(own, cuts, len(self.contributors) / instance.server_rate)

    def server_time(self, instance: Instance) -> float:
        """Compute the part of the time that the parameter servers need."""
        return len(self.contributors) / instance.server_rate


def clustering_of(size: int, clusters: Mapping[int, Sequence[int]]) -> Clustering:
    """Make a clustering from the members by head; all other workers have no head."""
    head = list(range(size))
    for leader, member in itertools.chain.from_iterable(
        ((leader, member) for member in members) for leader, members in clusters.items()
    ):
        head[member] = leader
    return Clustering(tuple(head))


def too_few(instance: Instance, least: int) -> RequestError:
    """Make the error for an instance whose servers take fewer contributors than `least`, the fewest that
    heads of these capacities leave.
    """
    return RequestError(
        f"no clustering of {instance.size} workers: heads of these capacities leave {least} contributors at "
        f"least, and the parameter server takes {instance.contributors}"
    )
