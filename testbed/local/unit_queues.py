"""The calendar queues of a fabric: their device pair, and the rates of the links that they send to."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Self

from testbed.dataplanes.xdp.calendar_queues import CalendarQueues
from testbed.dataplanes.xdp.program import Programs
from testbed.emulation.links import set_offloads
from testbed.emulation.netlink import RouteSocket, set_merging
from testbed.emulation.pairs import pair
from testbed.machine.links import LinkDelay, rate_bytes_per_s
from testbed.messages.links import CalendarStatus
from testbed.topology import addresses
from testbed.topology.model import Topology

_MERGE_NOTHING = 1  # byte; as at the links' inner ends: GRO makes the device poll, and merges no frames


class UnitQueues:
    """The queues as a context manager; leaving loses what waits in them."""

    def __init__(self, programs: Programs, topology: Topology) -> None:
        self._topology = topology
        self._queues = CalendarQueues(programs, topology.ocs.calendar_packets, topology.mtu)
        self._devices = {link.name: link.device for link in _links(topology)}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(pair(addresses.CALENDAR_DEVICES, self._topology.mtu))
            stack.enter_context(self._queues)
            for device, gro in zip(addresses.CALENDAR_DEVICES, (False, True), strict=True):
                set_offloads(device, gro=gro)
            with RouteSocket() as route:
                route.send(
                    [set_merging(socket.if_nametoindex(addresses.CALENDAR_DEVICES[1]), _MERGE_NOTHING)]
                )
            links = list(_links(self._topology))
            self._queues.lead_out({link.number: link.device for link in links})
            self.set_rates({link.name: link.rate_mbps for link in links})
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        """Set the rates of links, by name; 0: none. Links of hosts and racks do not matter here."""
        named = {self._devices[name]: rate for name, rate in rates_mbps.items() if name in self._devices}
        self._queues.set_rates(
            {device: rate_bytes_per_s(rate) if rate else 0 for device, rate in named.items()}
        )

    def set_delays(self, delays: Mapping[str, LinkDelay]) -> None:
        """Set the delays of links, by name: frames leave so much earlier. Links of hosts do not matter."""
        self._queues.set_delays(
            {
                self._devices[name]: delay.nanoseconds
                for name, delay in delays.items()
                if name in self._devices
            }
        )

    def watch(self) -> None:
        """Raise TestbedError if the thread that sends has ended."""
        self._queues.watch()

    def overrun(self) -> int:
        """Count the frames that were lost because they came faster than the queues took them in."""
        with RouteSocket() as route:
            devices = route.devices()
        dropped = sum(devices[name].tx_dropped for name in addresses.CALENDAR_DEVICES if name in devices)
        return self._queues.overrun() + dropped

    def counts(self) -> tuple[CalendarStatus, ...]:
        """Return the counts of the queues that ever had a frame."""
        return self._queues.counts()


class _UnitLink(NamedTuple):
    """A link by which a unit's switch reaches other units: its device at the switch, its port number at the
    optical switch (of a link to the core, the unit's port 0), and its emulated rate in Mb/s, 0: none.
    """

    name: str
    device: str
    number: int
    rate_mbps: float


def _links(topology: Topology) -> Iterator[_UnitLink]:
    for unit in topology.units:
        for port in range(1, unit.optical_ports + 1):
            name = addresses.optical_port_name(unit.index, port)
            device = addresses.optical_device(unit.index, port)
            rate_mbps = topology.emulated_mbps(topology.optical_mbps(name))
            yield _UnitLink(name, device, addresses.oxc_port_number(unit.index, port), rate_mbps or 0.0)
        if topology.core_link:
            name, device = addresses.core_link_name(unit.index), addresses.core_device(unit.index)
            rate_mbps = topology.emulated_mbps(topology.core_mbps(name))
            yield _UnitLink(name, device, addresses.oxc_port_number(unit.index, 0), rate_mbps or 0.0)
