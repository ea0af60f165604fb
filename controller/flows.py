"""The flows and routes that every switch should hold, as data that follows from circuits. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from testbed.ocs.circuits import Circuit, circuit
from testbed.ocs.routes import next_hops, port_for
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.units import Unit

COOKIE = 0x0F71  # marks the flows that are ours
HOST_PRIORITY, UNIT_PRIORITY, CIRCUIT_PRIORITY = 200, 100, 100

Routes = dict[tuple[str, int], tuple[str, str]]


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """A flow in the only two shapes that there are: by arrival port (circuits) or by IPv4 destination
    (forwarding).
    """

    priority: int
    out_port: int
    in_port: int = 0
    ip: str = ""
    prefix: int = 0
    set_mac: str = ""

    @property
    def match(self) -> tuple[int, int, str, int]:
        """The part that tells it from other flows of a switch; the rest says what it does."""
        return (self.priority, self.in_port, self.ip, self.prefix)


def oxc_flows(circuits: Iterable[Circuit]) -> frozenset[Flow]:
    """Two flows a circuit, one each way."""
    flows = set()
    for c in circuits:
        a, b = (addresses.oxc_port_number(*addresses.parse_optical_port(port)) for port in c.ports)
        flows |= {
            Flow(CIRCUIT_PRIORITY, in_port=a, out_port=b),
            Flow(CIRCUIT_PRIORITY, in_port=b, out_port=a),
        }
    return frozenset(flows)


def circuits_of(flows: Iterable[Flow], topology: Topology) -> frozenset[Circuit]:
    """The circuits that an optical switch's flows make: those with both directions."""
    names = {
        addresses.oxc_port_number(*addresses.parse_optical_port(port)): port
        for port in topology.optical_ports
    }
    ways = {
        (flow.in_port, flow.out_port) for flow in flows if flow.in_port in names and flow.out_port in names
    }
    return frozenset(circuit(names[a], names[b]) for a, b in ways if (b, a) in ways and a != b)


def tor_flows(topology: Topology, circuits: Iterable[Circuit]) -> dict[Unit, frozenset[Flow]]:
    """Return the flows of each unit's ToR: one for each of its hosts, which also sets the host's MAC, one for
    each other unit that has a path, and one for each host there that is reached by another of several
    parallel circuits.
    """
    hops = next_hops(circuits, (unit.index for unit in topology.units))
    hosts = tuple(unit.hosts for unit in topology.units)
    return {
        unit.index: _flows_of(unit.index, tuple(hops[unit.index].items()), hosts) for unit in topology.units
    }


@lru_cache(2 * addresses.MAX_UNITS)  # most ToRs' flows are as they were before a change
def _flows_of(
    unit: Unit, hops: tuple[tuple[Unit, tuple[int, ...]], ...], hosts: tuple[int, ...]
) -> frozenset[Flow]:
    """The flows of a unit's ToR; `hosts` counts those of each unit, in the order of their numbers."""
    local = [_to_host(unit, host) for host in range(1, hosts[unit - 1] + 1)]
    remote = [_to_unit(other, ports[0]) for other, ports in hops]
    spread = [
        _spread(other, host, port)
        for other, ports in hops
        if len(ports) > 1
        for host in range(1, hosts[other - 1] + 1)
        for port in [port_for(ports, host)]
        if port != ports[0]
    ]
    return frozenset(itertools.chain(local, remote, spread))


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
def _to_unit(unit: Unit, port: int) -> Flow:
    return Flow(
        UNIT_PRIORITY, ip=addresses.unit_network(unit), prefix=24, out_port=addresses.optical_number(port)
    )


@lru_cache(1 << 16)
def _spread(unit: Unit, host: int, port: int) -> Flow:
    return Flow(
        HOST_PRIORITY, ip=addresses.host_ip(unit, host), prefix=32, out_port=addresses.optical_number(port)
    )


def routes_of(unit: Unit, flows: Iterable[Flow]) -> Routes:
    """The fast path's table for the flows of a ToR: (address, prefix) -> (device, new destination MAC or
    "").
    """
    return {(flow.ip, flow.prefix): (_device(unit, flow.out_port), flow.set_mac) for flow in flows if flow.ip}


def _device(unit: Unit, port: int) -> str:
    first = addresses.optical_number(1)
    return (
        addresses.optical_device(unit, port - first + 1)
        if port >= first
        else addresses.tor_port_device(unit, port)
    )


def unit_ports(topology: Topology) -> Mapping[Unit, tuple[str, ...]]:
    """Each unit's optical ports."""
    return {
        unit.index: tuple(
            addresses.optical_port_name(unit.index, port) for port in range(1, unit.optical_ports + 1)
        )
        for unit in topology.units
    }
