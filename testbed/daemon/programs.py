"""The XDP programs at the devices of a network, read back before each start of a job and while it runs:
anybody with the rights in a host can put another in their place, and the job would wait for results that
nobody takes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from testbed.aggregation.system import Layout
from testbed.client.environment import typed
from testbed.errors import ChangedError
from testbed.machine.interface import ProgramsAtDevices
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host
from testbed.wire.recovery import QUESTIONS, Recovery

HOST_DEVICE = "eth0"


@dataclass(frozen=True, slots=True)
class DevicePrograms:
    """The devices that the jobs of the testbed of this name use, and the programs that are attached there.
    Thread-safe.
    """

    name: str
    topology: Topology
    programs: ProgramsAtDevices
    lock: threading.Lock

    def require(self, layout: Layout, recovery: Recovery) -> list[str]:
        """Load what few jobs have use for, if this one has: before its admission, since others' wait for one.
        Raise ChangedError, in one line, where another program is at a device of a job's hosts or units, or
        none at a switch's, or such a device is gone. Where a host's has none, attach it again, and return a
        line that says so.
        """
        for what in {*layout.programs.values(), *([QUESTIONS] if recovery == Recovery.INTEGRITY else [])}:
            self.programs.need(what)
        with self.lock:
            for device, program in self.programs.at_switches(self._devices_of(layout)).items():
                if program is None:
                    raise ChangedError(
                        f"switch port {device} was deleted: end the testbed, and bring it up again"
                    )
                if not program.is_wanted:
                    raise ChangedError(
                        f"switch port {device} has {program.at_hand}, and not the "
                        f"testbed's {program.wanted}: end the testbed, and bring it up again"
                    )
            held = layout.hosts()
            return [line for host in self.topology.hosts if host in held and (line := self._require_at(host))]

    def _require_at(self, host: Host) -> str | None:
        name = addresses.host_name(*host)
        program, line = self.programs.at_host(host), None
        if not program.is_there:
            self.programs.attach_at(host)
            program = self.programs.at_host(host)
            line = f"host {name}: {HOST_DEVICE} had no XDP program any more; the testbed's is there again"
        if not program.is_wanted:
            mode = "xdpgeneric" if program.is_generic else "xdp"
            exec_ = typed("exec", self.name, anywhere=True)
            remedy = f"sudo {exec_} {name} ip link set dev {HOST_DEVICE} {mode} off"
            raise ChangedError(
                f"host {name}: {HOST_DEVICE} has {program.at_hand}, and not the testbed's {program.wanted}: "
                f"detach it ({remedy}), and start the job again"
            )
        return line

    def _devices_of(self, layout: Layout) -> set[str]:
        """Return the switch ports of a job's hosts, and all of its units that lead to no host."""
        units = {host[0] for host in layout.hosts()} | {unit for pair in layout.demands for unit in pair}
        units |= {place.unit for place in layout.forest.places} if layout.forest else set()
        used = {addresses.tor_port_device(*host) for host in layout.hosts()}
        for unit in units & {spec.index for spec in self.topology.units}:
            spec = self.topology.unit(unit)
            to_hosts = {addresses.tor_port_device(*host) for host in spec.members}
            used |= {device for dpid in spec.switches for device in spec.ports_of(dpid)} - to_hosts
            used |= {addresses.oxc_device(unit, port + 1) for port in range(spec.optical_ports)}
        return used
