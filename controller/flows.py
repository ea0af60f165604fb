"""The flows and routes that every switch should hold, as data that follows from circuits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    hosts = {unit.index: unit.hosts for unit in topology.units}
    flows = {}
    for unit in topology.units:
        local = {
            Flow(
                HOST_PRIORITY,
                ip=addresses.host_ip(unit.index, host),
                prefix=32,
                set_mac=addresses.host_mac(unit.index, host),
                out_port=addresses.tor_port_number(host),
            )
            for host in range(1, unit.hosts + 1)
        }
        remote = {
            Flow(
                UNIT_PRIORITY,
                ip=addresses.unit_network(other),
                prefix=24,
                out_port=addresses.optical_number(ports[0]),
            )
            for other, ports in hops[unit.index].items()
        }
        spread = {
            Flow(
                HOST_PRIORITY,
                ip=addresses.host_ip(other, host),
                prefix=32,
                out_port=addresses.optical_number(port),
            )
            for other, ports in hops[unit.index].items()
            for host in range(1, hosts[other] + 1)
            for port in [port_for(ports, host)]
            if port != ports[0]
        }
        flows[unit.index] = frozenset(local | remote | spread)
    return flows


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
