"""The workers of a job as ALEPH's control plane sees them, and how they are clustered (section 4.1). Pure.

Workers are numbers from 0. Rates are in any one unit, and a time is for one gradient vector of that unit: of
rates in Mb/s, a vector of x megabits takes x times as many seconds.
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
"""What a quotient of two rates may be below a whole number that it stands for."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Links that all traffic between two sides crosses, and what they carry each way together: circuits
    between two units, or the link of a pod's rack. `side` has the workers on one side, `other` those on the
    other; `servers` and `other_servers` are the parts of each vector for the parameter servers there.
    """

    rate: float
    side: frozenset[int]
    other: frozenset[int]
    servers: float = 0.0
    other_servers: float = 0.0

    def load(self, head: Sequence[int]) -> float:
        """Return how many vectors cross it each way: a member's and the result that its head sends it, a
        contributor's part for the servers on the other side and that of the result.
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
    """The workers of a job: `rates` has what the link of each carries each way (B_w, infinity where nothing
    limits it), `capacities` how many workers it sums beside its own as a head (g_w), and `neighbours` whom it
    can head, or be headed by, itself aside; None: anybody. `servers` has the parameter servers' rates, and
    `server_capacity` how many contributors each of them takes; None: any number. `unbound_capacities`
    are those without the part that rates have in `capacities`; None: the same. `cuts` are the links
    between workers' units and racks that carry less than any traffic; where there are some, everybody can
    head anybody.

    A worker of capacity 0 sends to the servers itself, or to a head. RequestError for what cannot be.
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
        """Return how many workers there are."""
        return len(self.rates)

    @property
    def server_rate(self) -> float:
        """Return what all parameter servers carry together; each takes its share (`shares`)."""
        return math.fsum(self.servers)

    @property
    def least_time(self) -> float:
        """Return the time below which no clustering is: that of the slowest worker's own vector."""
        return 1 / min(self.rates)

    @property
    def contributors(self) -> int:
        """Return how many heads, and workers without one, the servers take at most."""
        return self.size if self.server_capacity is None else self.server_capacity

    def unbound(self) -> Instance:
        """Return the instance in which heads may take longer than the slowest worker: where all workers are
        equal, and the servers slower than all of them, the paper's capacities let nobody head anybody.
        """
        unbound = self.unbound_capacities
        return self if unbound is None else replace(self, capacities=unbound)

    def adjacent(self, worker: int, other: int) -> bool:
        """Return whether one of two workers can head the other."""
        return worker != other and (self.neighbours is None or other in self.neighbours[worker])


def capacities(rates: Sequence[float]) -> tuple[int, ...]:
    """Return the aggregation capacity of each worker by its rate (g_w, the first line of (1), without C_w /
    c): as many vectors as its rate carries beside its own at the rate of the slowest.
    """
    slowest, others = min(rates), len(rates) - 1
    return tuple(
        others if math.isinf(rate) else min(others, math.floor(rate / slowest - 1 + ROUNDING))
        for rate in rates
    )


def shares(servers: Sequence[float]) -> tuple[float, ...]:
    """Return the part of every vector that goes to each parameter server (section 7): as its rate is to that
    of all. Where some are unlimited, these take it all.
    """
    if any(math.isinf(rate) for rate in servers):
        unlimited = sum(math.isinf(rate) for rate in servers)
        return tuple(1 / unlimited if math.isinf(rate) else 0.0 for rate in servers)
    total = math.fsum(servers)
    return tuple(rate / total for rate in servers)


@dataclass(frozen=True)
class Clustering:
    """The head of each worker. A worker that is its own head contributes to the parameter servers: with the
    sum of its cluster, if others have it as their head, or with its own gradients alone. RequestError where a
    worker's head has another head.
    """

    head: tuple[int, ...]

    def __post_init__(self) -> None:
        for worker, head in enumerate(self.head):
            if not 0 <= head < len(self.head) or self.head[head] != head:
                raise RequestError(f"worker {worker}: a head {head}, which is no head")

    @functools.cached_property
    def contributors(self) -> tuple[int, ...]:
        """Return those that contribute to the parameter servers (D): heads, and workers without one."""
        return tuple(worker for worker, head in enumerate(self.head) if worker == head)

    @functools.cached_property
    def clusters(self) -> dict[int, tuple[int, ...]]:
        """Return by head its members, itself aside. Who has none is no head here."""
        members: dict[int, list[int]] = {}
        for worker, head in enumerate(self.head):
            if worker != head:
                members.setdefault(head, []).append(worker)
        return {head: tuple(members[head]) for head in sorted(members)}

    @property
    def heads(self) -> tuple[int, ...]:
        """Return the workers that sum for others."""
        return tuple(self.clusters)

    @functools.cached_property
    def direct(self) -> tuple[int, ...]:
        """Return the workers that send to the parameter servers, and sum for nobody."""
        return tuple(worker for worker in self.contributors if worker not in self.clusters)

    def check(self, instance: Instance) -> None:
        """Raise RequestError unless it is one of the instance: heads within their capacities, beside their
        members, and no more contributors than the servers take.
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
        """Return how many vectors the link of each worker carries each way: of a head its members' and the
        sum one way, the result and its copies the other.
        """
        members = Counter(head for worker, head in enumerate(self.head) if worker != head)
        return tuple(1 + members[worker] for worker in range(len(self.head)))

    def time(self, instance: Instance) -> float:
        """Return the communication time: the largest of what a link carries over its rate, of workers,
        parameter servers and cuts alike. Capacities do not count.
        """
        own = max(load / rate for load, rate in zip(self.loads(), instance.rates, strict=True))
        cuts = max((cut.load(self.head) / cut.rate for cut in instance.cuts), default=0.0)
        return max(own, cuts, len(self.contributors) / instance.server_rate)

    def server_time(self, instance: Instance) -> float:
        """Return what of the time the parameter servers take."""
        return len(self.contributors) / instance.server_rate


def clustering_of(size: int, clusters: Mapping[int, Sequence[int]]) -> Clustering:
    """Return the clustering with these members by head, in which all others have no head."""
    head = list(range(size))
    for leader, member in itertools.chain.from_iterable(
        ((leader, member) for member in members) for leader, members in clusters.items()
    ):
        head[member] = leader
    return Clustering(tuple(head))


def too_few(instance: Instance, least: int) -> RequestError:
    """Return the error for an instance whose servers take fewer contributors than the least that there are:
    `least`, with heads of these capacities.
    """
    return RequestError(
        f"no clustering of {instance.size} workers: heads of these capacities leave {least} contributors at "
        f"least, and the parameter server takes {instance.contributors}"
    )
