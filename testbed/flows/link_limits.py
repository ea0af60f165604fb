"""The least time of a flow: its bytes, headers included, over the narrowest link of its way, and a round trip
of the delays that the configuration declares. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host
from testbed.topology.units import Unit

_HEADERS_BYTES = 52  # of IPv4 and TCP, with timestamps
_DATAGRAM_HEADERS_BYTES = 28
_ETHERNET_BYTES = 14


def payload_bytes(mtu: int) -> int:
    """Return the bytes of a datagram that fills a packet."""
    return mtu - _DATAGRAM_HEADERS_BYTES


def segment_bytes(mtu: int) -> int:
    """Return the bytes of a TCP flow in a full packet."""
    return mtu - _HEADERS_BYTES


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The least that a testbed's links allow. Names of hosts are those of the topology."""

    topology: Topology

    @property
    def rates_mbps(self) -> dict[str, float | None]:
        """The declared rates of the hosts' links, by host, in order."""
        topology = self.topology
        return {name: topology.host(*host).rate_mbps for name, host in self._hosts.items()}

    @property
    def names(self) -> dict[str, str]:
        """The hosts, by each of their names in lower case."""
        return {name: name for name in self._hosts} | dict(self.topology.second_names)

    @property
    def _hosts(self) -> Mapping[str, Host]:
        return {addresses.host_name(*host): host for host in self.topology.hosts}

    def emulated_bytes(self, size: int) -> int:
        """Return the bytes that are sent for a flow of so many declared bytes."""
        return max(1, round(size / self.topology.scale))

    def ideal_s(self, sender: str, to: str, size: int, rate_mbps: float | None) -> float:
        """Return the least time of a flow with `size` declared bytes; `rate_mbps` is a UDP flow's own."""
        hosts = self._hosts
        rates = [*self._rates(hosts[sender], hosts[to]), rate_mbps]
        narrowest = min((each for each in rates if each is not None), default=None)
        delay_ms = math.fsum(
            self.topology.link_starts[each].delay_ms
            for each in (sender, to)
            if each in self.topology.link_starts
        )
        whole = self.emulated_bytes(size)
        if rate_mbps is None:
            packets = -(-whole // segment_bytes(self.topology.mtu))
            whole += packets * (_HEADERS_BYTES + _ETHERNET_BYTES)
        wire_s = 0.0 if narrowest is None else whole * 8 / 1e6 / (narrowest / self.topology.scale)
        return wire_s + (2 if rate_mbps is None else 1) * delay_ms / 1e3

    def _rates(self, sender: Host, to: Host) -> Iterator[float | None]:
        """Yield the declared rates of the links that every way between two hosts has: of the parallel links
        between units, the fastest.
        """
        topology = self.topology
        for host in (sender, to):
            yield topology.host(*host).rate_mbps
        if sender[0] == to[0] and addresses.rack_of(sender[1]) == addresses.rack_of(to[1]):
            return
        for unit, number in (sender, to):
            if topology.unit(unit).racks:
                yield topology.pod_mbps(addresses.rack_name(unit, addresses.rack_of(number)))
            if sender[0] != to[0]:
                yield self._fastest(unit)

    def _fastest(self, unit: Unit) -> float | None:
        spec, topology = self.topology.unit(unit), self.topology
        rates = [topology.optical_mbps(port) for port in spec.ports]
        if spec.has_core:
            rates.append(topology.core_mbps(addresses.core_link_name(unit)))
        return max((each for each in _known(rates)), default=None) if None not in rates else None


def _known(rates: Iterable[float | None]) -> Iterator[float]:
    return (each for each in rates if each is not None)
