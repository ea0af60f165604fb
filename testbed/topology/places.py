"""The places where contributions can meet: a switch of a unit, or a host. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.units import Unit

Host = tuple[Unit, int]
"""A unit, and the number within it, which says the rack of a pod as well (testbed/topology/addresses.py)."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place that sums: a unit's switch, the ToR of a rack of a pod, or a host."""

    unit: Unit
    host: int = 0  # 0: the unit's switch; in_rack(rack, 0): that rack's ToR

    @property
    def is_switch(self) -> bool:
        return not addresses.place_in_rack(self.host)

    @property
    def at(self) -> Host | None:
        """The host that it is; None of a switch."""
        return None if self.is_switch else (self.unit, self.host)

    @property
    def rack(self) -> int:
        """The rack that it is in; 0 of a unit's own switch, and where the unit is a rack."""
        return addresses.rack_of(self.host)

    @property
    def tor(self) -> Dpid:
        """The switch that it is, or at which the host is."""
        return addresses.tor_of(self.unit, self.host)

    @property
    def address(self) -> str:
        """The IPv4 address that contributions are sent to."""
        return addresses.tor_ip(self.tor) if self.is_switch else addresses.host_ip(self.unit, self.host)

    def __str__(self) -> str:
        return addresses.tor_name(self.tor) if self.is_switch else addresses.host_name(self.unit, self.host)


def switch(unit: Unit) -> Place:
    """The place that a unit's switch is."""
    return Place(unit)


def at_tor(dpid: Dpid) -> Place:
    """The place that a switch is, by its number."""
    return Place(addresses.tor_unit(dpid), addresses.in_rack(addresses.tor_rack(dpid), 0))


def at_host(host: Host) -> Place:
    """The place that a host is."""
    return Place(*host)
