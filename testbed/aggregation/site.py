"""The state of the testbed for a system that lays a job out: its racks, the busy hosts, and the units that
circuits join. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.errors import RequestError
from testbed.topology import addresses
from testbed.topology.model import Topology, UnitSpec
from testbed.topology.places import Host
from testbed.topology.units import Unit


@dataclass(frozen=True, slots=True)
class Rack:
    """A unit, for systems: its number, its kind (gpu, cpu or optimizer), its number of hosts, and the
    declared rates of their links (None: unshaped; empty: all links are alike). A pod has `racks`, each with
    that many hosts and rates, or with rates for the hosts of all racks in order. `usual_mbps` is the rate if
    all links are alike. `pod_mbps` has the rates of the links from a pod's racks to its switch. `reach_mbps`
    is the rate to a unit that no circuit joins: of the link to the core, or of a circuit at its slowest port;
    None: unshaped.
    """

    unit: Unit
    kind: str
    hosts: int
    rates_mbps: tuple[float | None, ...] = ()
    racks: int = 0
    usual_mbps: float | None = None
    pod_mbps: tuple[float | None, ...] = ()
    reach_mbps: float | None = None

    @property
    def size(self) -> int:
        """Return its total number of hosts."""
        return self.hosts * max(1, self.racks)

    def members(self, rack: int = 0) -> list[Host]:
        """Return its hosts; for a pod those of all racks, or of one."""
        racks = range(1, self.racks + 1) if self.racks else (0,)
        return [
            (self.unit, addresses.in_rack(each, host))
            for each in racks
            if rack in (0, each)
            for host in range(1, self.hosts + 1)
        ]

    def rate_mbps(self, host: int) -> float:
        """Return the declared rate of a host's link; infinity if it is unshaped."""
        rate = self._own_mbps(host) if self.rates_mbps else self.usual_mbps
        return math.inf if rate is None else rate

    def _own_mbps(self, host: int) -> float | None:
        at = max(0, addresses.rack_of(host) - 1) * self.hosts + addresses.place_in_rack(host) - 1
        return self.rates_mbps[at % len(self.rates_mbps)]

    def slowness(self, host: int) -> float:
        """Return a sort key for hosts, with the fastest links first."""
        if not self.rates_mbps:
            return 0.0
        rate_mbps = self._own_mbps(host)
        return -math.inf if rate_mbps is None else -rate_mbps

    def fastest(self, hosts: Iterable[Host], count: int) -> list[Host]:
        """Return the `count` hosts with the fastest links among these hosts of the unit, sorted by number."""
        return sorted(sorted(hosts, key=lambda host: (self.slowness(host[1]), host))[:count])


def racks_of(topology: Topology) -> tuple[Rack, ...]:
    """Convert the units of a topology to the systems' form."""
    return tuple(
        Rack(
            unit.index,
            unit.kind,
            unit.hosts,
            _own_rates(topology, unit),
            unit.racks,
            topology.host_link.rate_mbps,
            tuple(topology.pod_mbps(addresses.rack_name(unit.index, rack)) for rack in unit.rack_numbers)
            if unit.racks
            else (),
            _reach_mbps(topology, unit),
        )
        for unit in topology.units
    )


def _reach_mbps(topology: Topology, unit: UnitSpec) -> float | None:
    if topology.core_link:
        return topology.core_mbps(addresses.core_link_name(unit.index))
    rates = [topology.optical_mbps(port) for port in unit.ports]
    return min((rate for rate in rates if rate is not None), default=None)


def joined_mbps(topology: Topology, circuits: Iterable[Sequence[str]]) -> dict[frozenset[Unit], float]:
    """Return the declared rate of all these circuits between two units, by pair. Each circuit is given by its
    two ports, and has the rate of the slower.
    """
    rates: dict[frozenset[Unit], float] = {}
    for ends in circuits:
        units = frozenset(addresses.parse_optical_port(end)[0] for end in ends)
        port_rates = [topology.optical_mbps(end) for end in ends]
        slower = min((rate for rate in port_rates if rate is not None), default=math.inf)
        rates[units] = rates.get(units, 0.0) + slower
    return rates


def _own_rates(topology: Topology, unit: UnitSpec) -> tuple[float | None, ...]:
    """Return the rates of a rack's hosts, or of the hosts of all racks if these differ; empty if all have the
    topology's rate.
    """
    if topology.link_rates.keys().isdisjoint(unit.links):
        return tuple(host.rate_mbps for host in unit.unequal)
    return tuple(topology.host(*host).rate_mbps for host in unit.members)


@dataclass(frozen=True, slots=True)
class Site:
    """The state of the testbed for a system: its racks, the hosts that jobs hold, and the pairs of units that
    circuits join.
    """

    racks: tuple[Rack, ...]
    busy: frozenset[Host]
    joined: frozenset[frozenset[Unit]]
    kept: Host | None = None  # the host of the server that the job already has
    spared: frozenset[Host] = frozenset()  # hosts of workers that failed in an earlier start: must not sum
    joined_mbps: Mapping[frozenset[Unit], float] = field(default_factory=dict, hash=False)  # of `joined`

    def between_mbps(self, first: Unit, other: Unit) -> float:
        """Return the declared rate between two units: of the circuits that join them, or of one that could;
        infinity if it is unshaped.
        """
        if frozenset((first, other)) in self.joined_mbps:
            return self.joined_mbps[frozenset((first, other))]
        rates = [rack.reach_mbps for rack in self.racks if rack.unit in (first, other)]
        return min((rate for rate in rates if rate is not None), default=math.inf)

    def rate_mbps(self, host: Host) -> float:
        """Return the declared rate of a host's link; infinity if it is unshaped."""
        return next(rack.rate_mbps(host[1]) for rack in self.racks if rack.unit == host[0])

    def server(self, workers: Sequence[Host], kind: str = "cpu", what: str = "the parameter server") -> Host:
        """Choose a free host for these workers' server: in a unit of this `kind` if one is free there, then
        with the fewest new circuits, then with the fastest link. Otherwise in any unit. Raises RequestError
        if no host is free.
        """
        if self.kept is not None:
            return self.kept
        taken = {*self.busy, *workers}
        units = {unit for unit, _ in workers}
        racks = {rack.unit: rack for rack in self.racks}

        def cost(host: Host) -> tuple[bool, int, float, Host]:
            new = sum(unit != host[0] and frozenset((unit, host[0])) not in self.joined for unit in units)
            rack = racks[host[0]]
            return rack.kind != kind, new, rack.slowness(host[1]), host

        hosts = [host for rack in self.racks for host in rack.members()]
        free = [host for host in hosts if host not in taken]
        if not free:
            if len(hosts) == 1:
                remedy = "the testbed has one host, and that is the worker's"
            elif set(workers) >= set(hosts):
                remedy = f"all {len(hosts)} hosts are workers': place fewer"
            else:
                remedy = "place fewer workers, or wait for a job to end"
            raise RequestError(f"no free host for {what}: {remedy}")
        return min(free, key=cost)


def declared_site(topology: Topology) -> Site:
    """Return the site of a testbed that is only declared: no job runs, and the configuration's first circuits
    are lit.
    """
    rates = joined_mbps(topology, topology.ocs.circuits)
    return Site(racks_of(topology), frozenset(), frozenset(rates), joined_mbps=rates)
