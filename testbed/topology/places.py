"""The places where contributions can meet: a unit's switch, a ToR of a pod's rack, or a host. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.units import Unit

Host = tuple[Unit, int]
"""A unit, and a number within it, which includes the rack of a pod (testbed/topology/addresses.py)."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place that sums: a unit's switch, the ToR of a pod's rack, or a host."""

    unit: Unit
    host: int = 0  # 0: the unit's switch; in_rack(rack, 0): that rack's ToR

    @property
    def is_switch(self) -> bool:
        return not addresses.place_in_rack(self.host)

    @property
    def at(self) -> Host | None:
        """The host that it is; None for a switch."""
        return None if self.is_switch else (self.unit, self.host)

    @property
    def rack(self) -> int:
        """The rack that it is in; 0 for a unit's own switch, and if the unit is a rack."""
        return addresses.rack_of(self.host)

    @property
    def tor(self) -> Dpid:
        """The switch that it is, or to which the host is connected."""
        return addresses.tor_of(self.unit, self.host)

    @property
    def address(self) -> str:
        """The IPv4 address to which contributions are sent."""
        return addresses.tor_ip(self.tor) if self.is_switch else addresses.host_ip(self.unit, self.host)

    def __str__(self) -> str:
        return addresses.tor_name(self.tor) if self.is_switch else addresses.host_name(self.unit, self.host)


def switch(unit: Unit) -> Place:
    """Return a unit's switch as a place."""
    return Place(unit)


def at_tor(dpid: Dpid) -> Place:
    """Return the switch of that number as a place."""
    return Place(addresses.tor_unit(dpid), addresses.in_rack(addresses.tor_rack(dpid), 0))


def at_host(host: Host) -> Place:
    """Return a host as a place."""
    return Place(*host)
