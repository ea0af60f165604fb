"""The XDP programs at the devices of a network, read back before each start of a job: anybody with the rights
in a host can put another in their place, and the job would wait for results that nobody takes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.aggregation.system import Layout
from testbed.dataplanes.xdp.plane import HostPort, SwitchPort, XdpPlane
from testbed.dataplanes.xdp.syscall import program_name
from testbed.emulation.net import FabricNet
from testbed.emulation.netlink import AttachedProgram
from testbed.errors import TestbedError
from testbed.topology import addresses
from testbed.topology.model import Topology

HOST_DEVICE = "eth0"


@dataclass(frozen=True, slots=True)
class DevicePrograms:
    """The devices of a network, and the plane whose programs are attached there. Thread-safe."""

    topology: Topology
    plane: XdpPlane
    fabric: FabricNet
    switch_ports: Sequence[SwitchPort]
    host_ports: Sequence[HostPort]
    lock: threading.Lock

    def require(self, layout: Layout) -> list[str]:
        """Raise TestbedError, in one line, where another program is at a device of a job's hosts or units, or
        none at a switch's. Where a host's has none, attach it again, and return a line that says so.
        """
        units = {host[0] for host in layout.hosts()} | {unit for pair in layout.demands for unit in pair}
        units |= {place.unit for place in layout.forest.places} if layout.forest else set()
        devices = {device for unit in units for device in self._devices_of(unit)}
        with self.lock:
            at_switches = self.fabric.programs_at_switches()
            for port in self.switch_ports:
                if port.device in devices and self._other(port.program, at_switches.get(port.device)):
                    words = _in_words(at_switches.get(port.device))
                    raise TestbedError(
                        f"switch port {port.device} has {words}, and not the testbed's {port.program}: end "
                        f"the testbed, and bring it up again"
                    )
            held = layout.hosts()
            return [
                line
                for port in self.host_ports
                if (port.unit, port.host) in held and (line := self._require_at(port))
            ]

    def _require_at(self, port: HostPort) -> str | None:
        name = addresses.host_name(port.unit, port.host)
        program, line = self.fabric.program_at(name, HOST_DEVICE), None
        if program is None:
            self.plane.attach_at(port)
            program = self.fabric.program_at(name, HOST_DEVICE)
            line = f"host {name}: {HOST_DEVICE} had no XDP program any more; the testbed's is there again"
        if self._other(port.program, program):
            mode = "xdpgeneric" if program and program.is_generic else "xdp"
            raise TestbedError(
                f"host {name}: {HOST_DEVICE} has {_in_words(program)}, and not the testbed's {port.program}: "
                f"detach it (sudo testbed exec {name} -- ip link set dev {HOST_DEVICE} {mode} off), and "
                "start the job again"
            )
        return line

    def _other(self, name: str, program: AttachedProgram | None) -> bool:
        return program is None or program.number != self.plane.number(name)

    def _devices_of(self, unit: int) -> list[str]:
        spec = next((each for each in self.topology.units if each.index == unit), None)
        if spec is None:
            return []
        optical = range(1, spec.optical_ports + 1)
        at_switches = [device for dpid in spec.switches for device in spec.ports_of(dpid)]
        return [*at_switches, *(addresses.oxc_device(spec.index, port) for port in optical)]


def _in_words(program: AttachedProgram | None) -> str:
    if program is None:
        return "no XDP program"
    name = program_name(program.number)
    return f"the XDP program {name!r} ({program.number})" if name else f"XDP program {program.number}"
