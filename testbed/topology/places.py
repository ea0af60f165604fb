"""The places where contributions can meet: a unit's switch, or a host. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.topology import addresses
from testbed.topology.units import Unit

Host = tuple[Unit, int]  # (unit, host), both from 1


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place that sums: the switch of a unit, or one of its hosts. Units and hosts count from 1."""

    unit: Unit
    host: int = 0  # 0: the unit's switch

    @property
    def is_switch(self) -> bool:
        return self.host == 0

    @property
    def at(self) -> Host | None:
        """The host that it is; None of a switch."""
        return None if self.is_switch else (self.unit, self.host)

    @property
    def address(self) -> str:
        """The IPv4 address that contributions are sent to."""
        return addresses.tor_ip(self.unit) if self.is_switch else addresses.host_ip(self.unit, self.host)

    def __str__(self) -> str:
        return addresses.unit_name(self.unit) if self.is_switch else addresses.host_name(self.unit, self.host)


def switch(unit: Unit) -> Place:
    """The place that a unit's switch is."""
    return Place(unit)


def at_host(host: Host) -> Place:
    """The place that a host is."""
    return Place(*host)
