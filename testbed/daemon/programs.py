"""Check the XDP programs on a network's devices before each start of a job and while it runs: any process
with the rights in a host can replace them, and the job would wait for results that nobody receives.
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
    """The devices that jobs of the testbed `name` use, and the programs attached to them. Thread-safe."""

    name: str
    topology: Topology
    programs: ProgramsAtDevices
    lock: threading.Lock

    def require(self, layout: Layout, recovery: Recovery) -> list[str]:
        """Check the programs on the devices of a job's hosts and units. First load programs that only few
        jobs use, if this job does; this precedes its admission, since other jobs' admissions would wait.
        ChangedError, in one line, if a device has a foreign program, a switch's device has none, or a device
        is gone. If a host's device has none, attach the testbed's again and return a line that says so.
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
        """Return the switch ports of a job's hosts, and all ports of its units that lead to no host."""
        units = {host[0] for host in layout.hosts()} | {unit for pair in layout.demands for unit in pair}
        units |= {place.unit for place in layout.forest.places} if layout.forest else set()
        used = {addresses.tor_port_device(*host) for host in layout.hosts()}
        for unit in units & {spec.index for spec in self.topology.units}:
            spec = self.topology.unit(unit)
            to_hosts = {addresses.tor_port_device(*host) for host in spec.members}
            used |= {device for dpid in spec.switches for device in spec.ports_of(dpid)} - to_hosts
            used |= {addresses.oxc_device(unit, port + 1) for port in range(spec.optical_ports)}
        return used
