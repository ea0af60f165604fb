"""The XDP programs at the devices of a network, read back before each start of a job and while it runs:
anybody with the rights in a host can put another in their place, and the job would wait for results that
nobody takes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.aggregation.system import Layout
from testbed.client.environment import typed
from testbed.dataplanes.xdp.plane import HostPort, SwitchPort, XdpPlane
from testbed.dataplanes.xdp.program import QUESTIONS
from testbed.dataplanes.xdp.syscall import program_name
from testbed.emulation.net import FabricNet
from testbed.emulation.netlink import AttachedProgram
from testbed.errors import ChangedError
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.wire.recovery import Recovery

HOST_DEVICE = "eth0"


@dataclass(frozen=True, slots=True)
class DevicePrograms:
    """The devices of the network of the testbed of this name, and the plane whose programs are attached
    there. Thread-safe.
    """

    name: str
    topology: Topology
    plane: XdpPlane
    fabric: FabricNet
    switch_ports: Sequence[SwitchPort]
    host_ports: Sequence[HostPort]
    lock: threading.Lock

    def require(self, layout: Layout, recovery: Recovery) -> list[str]:
        """Load what few jobs have use for, if this one has: before its admission, since others' wait for one.
        Raise ChangedError, in one line, where another program is at a device of a job's hosts or units, or
        none at a switch's, or such a device is gone. Where a host's has none, attach it again, and return a
        line that says so.
        """
        for what in {*layout.programs.values(), *([QUESTIONS] if recovery == Recovery.INTEGRITY else [])}:
            self.plane.programs.need(what)
        with self.lock:
            programs = self.fabric.programs_at_switches()
            for port in self._switch_ports_of(layout):
                if port.device not in programs:
                    raise ChangedError(
                        f"switch port {port.device} was deleted: end the testbed, and bring it up again"
                    )
                if self._other(port.program, programs[port.device]):
                    raise ChangedError(
                        f"switch port {port.device} has {_in_words(programs[port.device])}, and not the "
                        f"testbed's {port.program}: end the testbed, and bring it up again"
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
            exec_ = typed("exec", self.name, anywhere=True)
            remedy = f"sudo {exec_} {name} ip link set dev {HOST_DEVICE} {mode} off"
            raise ChangedError(
                f"host {name}: {HOST_DEVICE} has {_in_words(program)}, and not the testbed's {port.program}: "
                f"detach it ({remedy}), and start the job again"
            )
        return line

    def _other(self, name: str, program: AttachedProgram | None) -> bool:
        return program is None or program.number != self.plane.number(name)

    def _switch_ports_of(self, layout: Layout) -> list[SwitchPort]:
        """Return the ports of a job's hosts, and all of its units that lead to no host."""
        units = {host[0] for host in layout.hosts()} | {unit for pair in layout.demands for unit in pair}
        units |= {place.unit for place in layout.forest.places} if layout.forest else set()
        used = {addresses.tor_port_device(*host) for host in layout.hosts()}
        for unit in units & {spec.index for spec in self.topology.units}:
            spec = self.topology.unit(unit)
            to_hosts = {addresses.tor_port_device(*host) for host in spec.members}
            used |= {device for dpid in spec.switches for device in spec.ports_of(dpid)} - to_hosts
            used |= {addresses.oxc_device(unit, port + 1) for port in range(spec.optical_ports)}
        return [port for port in self.switch_ports if port.device in used]


def _in_words(program: AttachedProgram | None) -> str:
    if program is None:
        return "no XDP program"
    name = program_name(program.number)
    return f"the XDP program {name!r} ({program.number})" if name else f"XDP program {program.number}"
