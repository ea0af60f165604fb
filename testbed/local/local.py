"""The machine that the daemon is on: its fabric, its data planes, and what is read of its kernel. Runs inside
the testbed's namespaces.

Owns the order in which these come and go.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.cgroups.hierarchy import NO_CGROUPS, Cgroups
from testbed.dataplanes.tors import AllTors
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.control import open_control
from testbed.dataplanes.xdp.hosts import XdpHosts
from testbed.dataplanes.xdp.packet_room import open_room
from testbed.dataplanes.xdp.plane import HostPort, SwitchPort, XdpPlane
from testbed.dataplanes.xdp.program import NATIVE
from testbed.emulation import capture, openvswitch
from testbed.emulation.faults import LinkFaults
from testbed.emulation.links import Progress, set_offloads
from testbed.emulation.loop import Loops
from testbed.emulation.manual_links import LinksByHand
from testbed.emulation.net import FabricNet, silent
from testbed.emulation.pairs import pair
from testbed.emulation.topo import FabricTopo
from testbed.local.counters import KernelCounters
from testbed.local.programs import LocalPrograms
from testbed.local.unit_queues import UnitQueues
from testbed.messages.links import CalendarStatus
from testbed.plugins.registry import sources
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host

PIN_DIR = Path("/sys/fs/bpf/optinc")


class Local:
    """A `Machine` (testbed/machine/interface.py). `log` is a folder, which is there when it is entered;
    `cgroups` and `leaves_devices` are as FabricNet has them.
    """

    pins, bridges = PIN_DIR, openvswitch.RUN_DIR

    def __init__(
        self,
        topology: Topology,
        log: Path,
        progress: Progress = silent,
        cgroups: Cgroups = NO_CGROUPS,
        leaves_devices: bool = False,
    ) -> None:
        self._topology, self._log, self._progress = topology, log, progress
        self._cgroups, self._leaves_devices = cgroups, leaves_devices
        self._stack = ExitStack()
        self.switches = AllTors(topology, log, progress)
        self.counters = KernelCounters()
        self._queues: UnitQueues | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            topology = self._topology
            # programs are compiled beside the fabric
            self.plane = stack.enter_context(XdpPlane(PIN_DIR, topology.mtu, sources("xdp")))
            fabric = FabricNet(
                FabricTopo(topology),
                self._log,
                self._progress,
                cgroups=self._cgroups,
                leaves_devices=self._leaves_devices,
            )
            self.fabric = self.links = self.hosts = stack.enter_context(fabric)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def load(self) -> None:
        switch_ports, host_ports, mtu = self.switch_ports(), self.host_ports(), self._topology.mtu
        self.plane.attach(switch_ports, list(host_ports.values()))
        self.programs = LocalPrograms(self.plane, self.fabric, switch_ports, host_ports)
        if self.plane.programs.mode == NATIVE:
            self._stack.enter_context(pair(addresses.ROOM_DEVICES, mtu))
            open_room(self.plane.programs)
        self._stack.enter_context(pair(addresses.CONTROL_DEVICES, mtu))
        open_control(self.plane.programs)
        if self._topology.has_calendar:
            self._queues = self._stack.enter_context(UnitQueues(self.plane.programs, self._topology))
            self.fabric.follow_rates = self._queues.set_rates
            self.fabric.follow_delays(self._queues.set_delays)
        # attaching a program to a veth turns GRO on
        for port in switch_ports:
            set_offloads(port.device, gro=False)
        cells = Cells(self.plane.programs, self._topology.inc)
        self._stack.enter_context(self.switches.standing(cells))
        namespaces = {host: port.namespace for host, port in host_ports.items()}
        self.rings = XdpHosts(cells, namespaces, Loops(namespaces, mtu))
        self._stack.callback(self.rings.close)

    @property
    def by_hand(self) -> LinksByHand:
        return self.fabric.by_hand

    @property
    def faults(self) -> LinkFaults:
        return self.fabric.faults

    @property
    def datapath(self) -> str:
        return self.fabric.openvswitch.datapath

    def connect(self, port: int) -> None:
        self.fabric.openvswitch.connect(port)

    def watch(self) -> None:
        self.fabric.watch()
        if self._queues:
            self._queues.watch()

    def calendar(self) -> tuple[CalendarStatus, ...]:
        return self._queues.counts() if self._queues else ()

    def calendar_overrun(self) -> int:
        return self._queues.overrun() if self._queues else 0

    def verdicts(self) -> dict[str, int]:
        counts = self.switches.verdicts()
        counts.update(self.plane.verdicts())
        return dict(counts)

    def tap(self, link: str) -> capture.Tap:
        return capture.Tap(capture.link(self._topology, link))

    def switch_ports(self) -> list[SwitchPort]:
        """Return the ports that the fast path's programs are attached to, but for hosts'."""
        tors = [
            SwitchPort(device.dpid, device.number, device.device)
            for device in self.fabric.switch_devices()
            if device.dpid == addresses.CORE_DPID
            or self._topology.unit(addresses.tor_unit(device.dpid)).data_plane.is_bridge
        ]
        return tors + [SwitchPort(None, device.number, device.device) for device in self.fabric.oxc_devices()]

    def host_ports(self) -> dict[Host, HostPort]:
        """Return the hosts' interfaces, which they are attached to as well."""
        return {
            host: HostPort(*host, self.fabric.host_namespace(addresses.host_name(*host)))
            for host in self._topology.hosts
        }
