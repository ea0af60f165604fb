"""A topology as frozen data. `load` reads it from YAML, `catalogue` holds ready ones, `emulation` realises
it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from testbed.encoding import from_json, to_json
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.dataplanes import DATA_PLANES, DataPlane
from testbed.topology.optical import OcsSpec
from testbed.topology.places import Host
from testbed.topology.units import Unit, checked_unit

UNIT_KINDS = ("gpu", "cpu", "optimizer")
CONTROLLERS = ("os-ken", "ryu")  # libraries that the controller process runs on
BMV2_LAYOUTS = ("wide", "registers")


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A kind of link. `rate_mbps` is the declared rate, before the scale; None leaves it unshaped."""

    rate_mbps: float | None
    buffer_packets: int = 256


@dataclass(frozen=True, slots=True)
class IncSpec:
    """In-network computing at each switch: how many jobs it takes at once, the timers of its table of block
    records, and how many records that has; None: those that fit into 64 MiB, 32,768 at most.
    """

    jobs: int = 4
    timers: int = 16
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Bmv2Spec:
    """The P4 switch of units with the engine bmv2: how its program lays out gradients, whether it logs every
    packet, and which `programs` of systems it has beside the core's; None: all that there are.
    """

    layout: str = "wide"
    log: bool = False
    programs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A host: the declared rate of its link, before the scale, None where it is unshaped, and how many of the
    machine's cores the processes at it may use together, None where nothing limits them.
    """

    rate_mbps: float | None
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """A rack: its ToR switch and its hosts. Or a pod of `racks`, with so many `hosts` each: their ToRs, and
    the pod switch above them, which has the optical ports. `unequal` has one HostSpec for each host of a
    rack, or is empty where all of them are as the topology says.
    """

    index: Unit
    kind: str
    hosts: int
    optical_ports: int
    engine: str = "xdp"
    unequal: tuple[HostSpec, ...] = ()
    racks: int = 0  # 0: the unit is a rack
    has_core: bool = False  # whether its switch has a link to the electrical core
    planes: tuple[
        tuple[str, int], ...
    ] = ()  # its optical ports by plane, in their order, where there are some

    @property
    def name(self) -> str:
        return addresses.unit_name(self.index)

    @property
    def data_plane(self) -> DataPlane:
        """The kind of data plane that its switches have."""
        return DATA_PLANES[self.engine]

    @property
    def rack_numbers(self) -> range:
        """The numbers of its racks; 0 alone where it is one."""
        return range(1, self.racks + 1) if self.racks else range(1)

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of its optical ports."""
        return tuple(
            addresses.optical_port_name(self.index, port) for port in range(1, self.optical_ports + 1)
        )

    def ports_in(self, plane: str) -> tuple[str, ...]:
        """The names of its optical ports of a plane; all of them where there are no planes."""
        if not self.planes:
            return self.ports
        names = [name for name, count in self.planes for _ in range(count)]
        return tuple(port for port, name in zip(self.ports, names, strict=True) if name == plane)

    @property
    def links(self) -> tuple[str, ...]:
        """The names of its links: of hosts, of a pod's racks, of optical ports, and to the core."""
        hosts = [addresses.host_name(self.index, number) for number in self.numbers]
        racks = [addresses.rack_name(self.index, rack) for rack in self.rack_numbers] if self.racks else []
        core = [addresses.core_link_name(self.index)] if self.has_core else []
        return (*hosts, *racks, *self.ports, *core)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its hosts within it, by rack."""
        return tuple(number for rack in self.rack_numbers for number in self._numbers_in(rack))

    @property
    def members(self) -> tuple[Host, ...]:
        """Its hosts, by rack."""
        return tuple((self.index, number) for number in self.numbers)

    @property
    def switches(self) -> tuple[Dpid, ...]:
        """Its own switch, and in a pod the racks' ToRs after that."""
        racks = (0, *self.rack_numbers) if self.racks else (0,)
        return tuple(addresses.tor_dpid(self.index, rack) for rack in racks)

    @property
    def tor_ports(self) -> dict[str, int]:
        """The ports of its own switch: device -> number."""
        return self.ports_of(addresses.tor_dpid(self.index))

    def ports_of(self, dpid: Dpid) -> dict[str, int]:
        """The ports of one of its switches: device -> number."""
        unit, rack = self.index, addresses.tor_rack(dpid)
        ports: dict[str, int] = {}
        if rack in self.rack_numbers:
            for host in self._numbers_in(rack):
                ports[addresses.tor_port_device(unit, host)] = addresses.tor_port_number(host)
        if rack:
            ports[addresses.uplink_device(unit, rack)] = addresses.uplink_number()
            return ports
        for below in self.rack_numbers if self.racks else ():
            ports[addresses.rack_device(unit, below)] = addresses.rack_number(below)
        for port in range(1, self.optical_ports + 1):
            ports[addresses.optical_device(unit, port)] = addresses.optical_number(port)
        if self.has_core:
            ports[addresses.core_device(unit)] = addresses.optical_number(addresses.CORE_WAY)
        return ports

    def _numbers_in(self, rack: int) -> list[int]:
        return [addresses.in_rack(rack, host) for host in range(1, self.hosts + 1)]


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole testbed. `link_rates` has, by the names of links whose declared rate is one of their own, that
    rate, before the scale; None where it is unshaped.
    """

    name: str
    units: tuple[UnitSpec, ...]
    host_link: LinkSpec
    optical_link: LinkSpec
    ocs: OcsSpec
    inc: IncSpec
    scale: int = 1
    mtu: int = 1500
    bmv2: Bmv2Spec = Bmv2Spec()
    controller: str = CONTROLLERS[0]
    pod_link: LinkSpec | None = None  # between ToRs and pod switches; None: there are no pods
    link_rates: Mapping[str, float | None] = field(default_factory=dict)
    core_link: LinkSpec | None = None  # between each unit's switch and the core; None: there is no core
    programs: tuple[str, ...] = ()  # data-plane programs of a user's, FILE.py:CLASS with the whole path
    shared: bool = False  # hosts of different users' jobs reach each other

    @property
    def chosen_programs(self) -> dict[str, tuple[str, ...]]:
        """The programs of systems that switches have, by engine, where the configuration chooses some."""
        return {} if self.bmv2.programs is None else {"bmv2": self.bmv2.programs}

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts, by unit and number."""
        return tuple(host for unit in self.units for host in unit.members)

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names of all hosts, by unit and number."""
        return tuple(addresses.host_name(*host) for host in self.hosts)

    @property
    def switches(self) -> tuple[Dpid, ...]:
        """All switches but the optical one, by unit, a pod's own before its ToRs; the core is the last."""
        core = (addresses.CORE_DPID,) if self.core_link else ()
        return (*(dpid for unit in self.units for dpid in unit.switches), *core)

    def host(self, unit: Unit, host: int) -> HostSpec:
        """The host of that number in a unit. KeyError if there is no such unit."""
        unequal = self.unit(unit).unequal
        spec = unequal[addresses.place_in_rack(host) - 1] if unequal else HostSpec(self.host_link.rate_mbps)
        if not self.link_rates:
            return spec
        return replace(spec, rate_mbps=self.link_rates.get(addresses.host_name(unit, host), spec.rate_mbps))

    def optical_mbps(self, port: str) -> float | None:
        """The declared rate of the optical port of that name; None where it is unshaped."""
        return self.link_rates.get(port, self.optical_link.rate_mbps)

    def pod_mbps(self, rack: str) -> float | None:
        """The declared rate of the link of a pod's ToR, by its name, to the pod switch; None where it is
        unshaped.
        """
        return self.link_rates.get(rack, self.pod_link.rate_mbps if self.pod_link else None)

    def core_mbps(self, link: str) -> float | None:
        """The declared rate of the link of that name to the core; None where it is unshaped."""
        return self.link_rates.get(link, self.core_link.rate_mbps if self.core_link else None)

    def emulated_mbps(self, rate_mbps: float | None) -> float | None:
        """The rate that a link of that declared rate really gets; None where it is unshaped."""
        return None if rate_mbps is None else rate_mbps / self.scale

    def emulated_host_mbps(self, unit: Unit, host: int) -> float | None:
        """The rate that the link of a host really gets; None where it is unshaped."""
        return self.emulated_mbps(self.host(unit, host).rate_mbps)

    @property
    def cpu_limits(self) -> dict[str, float]:
        """The cores that the processes at a host may use together, by the names of the hosts that say so."""
        return {
            addresses.host_name(*host): cpus
            for host in self.hosts
            if (cpus := self.host(*host).cpus) is not None
        }

    @property
    def optical_ports(self) -> tuple[str, ...]:
        """Names of all optical ports."""
        return tuple(port for unit in self.units for port in unit.ports)

    @property
    def ports(self) -> dict[Unit, tuple[str, ...]]:
        """Each unit's optical ports."""
        return {unit.index: unit.ports for unit in self.units}

    @property
    def planes(self) -> dict[str, str]:
        """The plane of each optical port, by its name; "" where there is one optical switch."""
        names = self.ocs.planes or ("",)
        planes = {port: name for unit in self.units for name in names for port in unit.ports_in(name)}
        return {port: planes[port] for port in self.optical_ports}

    @property
    def scheduled_ports(self) -> dict[Unit, tuple[str, ...]]:
        """Each unit's optical ports of the plane whose circuits policies decide on: the first."""
        return {unit.index: unit.ports_in(self.first_plane) for unit in self.units}

    @property
    def first_plane(self) -> str:
        return self.ocs.planes[0] if self.ocs.planes else ""

    @property
    def engines(self) -> dict[Unit, str]:
        """The engine of each unit, and of the core, which sums nothing."""
        core = {addresses.CORE_UNIT: "none"} if self.core_link else {}
        return {unit.index: unit.engine for unit in self.units} | core

    def units_with(self, engine: str) -> tuple[UnitSpec, ...]:
        """The units whose switches sum with this engine."""
        return tuple(unit for unit in self.units if unit.engine == engine)

    def unit(self, index: Unit) -> UnitSpec:
        """The unit of that index. KeyError if there is none."""
        for unit in self.units:
            if unit.index == index:
                return unit
        raise KeyError(index)

    def to_json(self) -> str:
        """Text that `from_json` reads back to an equal topology. Of pods, of links with a rate of their
        own and of a core it has words only where there are some.
        """
        data = {**to_json(self), "ocs": self.ocs.as_json()}
        for unit in data["units"]:
            if not unit["racks"]:
                del unit["racks"]
        if self.pod_link is None:
            del data["pod_link"]
        if not self.link_rates:
            del data["link_rates"]
        if self.core_link is None:
            del data["core_link"]
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Topology:
        """The inverse of `to_json`, also for what an earlier version wrote."""
        checks = {Unit: checked_unit, OcsSpec: OcsSpec.of_json}
        return from_json(cls, json.loads(text), checks, defaults=True)


def ring_circuits(units: tuple[UnitSpec, ...]) -> tuple[tuple[str, str], ...]:
    """Circuits that join the units in a ring, or in a line where a unit has one port only, on each plane;
    those without ports are left out.
    """
    names = list(dict.fromkeys(name for unit in units for name, _ in unit.planes)) or [""]
    return tuple(circuit for name in names for circuit in _ring([unit.ports_in(name) for unit in units]))


def _ring(every: list[tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    left = [list(ports) for ports in every if ports]
    pairs = [*itertools.pairwise(left), *([(left[-1], left[0])] if len(left) > 2 else [])]
    for a, b in pairs:
        if a and b:
            yield a.pop(0), b.pop(0)
