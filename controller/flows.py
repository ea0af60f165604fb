"""Derive the flows and routes that every switch should hold from the circuits, as data. Pure."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from testbed.ocs.circuits import Circuit, circuit
from testbed.ocs.routes import Hops, Rerouted, next_hops
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.model import Topology
from testbed.topology.units import Unit

COOKIE = 0x0F71  # marks the controller's flows, in the lower 16 bits
HOST_PRIORITY, UNIT_PRIORITY, CIRCUIT_PRIORITY, UP_PRIORITY = 200, 100, 100, 50
NOWHERE = 0  # out port of dropped packets
UNIT_PREFIX = 24  # length of the networks that units and racks have

_MAX_TORS = (
    addresses.MAX_UNITS * addresses.MAX_RACKS_PER_POD
)  # in pods; their flows do not depend on circuits

Routes = Mapping[tuple[str, int], tuple[tuple[str, ...], str]]


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """A flow, in one of the two shapes used: by arrival port (circuits) or by IPv4 destination (forwarding);
    to one port or, spread, to one of several parallel ports.
    """

    priority: int
    out_port: int
    in_port: int = 0
    ip: str = ""
    prefix: int = 0
    set_mac: str = ""
    parallel_ports: tuple[int, ...] = ()

    @property
    def out_ports(self) -> tuple[int, ...]:
        """All ports by one of which a packet leaves."""
        return (self.out_port, *self.parallel_ports)

    @property
    def match(self) -> tuple[int, int, str, int]:
        """The part that identifies a flow of a switch; the rest is its action."""
        return (self.priority, self.in_port, self.ip, self.prefix)


def oxc_flows(circuits: Iterable[Circuit]) -> frozenset[Flow]:
    """Return two flows per circuit, one for each direction."""
    flows = set()
    for c in circuits:
        a, b = (addresses.oxc_port_number(*addresses.parse_optical_port(port)) for port in c.ports)
        flows |= {
            Flow(CIRCUIT_PRIORITY, in_port=a, out_port=b),
            Flow(CIRCUIT_PRIORITY, in_port=b, out_port=a),
        }
    return frozenset(flows)


def circuits_of(flows: Iterable[Flow], topology: Topology) -> frozenset[Circuit]:
    """Return the circuits that an optical switch's flows form: those with both directions."""
    names = {
        addresses.oxc_port_number(*addresses.parse_optical_port(port)): port
        for port in topology.optical_ports
    }
    ways = {
        (flow.in_port, flow.out_port) for flow in flows if flow.in_port in names and flow.out_port in names
    }
    return frozenset(circuit(names[a], names[b]) for a, b in ways if (b, a) in ways and a != b)


Racks = tuple[tuple[int, int], ...]
"""For each unit, by number: how many racks it has (0: it is a rack itself), and how many hosts each has."""


class TorFlows(Mapping[Dpid, frozenset[Flow]]):
    """The flows of each unit's switches, computed on access. `RouteChanges` finds the effect of a change of
    circuits without computing them.
    """

    def __init__(self, switches: Iterable[Dpid], racks: Racks, hops: Hops) -> None:
        self._switches, self._racks, self.hops = dict.fromkeys(switches), racks, hops
        self._made: dict[Dpid, frozenset[Flow]] = {}

    def __getitem__(self, dpid: Dpid) -> frozenset[Flow]:
        flows = self._made.get(dpid)
        if flows is None:
            if dpid not in self._switches:
                raise KeyError(dpid)
            unit = addresses.tor_unit(dpid)
            if dpid == addresses.CORE_DPID:
                flows = _flows_of_core(self._racks, tuple(self.hops.from_core.items()))
            elif addresses.tor_rack(dpid):
                flows = _flows_of_rack(dpid, self._racks[unit - 1][1])
            else:
                flows = _flows_of(unit, tuple(self.hops[unit].items()), self._racks)
            self._made[dpid] = flows
        return flows

    def __iter__(self) -> Iterator[Dpid]:
        return iter(self._switches)

    def __len__(self) -> int:
        return len(self._switches)

    def __contains__(self, dpid: object) -> bool:
        return dpid in self._switches

    def differing(self, before: TorFlows) -> frozenset[Dpid]:
        """Return the switches (of the same topology) whose flows were different before: units' switches, and
        the core if units' links to it went down or up. The flows of a pod's ToRs never change.
        """
        changed = (self.hops.since(before.hops) != self.hops.numbers).any(axis=1)
        units = [unit for unit, is_new in zip(self.hops.units, changed, strict=True) if is_new]
        core = [addresses.CORE_DPID] if self.hops.from_core != before.hops.from_core else []
        return frozenset((*map(addresses.tor_dpid, units), *core))

    def rerouted(self, before: TorFlows, dpids: Iterable[Dpid]) -> Rerouted:
        """Return the routes of some units' switches that were different before."""
        ours, units = self.hops, np.array(self.hops.units)
        was = ours.since(before.hops)
        chosen = {addresses.tor_unit(dpid) for dpid in dpids}
        of_them = np.array([unit in chosen for unit in ours.units])
        rows, goals = np.nonzero((was != ours.numbers) & of_them[:, None])
        # all networks of each unit, and their first indices
        networks = [
            [_number(addresses.rack_network(unit, rack)) for rack in range(self._racks[unit - 1][0] + 1)]
            for unit in ours.units
        ]
        counts = np.array([len(each) for each in networks])
        starts, times = np.cumsum(counts) - counts, counts[goals]
        ends = np.cumsum(times)
        places = np.arange(times.sum()) - np.repeat(ends - times, times) + np.repeat(starts[goals], times)
        return Rerouted(
            units=np.repeat(units[rows], times),
            networks=np.array(list(itertools.chain.from_iterable(networks)), np.uint32)[places],
            before=np.repeat(was[rows, goals], times),
            now=np.repeat(ours.numbers[rows, goals], times),
            bundles=ours.bundles_since(before.hops),
        )


class RouteChanges(Mapping[Dpid, tuple[Routes, Routes]]):
    """The routes that units' switches lose and gain when their flows change, by switch, computed on access.
    `rerouted` has those of all switches as parallel arrays.
    """

    def __init__(self, before: TorFlows, now: TorFlows, dpids: Iterable[Dpid]) -> None:
        self._before, self._now, self._dpids = before, now, tuple(dpids)

    def __getitem__(self, dpid: Dpid) -> tuple[Routes, Routes]:
        if dpid not in self._dpids:
            raise KeyError(dpid)
        was, wanted = self._before[dpid], self._now[dpid]
        return as_routes(dpid, was - wanted), as_routes(dpid, wanted - was)

    def __iter__(self) -> Iterator[Dpid]:
        return iter(self._dpids)

    def __len__(self) -> int:
        return len(self._dpids)

    def rerouted(self) -> Rerouted:
        """Return the changed routes, before and now."""
        return self._now.rerouted(self._before, self._dpids)


def tor_flows(
    topology: Topology, circuits: Iterable[Circuit], down: frozenset[str] = frozenset()
) -> TorFlows:
    """Return the flows of each unit's switches: over the circuits, and the core, whose links are not down."""
    units, has_core = (unit.index for unit in topology.units), topology.core_link is not None
    return flows_by(topology, next_hops(circuits, units, has_core, down))


def flows_by(topology: Topology, hops: Hops) -> TorFlows:
    """Return the flows of each unit's switches by these first hops."""
    return TorFlows(topology.switches, tuple((unit.racks, unit.hosts) for unit in topology.units), hops)


NO_TOR_FLOWS = TorFlows((), (), next_hops((), ()))  # before circuits are known


@lru_cache(1 << 16)
def _number(network: str) -> int:
    return int(ipaddress.IPv4Address(network))


@lru_cache(2 * addresses.MAX_UNITS)  # most switches' flows do not change with a change of circuits
def _flows_of(unit: Unit, hops: tuple[tuple[Unit, tuple[int, ...]], ...], racks: Racks) -> frozenset[Flow]:
    """Return the flows of a unit's own switch: to its hosts, or in a pod its ToRs; and to each network of
    each reachable unit, by all parallel circuits of the first hop.
    """
    pod, hosts = racks[unit - 1]
    if pod:
        local = [_to_rack(ip, rack) for rack in range(1, pod + 1) for ip in _stations(unit, rack, hosts)]
    else:
        local = [_to_host(unit, host) for host in range(1, hosts + 1)]
    remote = [
        _to_network(addresses.rack_network(other, rack), ports)
        for other, ports in hops
        for rack in range(racks[other - 1][0] + 1)
    ]
    return frozenset(itertools.chain(local, remote))


@lru_cache(_MAX_TORS)
def _flows_of_rack(tor: Dpid, hosts: int) -> frozenset[Flow]:
    """Return the flows of a pod's ToR, which do not depend on circuits: to its hosts, and everything else up,
    except packets to the ToR itself that no program consumed. The pod switch has flows for each host and each
    ToR, but none for its racks' networks: so packets without a receiver do not come down again and loop
    forever.
    """
    unit, rack = addresses.tor_unit(tor), addresses.tor_rack(tor)
    local = [_to_host(unit, addresses.in_rack(rack, host)) for host in range(1, hosts + 1)]
    up = Flow(UP_PRIORITY, ip="0.0.0.0", prefix=0, out_port=addresses.uplink_number())
    own = Flow(HOST_PRIORITY, ip=addresses.tor_ip(tor), prefix=32, out_port=NOWHERE)
    return frozenset((*local, up, own))


@lru_cache(2)
def _flows_of_core(racks: Racks, by_other: tuple[tuple[Unit, Unit | None], ...]) -> frozenset[Flow]:
    """Return the flows of the electrical core: to each unit's networks, by the unit's own link or, of the
    units in `by_other`, by another unit's (None: by none).
    """
    ways: dict[Unit, Unit | None] = {Unit(unit): Unit(unit) for unit in range(1, len(racks) + 1)}
    ways |= dict(by_other)
    return frozenset(
        Flow(
            UNIT_PRIORITY,
            ip=addresses.rack_network(unit, rack),
            prefix=UNIT_PREFIX,
            out_port=addresses.core_port_number(way),
        )
        for unit, way in ways.items()
        if way is not None
        for rack in range(racks[unit - 1][0] + 1)
    )


def _stations(unit: Unit, rack: int, hosts: int) -> list[str]:
    """Return the addresses in a pod's rack: of its hosts, and of its ToR."""
    numbers = [addresses.in_rack(rack, host) for host in range(1, hosts + 1)]
    return [
        *(addresses.host_ip(unit, host) for host in numbers),
        addresses.tor_ip(addresses.tor_dpid(unit, rack)),
    ]


@lru_cache(1 << 16)
def _to_host(unit: Unit, host: int) -> Flow:
    return Flow(
        HOST_PRIORITY,
        ip=addresses.host_ip(unit, host),
        prefix=32,
        set_mac=addresses.host_mac(unit, host),
        out_port=addresses.tor_port_number(host),
    )


@lru_cache(1 << 16)
def _to_rack(ip: str, rack: int) -> Flow:
    return Flow(HOST_PRIORITY, ip=ip, prefix=32, out_port=addresses.rack_number(rack))


@lru_cache(1 << 16)
def _to_network(network: str, ports: tuple[int, ...]) -> Flow:
    first, *others = (addresses.optical_number(port) for port in ports)
    return Flow(UNIT_PRIORITY, ip=network, prefix=UNIT_PREFIX, out_port=first, parallel_ports=tuple(others))


def routes_of(dpid: Dpid, flows: frozenset[Flow]) -> Routes:
    """Return the fast path's table for the flows of a unit's switch: (address, prefix) -> (devices of
    parallel circuits in order, or a single one, "" for none; new destination MAC or "").

    Results are cached: for all ToRs of pods, and for twice as many units' own switches as there can be.
    """
    return _routes_of_rack(dpid, flows) if addresses.tor_rack(dpid) else _routes_of_unit(dpid, flows)


@lru_cache(2 * addresses.MAX_UNITS)
def _routes_of_unit(dpid: Dpid, flows: frozenset[Flow]) -> Routes:
    return as_routes(dpid, flows)


@lru_cache(_MAX_TORS)
def _routes_of_rack(dpid: Dpid, flows: frozenset[Flow]) -> Routes:
    return as_routes(dpid, flows)


def as_routes(dpid: Dpid, flows: Iterable[Flow]) -> Routes:
    """Return the entries of the fast path's table for some flows of a unit's switch; see `routes_of`."""
    routes: dict[tuple[str, int], tuple[tuple[str, ...], str]] = {}
    ways: dict[
        tuple[int, tuple[int, ...]], tuple[str, ...]
    ] = {}  # a switch has far fewer of these than flows
    for flow in flows:
        if flow.ip:
            ports = (flow.out_port, flow.parallel_ports)
            devices = ways.get(ports)
            if devices is None:
                devices = ways[ports] = tuple(_device(dpid, port) for port in flow.out_ports)
            routes[flow.ip, flow.prefix] = (devices, flow.set_mac)
    return routes


def _device(dpid: Dpid, port: int) -> str:
    unit, rack = addresses.tor_unit(dpid), addresses.tor_rack(dpid)
    if port == NOWHERE:
        return ""
    if dpid == addresses.CORE_DPID:
        return addresses.core_far_device(Unit(port - addresses.core_port_number(Unit(0))))
    if port == addresses.optical_number(addresses.CORE_WAY):
        return addresses.core_device(unit)
    if addresses.is_host_port(port):
        return addresses.tor_port_device(unit, addresses.in_rack(rack, port))
    if addresses.is_optical_port(port):
        return addresses.optical_device(unit, port - addresses.optical_number(0))
    if port == addresses.uplink_number():
        return addresses.uplink_device(unit, rack)
    return addresses.rack_device(unit, port - addresses.rack_number(0))


def port_numbers(ports: Mapping[Unit, tuple[str, ...]]) -> dict[int, str]:
    """Return the name of each optical port, by its number at the optical switch; port 0 of a unit has the
    unit's name.
    """
    names = {addresses.oxc_port_number(unit, 0): addresses.unit_name(unit) for unit in ports}
    for name in itertools.chain.from_iterable(ports.values()):
        names[addresses.oxc_port_number(*addresses.parse_optical_port(name))] = name
    return names
