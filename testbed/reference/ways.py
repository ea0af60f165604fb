"""The ports by which a frame leaves a switch or host: the groups of its trees, its routes, and the port that
the frame came by. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address

from testbed.contract.frame import mac_bytes
from testbed.topology import addresses


class To(Enum):
    """The ways that a frame's ports are decided."""

    GROUP = "group"  # every port of the tree's group
    OTHERS = "others"  # every port of the group but the one it came from
    WORKERS = "workers"  # of those, the ones that lead to hosts: none that leads to another switch
    BACK = "back"  # the port it came from
    ROUTE = "route"  # as the switch routes its destination address
    CIRCUIT = "circuit"  # the other end of the circuit at the port it came from
    STACK = "stack"  # not looked at here: to what lies behind (Open vSwitch, the host)


@dataclass(frozen=True, slots=True)
class Emission:
    """A frame that leaves, by the ports named in ascending order: () to what lies behind, None where that is
    not known.
    """

    to: To
    data: bytes
    ports: tuple[int, ...] | None = None


Reaction = tuple[str, list[Emission]]


@dataclass(frozen=True, slots=True)
class Route:
    """The port to leave by, and the destination MAC address that the frame gets there (None: it keeps its
    own).
    """

    port: int
    mac: str | None = None


class Ways:
    """The groups and routes of one switch. Without routes, every address is routed, by a port that is not
    known.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], tuple[int, ...]] = {}  # (job, tree) -> ports
        self._routes: dict[tuple[int, int], Route] | None = None

    def set_group(self, number: int, tree: int, ports: Sequence[int]) -> None:
        """Set the ports by which the results of a tree of job `number` leave."""
        self._groups[number, tree] = tuple(sorted(ports))

    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None:
        """Replaces the table: (IPv4 address, prefix 32 or 24) -> route."""
        self._routes = {(int(IPv4Address(ip)), prefix): route for (ip, prefix), route in routes.items()}

    def to_group(self, to: To, data: bytes, key: tuple[int, int], port: int) -> Emission:
        """Send a frame to all of the group of a (job, tree), to the others, or to those that are hosts'."""
        ports = self._groups.get(key)
        if ports is not None and to is not To.GROUP:
            ports = tuple(
                each for each in ports if each != port and (to is To.OTHERS or addresses.is_host_port(each))
            )
        return Emission(to, data, ports)

    def route(self, data: bytes) -> Emission:
        """Send a frame by the route of its destination address; to what lies behind where there is none."""
        if self._routes is None:
            return Emission(To.ROUTE, data)
        ip = int.from_bytes(data[30:34], "big")
        route = self._routes.get((ip, 32)) or self._routes.get((ip & 0xFFFFFF00, 24))
        if route is None:
            return Emission(To.STACK, data, ())
        return Emission(To.ROUTE, mac_bytes(route.mac) + data[6:] if route.mac else data, (route.port,))


def back(data: bytes, port: int) -> Emission:
    """Send a frame back by the port that it came from."""
    return Emission(To.BACK, data, (port,))


def behind(data: bytes) -> Emission:
    """Hand a frame to what lies behind: Open vSwitch, or the host's stack."""
    return Emission(To.STACK, data, ())
