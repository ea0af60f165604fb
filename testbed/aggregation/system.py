"""An aggregation system as the testbed knows it: how a job's workers become a forest, and what else it
needs. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.aggregation.forest import Forest
from testbed.errors import RequestError
from testbed.scheduling.model import Policy
from testbed.topology.places import Host

PolicyFactory = Callable[[int], Policy]
"""Makes a policy from the seed of its draws."""


@dataclass(frozen=True, slots=True)
class Rack:
    """A unit as a system must know it: its number, its role (gpu, cpu or optimizer) and how many hosts
    it has.
    """

    unit: int
    role: str
    hosts: int

    def members(self) -> list[Host]:
        return [(self.unit, host) for host in range(1, self.hosts + 1)]


@dataclass(frozen=True, slots=True)
class Site:
    """The testbed as a system finds it: its racks, the hosts that jobs hold, and the pairs of units that
    circuits join.
    """

    racks: tuple[Rack, ...]
    busy: frozenset[Host]
    joined: frozenset[frozenset[int]]
    kept: Host | None = None  # a server that the job has already

    def server(self, workers: Sequence[Host]) -> Host:
        """A free host for what serves these workers: the first one of a cpu unit, preferably one that needs
        few new circuits. Where no cpu unit has a free host, any unit's will do. RequestError where no host is
        free.
        """
        if self.kept is not None:
            return self.kept
        taken = {*self.busy, *workers}
        units = {unit for unit, _ in workers}
        roles = {rack.unit: rack.role for rack in self.racks}

        def cost(host: Host) -> tuple[bool, int, Host]:
            new = sum(unit != host[0] and frozenset((unit, host[0])) not in self.joined for unit in units)
            return roles[host[0]] != "cpu", new, host

        free = [host for rack in self.racks for host in rack.members() if host not in taken]
        if not free:
            raise RequestError(
                "no free host for the parameter server: place fewer workers, or wait for a job to end"
            )
        return min(free, key=cost)


@dataclass(frozen=True, slots=True)
class Layout:
    """The way that a job's gradients are summed: its system by name, its workers' hosts by rank, how these
    speak (one of testbed/contract/transports.py), the host of its server process or top place (None: it has
    none), the forest (None: nothing is summed in the network), and the pairs of units that its traffic joins.
    """

    system: str
    workers: tuple[Host, ...]
    transport: str
    server: Host | None = None
    forest: Forest | None = None
    demands: tuple[tuple[int, int], ...] = ()

    @property
    def units(self) -> list[int]:
        """Those with workers."""
        return sorted({unit for unit, _ in self.workers})

    def hosts(self) -> set[Host]:
        """All hosts that the job holds."""
        held = {*self.workers, *([self.server] if self.server else [])}
        return held | (self.forest.hosts() if self.forest else set())


class System(Protocol):
    """An aggregation system. `engines` are those of whose places it has a program; `instead` names the system
    that a job is summed by where the places have no room, None where the job is then refused. `policies` are
    those that it brings for the queue, by name.
    """

    name: str
    summary: str
    engines: frozenset[str]
    instead: str | None
    policies: Mapping[str, PolicyFactory]

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """The layout of a job with these workers. RequestError where there is none."""


def joining(pairs: Collection[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Pairs of different units, each once whatever its order."""
    once: dict[frozenset[int], tuple[int, int]] = {}
    for pair in pairs:
        if pair[0] != pair[1]:
            once.setdefault(frozenset(pair), pair)
    return tuple(once.values())
