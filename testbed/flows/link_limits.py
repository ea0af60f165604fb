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


def emulated_bytes(size: int, scale: int) -> int:
    """Return the bytes that are sent for a flow of so many declared bytes."""
    return max(1, round(size / scale))


@dataclass(frozen=True, slots=True)
class PairLimits:
    """The least that the links between two hosts allow: the emulated rate of the narrowest (None: none has a
    rate), and the delay of a frame.
    """

    narrowest_mbps: float | None
    delay_s: float
    scale: int
    mtu: int

    def ideal_s(self, size: int, rate_mbps: float | None) -> float:
        """Return the least time of a flow with `size` declared bytes; `rate_mbps` is a UDP flow's own."""
        whole, trips = emulated_bytes(size, self.scale), 1
        rates = [] if self.narrowest_mbps is None else [self.narrowest_mbps]
        if rate_mbps is None:
            packets = -(-whole // segment_bytes(self.mtu))
            whole, trips = whole + packets * (_HEADERS_BYTES + _ETHERNET_BYTES), 2
        else:
            rates.append(rate_mbps / self.scale)
        return trips * self.delay_s + (whole * 8 / 1e6 / min(rates) if rates else 0.0)


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

    def between(self, sender: str, to: str) -> PairLimits:
        """Return the least that the links between two hosts allow, as configured."""
        topology, hosts = self.topology, self._hosts
        rates = [rate for rate in self._rates(hosts[sender], hosts[to]) if rate is not None]
        starts = [topology.link_starts[each] for each in (sender, to) if each in topology.link_starts]
        return PairLimits(
            narrowest_mbps=min(rates) / topology.scale if rates else None,
            delay_s=math.fsum(start.delay_ms for start in starts) / 1e3,
            scale=topology.scale,
            mtu=topology.mtu,
        )

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
