"""A topology as Mininet's own kind of description, for whoever knows Mininet. Pure: makes nothing."""

from __future__ import annotations

from mininet.topo import Topo

from testbed.emulation.layout import HOST_DEVICE, PREFIX, layout
from testbed.topology import addresses
from testbed.topology.model import Topology


class FabricTopo(Topo):  # type: ignore[misc]  # Mininet has no types
    """Hosts, a switch for each unit, the optical switch, and the links between them, with their ports and
    addresses.
    """

    def build(self, topology: Topology) -> None:
        plan = layout(topology)
        for bridge in plan.bridges:
            self.addSwitch(bridge.name, dpid=f"{bridge.datapath_id:x}")
        for unit in topology.units:
            if not unit.data_plane.is_bridge:
                self.addSwitch(unit.name, dpid=f"{addresses.tor_dpid(unit.index):x}", is_bridge=False)
        for unit in topology.units:
            for host in range(1, unit.hosts + 1):
                self._add_host(unit.index, host)
            for port in range(1, unit.optical_ports + 1):
                self.addLink(
                    unit.name,
                    addresses.OXC_BRIDGE,
                    port1=addresses.optical_number(port),
                    port2=addresses.oxc_port_number(unit.index, port),
                    intfName1=addresses.optical_device(unit.index, port),
                    intfName2=addresses.oxc_device(unit.index, port),
                )

    def _add_host(self, unit: int, host: int) -> None:
        name = addresses.host_name(unit, host)
        ip, mac = f"{addresses.host_ip(unit, host)}/{PREFIX}", addresses.host_mac(unit, host)
        self.addHost(name, ip=ip, mac=mac, defaultRoute=f"via {addresses.tor_ip(unit)}")
        self.addLink(
            name,
            addresses.unit_name(unit),
            port1=0,
            port2=addresses.tor_port_number(host),
            intfName1=HOST_DEVICE,
            intfName2=addresses.tor_port_device(unit, host),
            addr1=mac,
            params1={"ip": ip},
        )
