"""A topology as frozen data. `load` reads it from YAML, `catalogue` has ready-made ones, `emulation` builds
it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from testbed.encoding import from_json, to_json
from testbed.keys import (
    NEEDED,
    ByName,
    Either,
    HostName,
    ListOf,
    Name,
    Names,
    Parameter,
    Percentage,
    PowerOfTwo,
    ProgramFiles,
    Quantity,
    Rate,
    Section,
    ShellLine,
    Time,
    Whole,
    WholeOrWord,
    Word,
    YesNo,
    key,
    keys_of,
    section_of,
)
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.dataplanes import DATA_PLANES, ENGINES, DataPlane
from testbed.topology.optical import USUAL_KEYS, OcsSpec
from testbed.topology.places import Host
from testbed.topology.units import Unit, checked_unit
from testbed.topology.values import AUTO_SCALE
from testbed.wire.spec import MAX_MTU, ONE_BUFFER_MTU

UNIT_KINDS = ("gpu", "cpu", "optimizer")
MIN_CPUS, MAX_CPUS = 0.05, 1024.0  # the kernel's least quota is 1 ms of each period of 100 ms
CONTROLLERS = ("os-ken", "ryu")  # OpenFlow libraries of the controller process
BMV2_LAYOUTS = ("wide", "registers")
_PORTS = Whole(0, addresses.MAX_OPTICAL_PORTS_PER_UNIT)
_PORTS_OF_PLANES = Either(_PORTS, ByName("plane", _PORTS))


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A kind of link. `rate_mbps` is the declared rate, before the scale; None: unshaped."""

    rate_mbps: float | None = field(
        metadata=key(Rate(), "declared rate of each unit's link to the core", usual="as `host_rate_mbps`")
    )
    buffer_packets: int = field(
        default=256,
        metadata=key(Whole(16, 10_000), "how many packets the queue of each direction of a link holds"),
    )


LEAST_RECORDS, MOST_RECORDS = 1024, 65536  # records of a table of block records


@dataclass(frozen=True, slots=True)
class IncSpec:
    """In-network computing at each switch: how many jobs it accepts at once, the timers of its table of block
    records, and the table's size; None: as many records as fit into 64 MiB, at most 32,768.
    """

    jobs: int = field(
        default=4,
        metadata=key(
            Whole(1, 32),
            "the number of jobs for which a switch sums at once; each job gets 1024 / jobs slots, however "
            "many slots the groups of other jobs use",
        ),
    )
    timers: int = field(
        default=16,
        metadata=key(Whole(1, 100), "number of timers that each XDP switch has for block records"),
    )
    blocks: int | None = field(
        default=None,
        metadata=key(
            PowerOfTwo(LEAST_RECORDS, MOST_RECORDS),
            "number of block records of each switch that has any",
            usual="as many as fit into 64 MiB",
        ),
    )


@dataclass(frozen=True, slots=True)
class Bmv2Spec:
    """The P4 switch of units with the engine bmv2: its program's layout of gradients, whether it logs every
    packet, and its systems' `programs` beside the core's; None: all that exist.
    """

    layout: str = field(
        default=BMV2_LAYOUTS[0],
        metadata=key(
            Word(BMV2_LAYOUTS),
            "how the P4 program stores gradients: 64 in one register, added at once (`wide`), or each in a "
            "register of its own (`registers`)",
        ),
    )
    log: bool = field(
        default=False,
        metadata=key(
            YesNo(), "log the way of every packet through the P4 program, in the testbed's log folder (slow)"
        ),
    )
    programs: tuple[str, ...] | None = field(
        default=None,
        metadata=key(
            Names("programs"),
            "programs of systems that the P4 program includes, beside the sum; with fewer of them, every "
            "packet takes less time ([p4.md](p4.md))",
            usual="all: `blocks` and `owned`",
        ),
    )


@dataclass(frozen=True, slots=True)
class LinkStart:
    """A link of a configuration that says more than its rate: the delay and the faults that it has from the
    start, in both directions. Shares are 0 to 1, of frames; times are real, not scaled.
    """

    own_rate: ClassVar[Parameter] = Parameter(
        "rate_mbps", Rate(), None, "its declared rate", usual="as other links of its kind"
    )
    delay_ms: float = field(
        default=0.0,
        metadata=key(Time(), "delay of each frame, in each direction", name="delay", usual="none"),
    )
    jitter_ms: float = field(
        default=0.0,
        metadata=key(
            Time(), "by how much a frame's delay is longer or shorter, at random", name="jitter", usual="none"
        ),
    )
    loss: float = field(default=0.0, metadata=key(Percentage(), "frames that are lost", usual="none"))
    duplicate: float = field(
        default=0.0, metadata=key(Percentage(), "frames that are sent twice", usual="none")
    )
    reorder: float = field(
        default=0.0, metadata=key(Percentage(), "frames that are sent later", usual="none")
    )
    corrupt: float = field(
        default=0.0, metadata=key(Percentage(), "frames of which a bit is flipped", usual="none")
    )
    distance: int = field(
        default=50, metadata=key(Whole(1, 10_000), "a reordered frame is sent so many frames later")
    )
    seed: int = field(default=1, metadata=key(Whole(0, 2**63 - 1), "seed of the faults' draws"))

    @property
    def has_fault(self) -> bool:
        return any((self.loss, self.duplicate, self.reorder, self.corrupt))


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A host: the declared rate of its link, before the scale (None: unshaped), how many of the machine's
    cores its processes may use together (None: no limit), its second name, and the command that it runs from
    the start.
    """

    rate_mbps: float | None = field(
        metadata=key(Rate(), "declared rate of the host's link", usual="as the unit's hosts")
    )
    cpus: float | None = field(
        default=None,
        metadata=key(
            Quantity(MIN_CPUS, MAX_CPUS, "a number of cores"),
            "how many cores of the machine all processes of the host may use together",
            usual="no limit",
        ),
    )
    name: str | None = field(
        default=None,
        metadata=key(HostName(), "a second name, by which programs in the testbed find it", usual="none"),
    )
    exec: str | None = field(
        default=None,
        metadata=key(
            ShellLine(),
            "a command line that it runs from the start to the end of the testbed, as the testbed's user",
            usual="none",
        ),
    )


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """A rack: a ToR switch and its hosts. Or a pod of `racks`, each with that many `hosts` and a ToR, and
    above them the pod switch, which has the optical ports. `unequal` has one HostSpec for each host of a
    rack; empty: all are as the topology says.
    """

    index: Unit
    kind: str = field(metadata=key(Word(UNIT_KINDS), "kind of the unit's machines", default=UNIT_KINDS[0]))
    racks: int = field(
        default=0,
        kw_only=True,
        metadata=key(
            Whole(1, addresses.MAX_RACKS_PER_POD),
            "number of racks, if the unit is a pod; each rack has `hosts` hosts, and a pod switch "
            "joins the racks",
            usual="it is a rack",
        ),
    )
    hosts: int = field(
        metadata=key(
            Either(
                Whole(1, addresses.MAX_HOSTS_PER_UNIT),
                ListOf("hosts", section_of(HostSpec), 1, addresses.MAX_HOSTS_PER_UNIT),
            ),
            "how many hosts a rack has, or a list of hosts that differ",
            usual=NEEDED,
        )
    )
    own_rate: ClassVar[Parameter] = Parameter(
        "rate_mbps",
        Rate(),
        None,
        "declared rate of all links of the unit that have no rate of their own",
        usual="none",
    )
    optical_ports: int = field(
        metadata=key(
            _PORTS_OF_PLANES, "number of the unit's optical ports", usual="as all units' `optical_ports`"
        )
    )
    engine: str = field(
        default=ENGINES[0],
        metadata=key(Word(ENGINES), "the data plane of the unit's switches; with `none` they do not sum"),
    )
    unequal: tuple[HostSpec, ...] = ()
    has_core: bool = False  # whether its switch has a link to the electrical core
    planes: tuple[tuple[str, int], ...] = ()  # if there are planes: its optical ports by plane, in order

    @property
    def name(self) -> str:
        return addresses.unit_name(self.index)

    @property
    def data_plane(self) -> DataPlane:
        """The data plane of its switches."""
        return DATA_PLANES[self.engine]

    @property
    def rack_numbers(self) -> range:
        """The numbers of its racks; just 0 if it is itself a rack."""
        return range(1, self.racks + 1) if self.racks else range(1)

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of its optical ports."""
        return tuple(
            addresses.optical_port_name(self.index, port) for port in range(1, self.optical_ports + 1)
        )

    def ports_in(self, plane: str) -> tuple[str, ...]:
        """Return the names of its optical ports of a plane; all of them if there are no planes."""
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
        """Its own switch, then, in a pod, its racks' ToRs."""
        racks = (0, *self.rack_numbers) if self.racks else (0,)
        return tuple(addresses.tor_dpid(self.index, rack) for rack in racks)

    @property
    def tor_ports(self) -> dict[str, int]:
        """The ports of its own switch: device -> number."""
        return self.ports_of(addresses.tor_dpid(self.index))

    def ports_of(self, dpid: Dpid) -> dict[str, int]:
        """Return the ports of one of its switches: device -> number."""
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
    """A whole testbed. `pod_link` is between ToRs and pod switches, None if there are no pods; `core_link` is
    between units and the core, None if there is no core. `link_rates` has the rates, before the scale (None:
    unshaped), of links with their own declared rate, by name; `link_starts` the delays and faults of links
    that have some from the start. `programs` have absolute paths.
    """

    name: str = field(
        metadata=key(Name(), "the configuration's name in status and results", usual="the file's name")
    )
    units: tuple[UnitSpec, ...] = field(
        metadata=key(
            ListOf("units", section_of(UnitSpec), 1, addresses.MAX_UNITS),
            "racks or pods, named u1, u2, ... in this order",
            usual=NEEDED,
        )
    )
    host_link: LinkSpec = field(
        metadata=key(
            Rate(), "declared rate of a host's link, before the scale", name="host_rate_mbps", default=40_000
        )
    )
    optical_link: LinkSpec = field(
        metadata=key(
            Rate(),
            "declared rate of an optical port's link, before the scale",
            name="optical_rate_mbps",
            usual="as `host_rate_mbps`",
        )
    )
    pod_link: LinkSpec | None = field(
        default=None,
        kw_only=True,
        metadata=key(
            Rate(),
            "declared rate of a link between a pod's ToR and the pod switch, before the scale",
            name="pod_rate_mbps",
            usual="as `host_rate_mbps`",
        ),
    )
    link_rates: Mapping[str, float | None] = field(
        default_factory=dict,
        kw_only=True,
        metadata=key(
            ByName("link", Either(Rate(), section_of(LinkStart))),
            "declared rates of single links, which replace all other rates of these links; or the rate, the "
            "delay and the faults of each",
            name="links",
        ),
    )
    link_starts: Mapping[str, LinkStart] = field(default_factory=dict, kw_only=True)
    core_link: LinkSpec | None = field(
        default=None,
        kw_only=True,
        metadata=key(
            Section((keys_of(LinkSpec)["rate_mbps"],)),
            "an electrical core beside the optical switch",
            name="core",
        ),
    )
    usual_ports: ClassVar[Parameter] = Parameter(
        "optical_ports",
        _PORTS_OF_PLANES,
        2,
        "number of optical ports of each unit without such a key of its own",
    )
    queues: ClassVar[Parameter] = keys_of(LinkSpec)["buffer_packets"]
    ocs: OcsSpec = field(metadata=key(USUAL_KEYS, "the optical switch; its times are not scaled"))
    inc: IncSpec = field(metadata=key(section_of(IncSpec), "how switches sum"))
    scale: int = field(
        default=1,
        metadata=key(
            WholeOrWord(1, 100_000, "auto", AUTO_SCALE),
            "the declared rates of links are divided by this number: with 200, 40 Gb/s become 200 Mb/s; with "
            "`auto`, `testbed up` measures which number these cores keep up with ([scale](#scale-auto))",
            default=200,
        ),
    )
    mtu: int = field(
        default=1500,
        metadata=key(
            Whole(1280, MAX_MTU),
            "largest size of a packet in bytes, which packets of gradients have; beyond 3476 XDP runs in "
            "generic mode; with the engine bmv2, values other than 1500, 3476 and 9000 need p4c "
            "([p4.md](p4.md))",
        ),
    )
    bmv2: Bmv2Spec = field(
        default=Bmv2Spec(),
        metadata=key(section_of(Bmv2Spec), "the P4 switch of units with the engine bmv2"),
    )
    controller: str = field(
        default=CONTROLLERS[0],
        metadata=key(
            Word(CONTROLLERS), "the library that the OpenFlow controller runs on; `make ryu` installs ryu"
        ),
    )
    programs: tuple[str, ...] = field(
        default=(),
        metadata=key(
            ProgramFiles(), "data-plane programs of your own: [your-own-system.md](your-own-system.md)"
        ),
    )
    shared: bool = field(
        default=False,
        metadata=key(
            YesNo(), "whether hosts of different users' jobs reach each other: [security.md](security.md)"
        ),
    )

    @property
    def chosen_programs(self) -> dict[str, tuple[str, ...]]:
        """The systems' programs of switches, by engine, if the configuration chooses some."""
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
        """All switches but the optical one, by unit, a pod's own before its ToRs; last the core, if there is
        one.
        """
        core = (addresses.CORE_DPID,) if self.core_link else ()
        return (*(dpid for unit in self.units for dpid in unit.switches), *core)

    def host(self, unit: Unit, host: int) -> HostSpec:
        """Return the host of that number in a unit. Raises KeyError if there is no such unit."""
        unequal = self.unit(unit).unequal
        spec = unequal[addresses.place_in_rack(host) - 1] if unequal else HostSpec(self.host_link.rate_mbps)
        if not self.link_rates:
            return spec
        return replace(spec, rate_mbps=self.link_rates.get(addresses.host_name(unit, host), spec.rate_mbps))

    def optical_mbps(self, port: str) -> float | None:
        """Return the declared rate of the optical port of that name; None if it is unshaped."""
        return self.link_rates.get(port, self.optical_link.rate_mbps)

    def pod_mbps(self, rack: str) -> float | None:
        """Return the declared rate of the link from a pod's ToR, by its name, to the pod switch; None if it
        is unshaped.
        """
        return self.link_rates.get(rack, self.pod_link.rate_mbps if self.pod_link else None)

    def core_mbps(self, link: str) -> float | None:
        """Return the declared rate of the link of that name to the core; None if it is unshaped."""
        return self.link_rates.get(link, self.core_link.rate_mbps if self.core_link else None)

    def emulated_mbps(self, rate_mbps: float | None) -> float | None:
        """Return the emulated rate of a link with that declared rate; None if it is unshaped."""
        return None if rate_mbps is None else rate_mbps / self.scale

    def emulated_host_mbps(self, unit: Unit, host: int) -> float | None:
        """Return the emulated rate of a host's link; None if it is unshaped."""
        return self.emulated_mbps(self.host(unit, host).rate_mbps)

    def declared_mbps(self, link: str) -> float | None:
        """Return the declared rate of the link of that name; None if it is unshaped. Raises KeyError if there
        is no such link.
        """
        for unit in self.units:
            for host in unit.members:
                if addresses.host_name(*host) == link:
                    return self.host(*host).rate_mbps
            if link in unit.ports:
                return self.optical_mbps(link)
            if link in unit.links:
                return (
                    self.core_mbps(link)
                    if link == addresses.core_link_name(unit.index)
                    else self.pod_mbps(link)
                )
        raise KeyError(link)

    @property
    def commands(self) -> dict[str, str]:
        """The command lines that hosts run from the start, by host."""
        lines = {addresses.host_name(*host): self.host(*host).exec for host in self.hosts}
        return {host: line for host, line in lines.items() if line is not None}

    @property
    def second_names(self) -> dict[str, str]:
        """The hosts that have a second name, by that name in lower case."""
        names = {addresses.host_name(*host): self.host(*host).name for host in self.hosts}
        return {name.lower(): host for host, name in names.items() if name is not None}

    @property
    def cpu_limits(self) -> dict[str, float]:
        """The cores that a host's processes may use together, by host, for hosts with a limit."""
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
    def has_calendar(self) -> bool:
        """Return whether packets for other units wait for their slot while a timetable runs. A timetable
        needs XDP in every unit, and the queues need frames of one buffer.
        """
        by_clock = bool(self.optical_ports) and all(unit.data_plane.is_bridge for unit in self.units)
        return by_clock and self.ocs.calendar_packets > 0 and self.mtu <= ONE_BUFFER_MTU

    @property
    def ports(self) -> dict[Unit, tuple[str, ...]]:
        """Each unit's optical ports."""
        return {unit.index: unit.ports for unit in self.units}

    @property
    def planes(self) -> dict[str, str]:
        """The plane of each optical port, by name; "" if there is one optical switch."""
        names = self.ocs.planes or ("",)
        planes = {port: name for unit in self.units for name in names for port in unit.ports_in(name)}
        return {port: planes[port] for port in self.optical_ports}

    @property
    def scheduled_ports(self) -> dict[Unit, tuple[str, ...]]:
        """Each unit's optical ports of the first plane, for whose circuits policies decide."""
        return {unit.index: unit.ports_in(self.first_plane) for unit in self.units}

    @property
    def first_plane(self) -> str:
        """The name of the first plane; "" if there is one optical switch."""
        return self.ocs.planes[0] if self.ocs.planes else ""

    @property
    def engines(self) -> dict[Unit, str]:
        """The engine of each unit, and of the core, which sums nothing."""
        core = {addresses.CORE_UNIT: "none"} if self.core_link else {}
        return {unit.index: unit.engine for unit in self.units} | core

    def units_with(self, engine: str) -> tuple[UnitSpec, ...]:
        """Return the units with this engine."""
        return tuple(unit for unit in self.units if unit.engine == engine)

    def unit(self, index: Unit) -> UnitSpec:
        """Return the unit of that index. Raises KeyError if there is none."""
        for unit in self.units:
            if unit.index == index:
                return unit
        raise KeyError(index)

    def to_json(self) -> str:
        """Encode as text, which `from_json` decodes to an equal topology. Pods, links with their own rate,
        and a core are included only if there are some.
        """
        data = {**to_json(self), "ocs": self.ocs.as_json()}
        for unit in data["units"]:
            if not unit["racks"]:
                del unit["racks"]
        if self.pod_link is None:
            del data["pod_link"]
        if not self.link_rates:
            del data["link_rates"]
        if not self.link_starts:
            del data["link_starts"]
        if self.core_link is None:
            del data["core_link"]
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Topology:
        """Decode the text of `to_json`, also that of an earlier version."""
        checks = {Unit: checked_unit, OcsSpec: OcsSpec.of_json}
        return from_json(cls, json.loads(text), checks, defaults=True)


def ring_circuits(units: tuple[UnitSpec, ...]) -> tuple[tuple[str, str], ...]:
    """Return circuits that join the units in a ring on each plane, or in a line where a unit has one port
    only; units without ports are skipped.
    """
    names = list(dict.fromkeys(name for unit in units for name, _ in unit.planes)) or [""]
    return tuple(circuit for name in names for circuit in _ring([unit.ports_in(name) for unit in units]))


def _ring(every: list[tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    unused = [list(ports) for ports in every if ports]
    pairs = [*itertools.pairwise(unused), *([(unused[-1], unused[0])] if len(unused) > 2 else [])]
    for a, b in pairs:
        if a and b:
            yield a.pop(0), b.pop(0)
