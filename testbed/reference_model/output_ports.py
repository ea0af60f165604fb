"""Determine the ports by which a frame leaves a switch or host: by its tree's group, by its route, or by the
port it arrived at. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address
from itertools import takewhile

from testbed.topology import addresses
from testbed.topology.places import Host
from testbed.wire import frame, spec, spreading
from testbed.wire.frame import mac_bytes

_FRAGMENT_AT = frame.HEADERS_BYTES + sum(
    field.bytes for field in takewhile(lambda field: field.name != "fragment", spec.HEADER)
)
_WITH_PORTS = (6, 17)  # TCP, UDP


class To(Enum):
    """The ways of determining a frame's ports."""

    GROUP = "group"  # every port of the tree's group
    OTHERS = "others"  # every port of the group except the arrival port
    WORKERS = "workers"  # of those, only the ports to hosts, none to another switch
    BACK = "back"  # the port it came from
    ROUTE = "route"  # by the route of its destination address
    COPIES = "copies"  # a copy to each member of the place, by its own address
    CIRCUIT = "circuit"  # the other end of the circuit at the arrival port
    STACK = "stack"  # not processed here: passed to Open vSwitch, or to the host's stack


@dataclass(frozen=True, slots=True)
class Emission:
    """A frame that leaves, and its ports in ascending order: () for Open vSwitch or the host's stack, None if
    unknown.
    """

    to: To
    data: bytes
    ports: tuple[int, ...] | None = None


Reaction = tuple[str, list[Emission]]


@dataclass(frozen=True, slots=True)
class Route:
    """The port to leave by, the new destination MAC address (None: unchanged), and further ports, of circuits
    parallel to the first's.
    """

    port: int
    mac: str | None = None
    parallel: tuple[int, ...] = ()


class Ways:
    """The groups and routes of one switch. Before `set_routes`, every address is routed, by an unknown port.
    `dark` are the ports whose circuits are dark now: a frame takes a parallel one.
    """

    def __init__(self) -> None:
        # (job, tree) -> ports, and bundles of parallel ones
        self._groups: dict[tuple[int, int], tuple[tuple[int, ...], Sequence[Sequence[int]]]] = {}
        self._copies: dict[tuple[int, int], tuple[tuple[Host, ...], bool]] = {}
        self._routes: dict[tuple[int, int], Route] | None = None
        self.dark: frozenset[int] = frozenset()

    def set_group(
        self, number: int, tree: int, ports: Sequence[int], bundles: Sequence[Sequence[int]] = ()
    ) -> None:
        """Set the ports by which the results of a tree of job `number` leave: all of `ports`, and one of each
        bundle.
        """
        self._groups[number, tree] = (tuple(ports), bundles)

    def set_copies(self, number: int, tree: int, members: Sequence[Host], own: bool) -> None:
        """Set the receivers of a host's copies of the results of a tree of job `number`: other hosts, and
        with `own` its worker.
        """
        self._copies[number, tree] = (tuple(members), own)

    def copied_for(self, key: tuple[int, int]) -> tuple[tuple[Host, ...], bool]:
        """Return the receivers of copies, for a (job, tree)."""
        return self._copies.get(key, ((), False))

    def set_routes(self, routes: Mapping[tuple[str, int], Route]) -> None:
        """Replace the table: (IPv4 address, prefix 32 or 24) -> route."""
        self._routes = {(int(IPv4Address(ip)), prefix): route for (ip, prefix), route in routes.items()}

    def to_group(self, to: To, data: bytes, key: tuple[int, int], port: int) -> Emission:
        """Send a frame to the whole group of a (job, tree), to the others, or to hosts among these."""
        ports = self._group(data, key)
        if ports is not None and to is not To.GROUP:
            ports = tuple(
                each for each in ports if each != port and (to is To.OTHERS or addresses.is_host_port(each))
            )
        return Emission(to, data, ports)

    def _group(self, data: bytes, key: tuple[int, int]) -> tuple[int, ...] | None:
        if key not in self._groups:
            return None
        ports, bundles = self._groups[key]
        parallel = [bundle for bundle in bundles if len(bundle) > 1][: spreading.CHECKED]

        def is_lit(bucket: int) -> bool:
            return self.dark.isdisjoint(_port(bundle, bucket) for bundle in parallel)

        bucket = spreading.lit_bucket(bucket_of(data), is_lit)
        return tuple(sorted([*ports, *(_port(bundle, bucket) for bundle in bundles)]))

    def route(self, data: bytes) -> Emission:
        """Send a frame by the route of its destination address; without a route, pass it on to Open vSwitch
        or the stack.
        """
        if self._routes is None:
            return Emission(To.ROUTE, data)
        ip = int.from_bytes(data[30:34], "big")
        route = self._routes.get((ip, 32)) or self._routes.get((ip & 0xFFFFFF00, 24))
        if route is None:
            return Emission(To.STACK, data, ())
        bundle, bucket = (route.port, *route.parallel), bucket_of(data)
        if route.parallel:
            bucket = spreading.lit_bucket(bucket, lambda bucket: _port(bundle, bucket) not in self.dark)
        port = _port(bundle, bucket)
        return Emission(To.ROUTE, mac_bytes(route.mac) + data[6:] if route.mac else data, (port,))


def bucket_of(data: bytes) -> int:
    """Return the bucket of an IPv4 frame without options, which determines its circuit among
    parallel ones.
    """
    if frame.is_gradient(data) and len(data) >= frame.HEADERS_BYTES + spec.HEADER_BYTES:
        return spreading.bucket(int.from_bytes(data[_FRAGMENT_AT : _FRAGMENT_AT + 4], "big"))
    number = int.from_bytes(data[26:30], "big") + int.from_bytes(data[30:34], "big")
    is_whole = not int.from_bytes(data[20:22], "big") & 0x3FFF
    if is_whole and data[23] in _WITH_PORTS and len(data) >= frame.HEADERS_BYTES:
        number += int.from_bytes(data[34:36], "big") + int.from_bytes(data[36:38], "big")
    return spreading.bucket(number)


def _port(bundle: Sequence[int], bucket: int) -> int:
    return bundle[spreading.circuit_of(bucket, len(bundle))]


def back(data: bytes, port: int) -> Emission:
    """Send a frame back by its arrival port."""
    return Emission(To.BACK, data, (port,))


def behind(data: bytes) -> Emission:
    """Pass a frame to Open vSwitch, or to the host's stack."""
    return Emission(To.STACK, data, ())
