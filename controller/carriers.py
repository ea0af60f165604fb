"""Name the links that are down, from the switches' ports that have carrier. Pure.

A link of an optical port ends at its unit's switch and at the optical switch, a link to the core at a unit's
switch and at the core. It is down if either end has no carrier. Other links (of hosts, and within pods) are
the only way to what is behind them, so no route depends on them.
"""

from __future__ import annotations

from collections.abc import Collection

from testbed.topology import addresses
from testbed.topology.addresses import CORE_DPID, OXC_DPID, Dpid
from testbed.topology.model import Topology


class LinkEnds:
    """A topology's links between units, by the switches and ports at which they end."""

    def __init__(self, topology: Topology) -> None:
        self._names: dict[Dpid, dict[int, str]] = {}
        self.devices: dict[str, str] = {}  # each link by its devices
        for unit in topology.units:
            dpid = addresses.tor_dpid(unit.index)
            for port in range(1, unit.optical_ports + 1):
                name = addresses.optical_port_name(unit.index, port)
                self._add(name, dpid, addresses.optical_number(port))
                self._add(name, OXC_DPID, addresses.oxc_port_number(unit.index, port))
                ends = addresses.optical_device(unit.index, port), addresses.oxc_device(unit.index, port)
                self.devices |= dict.fromkeys(ends, name)
            if topology.core_link:
                name = addresses.core_link_name(unit.index)
                self._add(name, dpid, addresses.optical_number(addresses.CORE_WAY))
                self._add(name, CORE_DPID, addresses.core_port_number(unit.index))
                ends = addresses.core_device(unit.index), addresses.core_far_device(unit.index)
                self.devices |= dict.fromkeys(ends, name)

    def _add(self, name: str, dpid: Dpid, number: int) -> None:
        self._names.setdefault(dpid, {})[number] = name

    @property
    def links(self) -> frozenset[str]:
        """The names of all links between units."""
        return frozenset(self.devices.values())

    def down_at(self, dpid: Dpid, carriers: Collection[int]) -> frozenset[str]:
        """Return the links that have no carrier at a switch; `carriers` are its ports that have."""
        names = self._names.get(dpid, {})
        return frozenset(name for number, name in names.items() if number not in carriers)
