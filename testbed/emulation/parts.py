"""Derive the parts of a fabric from a topology: devices, wires, host addresses and bridges. Pure.

Owns the mapping; names and numbers come from topology.addresses. Nothing here calls the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from testbed.emulation.links import WIRES, HostAddress, WireEnd, WireSpec
from testbed.emulation.openvswitch import Bridge, Port
from testbed.machine.links import LinkDelay
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.model import LinkSpec, Topology, UnitSpec

HOST_DEVICE = "eth0"
PREFIX = 24
_ETHERNET_BYTES = 14
_LEAST_FILES = 128
HOST_PORT, OPTICAL_PORT, POD_PORT, CORE_PORT = "host", "optical", "pod", "core"


@dataclass(frozen=True, slots=True)
class SwitchDevice:
    """A port of a unit's switch, of a pod's ToR, or of the core, in the testbed's root network namespace.
    `kind` is "host", "optical", "pod" (links between ToRs and pod switches) or "core".
    """

    dpid: Dpid
    device: str
    number: int
    kind: str


@dataclass(frozen=True, slots=True)
class OxcDevice:
    """A port of the optical switch in the testbed's root network namespace."""

    number: int
    device: str


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a fabric."""

    namespaces: tuple[str, ...]
    wires: tuple[WireSpec, ...]
    hosts: tuple[HostAddress, ...]
    bridges: tuple[Bridge, ...]
    switch_devices: tuple[SwitchDevice, ...]
    oxc_devices: tuple[OxcDevice, ...]


def buffer_bytes(link: LinkSpec, mtu: int) -> int:
    """Convert a link's queue from full-sized packets, as declared, to the bytes that a token bucket
    counts.
    """
    return link.buffer_packets * (mtu + _ETHERNET_BYTES)


def files_needed(fabric: Parts) -> int:
    """Return how many open files a process may need: a quarter more than measured for Open vSwitch. Measured:
    44 in a rack, 84 of the default, 811 with 64 units of 4 hosts, 2,301 with 250 of 1, which is 36, 4 a
    bridge, and one a port. In a small fabric the daemon needs most: 64 in a rack.
    """
    ports = sum(len(bridge.ports) for bridge in fabric.bridges)
    return max(_LEAST_FILES, (36 + 4 * len(fabric.bridges) + ports) * 5 // 4)


def parts(topology: Topology) -> Parts:
    """Return the parts of a topology. Without optical ports there is no optical switch. A unit's data plane
    determines whether it has a bridge.
    """
    core_devices = [
        SwitchDevice(
            addresses.CORE_DPID,
            addresses.core_far_device(unit.index),
            addresses.core_port_number(unit.index),
            CORE_PORT,
        )
        for unit in topology.units
        if unit.has_core
    ]
    switch_devices = (*(device for unit in topology.units for device in _switch_devices(unit)), *core_devices)
    oxc_devices = tuple(
        OxcDevice(addresses.oxc_port_number(unit.index, port), addresses.oxc_device(unit.index, port))
        for unit in topology.units
        for port in range(1, unit.optical_ports + 1)
    )
    bridges = [
        Bridge(
            addresses.tor_name(dpid),
            dpid,
            tuple(Port(device, number) for device, number in unit.ports_of(dpid).items()),
        )
        for unit in topology.units
        if unit.data_plane.is_bridge
        for dpid in unit.switches
    ]
    if core_devices:
        core_ports = tuple(Port(device.device, device.number) for device in core_devices)
        bridges.append(Bridge(addresses.CORE_BRIDGE, addresses.CORE_DPID, core_ports))
    if oxc_devices:
        ports = tuple(Port(device.device, device.number) for device in oxc_devices)
        bridges.append(Bridge(addresses.OXC_BRIDGE, addresses.OXC_DPID, ports))
    return Parts(
        namespaces=(WIRES, *topology.host_names),
        wires=tuple(
            _with_delay(topology, wire) for unit in topology.units for wire in _wires(topology, unit)
        ),
        hosts=tuple(address for unit in topology.units for address in _hosts(unit)),
        bridges=tuple(bridges),
        switch_devices=switch_devices,
        oxc_devices=oxc_devices,
    )


def _switch_devices(unit: UnitSpec) -> list[SwitchDevice]:
    return [
        SwitchDevice(dpid, device, number, _kind(number))
        for dpid in unit.switches
        for device, number in unit.ports_of(dpid).items()
    ]


def _kind(number: int) -> str:
    if addresses.is_host_port(number):
        return HOST_PORT
    if number == addresses.optical_number(addresses.CORE_WAY):
        return CORE_PORT
    return OPTICAL_PORT if addresses.is_optical_port(number) else POD_PORT


def _wires(topology: Topology, unit: UnitSpec) -> list[WireSpec]:
    """Return a unit's wires. Host links run from the host (a) to its ToR (b); in a pod, links run from each
    ToR (a) to the pod switch (b); optical links from the unit's switch (a) to the optical switch (b), and one
    from the unit's switch to the core (b).
    """
    mtu = topology.mtu
    host_buffer = buffer_bytes(topology.host_link, mtu)
    wires = []
    for host in unit.numbers:
        name = addresses.host_name(unit.index, host)
        ifindex = addresses.host_ifindex(unit.index, host)
        a = WireEnd(HOST_DEVICE, name, addresses.host_mac(unit.index, host), ifindex)
        b = WireEnd(addresses.tor_port_device(unit.index, host))
        host_rate = topology.emulated_host_mbps(unit.index, host)
        wires.append(WireSpec(name, a, b, host_rate, host_buffer, mtu))
    if unit.racks:
        assert topology.pod_link
        pod_buffer = buffer_bytes(topology.pod_link, mtu)
        for rack in unit.rack_numbers:
            a = WireEnd(addresses.uplink_device(unit.index, rack))
            b = WireEnd(addresses.rack_device(unit.index, rack))
            name = addresses.rack_name(unit.index, rack)
            pod_rate = topology.emulated_mbps(topology.pod_mbps(name))
            wires.append(WireSpec(name, a, b, pod_rate, pod_buffer, mtu))
    optical_buffer = buffer_bytes(topology.optical_link, mtu)
    for port in range(1, unit.optical_ports + 1):
        a = WireEnd(addresses.optical_device(unit.index, port))
        b = WireEnd(addresses.oxc_device(unit.index, port))
        name = addresses.optical_port_name(unit.index, port)
        optical_rate = topology.emulated_mbps(topology.optical_mbps(name))
        wires.append(WireSpec(name, a, b, optical_rate, optical_buffer, mtu))
    if topology.core_link:
        a = WireEnd(addresses.core_device(unit.index))
        b = WireEnd(addresses.core_far_device(unit.index))
        name, core_buffer = addresses.core_link_name(unit.index), buffer_bytes(topology.core_link, mtu)
        core_rate = topology.emulated_mbps(topology.core_mbps(name))
        wires.append(WireSpec(name, a, b, core_rate, core_buffer, mtu))
    return wires


def _with_delay(topology: Topology, wire: WireSpec) -> WireSpec:
    """Return a wire with the delay that it has from the start."""
    start = topology.link_starts.get(wire.name)
    return replace(wire, delay=LinkDelay(start.delay_ms, start.jitter_ms)) if start else wire


def _hosts(unit: UnitSpec) -> list[HostAddress]:
    """Return the hosts' addresses. Each host knows its rack's other hosts and its gateway, so that no address
    resolution crosses the fabric.
    """
    return [address for rack in unit.rack_numbers for address in _hosts_of(unit, rack)]


def _hosts_of(unit: UnitSpec, rack: int) -> list[HostAddress]:
    tor = addresses.tor_dpid(unit.index, rack)
    gateway = addresses.tor_ip(tor)
    numbers = [number for number in unit.numbers if addresses.rack_of(number) == rack]
    known = [(addresses.host_ip(unit.index, host), addresses.host_mac(unit.index, host)) for host in numbers]
    known.append((gateway, addresses.tor_mac(tor)))
    hosts = []
    for host in numbers:
        address = addresses.host_ip(unit.index, host)
        neighbours = tuple(neighbour for neighbour in known if neighbour[0] != address)
        name = addresses.host_name(unit.index, host)
        hosts.append(HostAddress(name, HOST_DEVICE, address, PREFIX, gateway, neighbours))
    return hosts
