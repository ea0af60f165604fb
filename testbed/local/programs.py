"""The XDP programs at the devices of this machine, read back from the kernel: anybody with the rights in a
host can put another in their place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from testbed.dataplanes.xdp.plane import HostPort, SwitchPort, XdpPlane
from testbed.dataplanes.xdp.syscall import program_name
from testbed.emulation.net import FabricNet
from testbed.emulation.netlink import AttachedProgram
from testbed.emulation.parts import HOST_DEVICE
from testbed.machine.interface import DeviceProgram
from testbed.topology import addresses
from testbed.topology.places import Host


@dataclass(frozen=True, slots=True)
class LocalPrograms:
    """The devices of a fabric, and the plane whose programs are attached there."""

    plane: XdpPlane
    fabric: FabricNet
    switch_ports: Sequence[SwitchPort]
    host_ports: Mapping[Host, HostPort]

    def need(self, program: str) -> None:
        self.plane.programs.need(program)

    def at_switches(self, devices: Collection[str]) -> dict[str, DeviceProgram | None]:
        programs = self.fabric.programs_at_switches()
        return {
            port.device: self._seen(port.program, programs[port.device]) if port.device in programs else None
            for port in self.switch_ports
            if port.device in devices
        }

    def at_host(self, host: Host) -> DeviceProgram:
        program = self.fabric.program_at(addresses.host_name(*host), HOST_DEVICE)
        return self._seen(self.host_ports[host].program, program)

    def attach_at(self, host: Host) -> None:
        self.plane.attach_at(self.host_ports[host])

    def _seen(self, wanted: str, program: AttachedProgram | None) -> DeviceProgram:
        if program is not None and program.number == self.plane.number(wanted):
            return DeviceProgram(wanted, wanted, is_wanted=True, is_there=True)
        is_generic = program is not None and program.is_generic
        return DeviceProgram(wanted, _in_words(program), False, program is not None, is_generic)


def _in_words(program: AttachedProgram | None) -> str:
    if program is None:
        return "no XDP program"
    name = program_name(program.number)
    return f"the XDP program {name!r} ({program.number})" if name else f"XDP program {program.number}"
