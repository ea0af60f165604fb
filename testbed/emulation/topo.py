"""Describe a testbed in Mininet's terms: `FabricTopo` is a mininet.topo.Topo of units, hosts and optical
links.

It is made from a Topology, or by a user's subclass whose `build` calls addUnit, or addSwitch, addHost and
addLink. Either way its `topology` obeys the rules of a YAML file. Names are the testbed's, since addresses
derive from them: switches u1, u2, ... and oxc, hosts u1h1, u1h2, ..., and in a pod the racks' ToRs u1r1,
u1r2, ... and hosts u1r1h1, u1r1h2, ... Pure: makes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from mininet.topo import Topo

from testbed.emulation.parts import HOST_DEVICE, PREFIX
from testbed.errors import RequestError
from testbed.topology import addresses
from testbed.topology.addresses import CORE_BRIDGE, OXC_BRIDGE, host_name, rack_name, unit_name
from testbed.topology.fields import is_number, shown
from testbed.topology.load import parse
from testbed.topology.model import Topology
from testbed.topology.places import Host
from testbed.topology.units import Unit
from testbed.topology.yaml_form import words

_HOST = re.compile(r"(u[0-9]+(?:r[0-9]+)?)h([1-9][0-9]{0,2})")
_UNADDRESSED = {
    "addr1": None,
    "addr2": None,
}  # otherwise Mininet invents addresses that the devices do not have

# Mininet's parameters that a testbed does not support, and why.
_OWN = "the testbed has hosts, switches and links of its own"
_DERIVED = "names, ports and addresses follow from the nodes' names (docs/interfaces.md)"
_SHARED = "cpu and cpus say how much of the machine a host may use, not which of its cores"
_STARTS = "delay", "jitter", "loss"
REFUSED = {
    **dict.fromkeys(("cls", "cls1", "cls2", "intf", "inNamespace"), _OWN),
    **dict.fromkeys(("dpid", "port1", "port2", "intfName1", "intfName2", "addr1", "addr2"), _DERIVED),
    **dict.fromkeys(("ip", "mac", "defaultRoute", "params1", "params2"), _DERIVED),
    "cores": _SHARED,
    "protocols": "the controller speaks OpenFlow 1.3",
}


Bw: TypeAlias = float | str | None
"""A rate as given: a number of Mb/s, or a word of a file. The rules of a file check it."""


@dataclass(frozen=True, slots=True)
class DescribedLink:
    """A link that was added: its nodes, the port at the first, and its parameters. `is_rated`: `bw` was
    given, be it as None.
    """

    node1: str
    node2: str
    port1: int
    bw: Bw
    max_queue_size: Any
    is_rated: bool
    start: Mapping[str, Any]

    @classmethod
    def of(cls, node1: str, node2: str, port1: int, max_queue_size: Any = None, **others: Any) -> Self:
        """Read the data that Mininet has of a link."""
        return cls(node1, node2, port1, others.get("bw"), max_queue_size, "bw" in others, _start(others))

    @property
    def name(self) -> str:
        """The testbed's name of a link between switches."""
        if self.node2 != OXC_BRIDGE:
            return self.node1
        unit = _unit_of(self.node1)
        assert unit
        return addresses.optical_port_name(unit, addresses.optical_port_of(self.port1))


@dataclass(frozen=True, slots=True)
class DescribedTor:
    """The parameters of a unit's switch, as in a file."""

    kind: Any = "gpu"
    engine: Any = "xdp"


class FabricTopo(Topo):  # type: ignore[misc]  # Mininet has no types
    """The units, their hosts, the optical switch and the links between them, with their ports and addresses.

    `FabricTopo(topology)` describes that topology. A subclass defines its own in `build`; `settings` has what
    nodes and links do not express, as in a YAML file: `settings = {"scale": 200, "ocs": {"seed": 7}}`.
    """

    settings: Mapping[str, Any] = {}

    def __init__(self, *args: Any, **params: Any) -> None:
        """Accept the arguments of Mininet's Topo: `hopts`, `sopts` and `lopts` are defaults for nodes and
        links; the rest goes to `build`.
        """
        self._described: Topology | None = None
        self._tors: dict[Unit, DescribedTor] = {}
        self._cpus: dict[str, float] = {}  # by the names of hosts with a limit
        self._racks: dict[Unit, set[int]] = {}  # of pods
        self._own_rates: Mapping[str, float | None] = {}  # of the links of a given topology
        super().__init__(*args, **params)

    def build(self, *args: Any, **params: Any) -> None:
        """Describe the topology that is the only argument. A subclass defines its own `build`, with any
        parameters: type checkers let it override these.
        """
        self._describe(*args, **params)

    def _describe(self, topology: Topology) -> None:
        self._described, self._own_rates = topology, topology.link_rates
        optical_bw = topology.optical_link.rate_mbps
        pod_bw = topology.pod_link.rate_mbps if topology.pod_link else None
        for unit in topology.units:
            hosts = [topology.host(*host) for host in unit.members[: unit.hosts]]
            said = [{"bw": host.rate_mbps, "cpus": host.cpus} for host in hosts]
            ports, racks = unit.optical_ports, unit.racks
            self.addUnit(said, unit.kind, unit.engine, ports, None, optical_bw, racks=racks, pod_bw=pod_bw)
        if topology.core_link:
            self._add_core(topology, topology.core_link.rate_mbps)

    def _add_core(self, topology: Topology, bw: float | None) -> None:
        """Add the electrical core of a given topology; a user's class has it in `settings`."""
        self.addNode(CORE_BRIDGE, isSwitch=True, dpid=f"{addresses.CORE_DPID:x}")
        for unit in topology.units:
            devices = {
                "intfName1": addresses.core_device(unit.index),
                "intfName2": addresses.core_far_device(unit.index),
            }
            ports = addresses.optical_number(addresses.CORE_WAY), addresses.core_port_number(unit.index)
            name, nodes = addresses.core_link_name(unit.index), (unit.name, CORE_BRIDGE)
            self._link(name, nodes, ports, **devices, **_UNADDRESSED, **_said(bw))

    # -------------------------------------------------------------- methods for subclasses

    def addUnit(
        self,
        hosts: int | Sequence[Mapping[str, Any]],
        kind: str = "gpu",
        engine: str = "xdp",
        optical_ports: int = 2,
        bw: Bw = None,
        optical_bw: Bw = None,
        racks: int = 0,
        pod_bw: Bw = None,
    ) -> str:
        """Add the next unit: its ToR, `hosts` hosts (a number, or a list like [{"bw": 100, "cpu": 0.25}]),
        and its links to the optical switch. With `racks` it is a pod: this number of ToRs, each with such
        hosts, below the pod switch. Return the name of the unit's switch.
        """
        unit = Unit(max(self._tors, default=0) + 1)
        tor = self.addSwitch(unit_name(unit), kind=kind, engine=engine)
        for rack in range(1, racks + 1):
            self.addLink(self.addSwitch(rack_name(unit, rack)), tor, **_said(pod_bw))
        for rack in range(1, racks + 1) if racks else (0,):
            for host, said in enumerate([{}] * hosts if isinstance(hosts, int) else hosts, 1):
                opts = {key: value for key, value in {"bw": bw, **said}.items() if value is not None}
                own_bw = opts.pop("bw", None)
                name = f"{rack_name(unit, rack)}h{host}"
                self.addLink(self.addHost(name, **opts), rack_name(unit, rack), **_said(own_bw))
        if optical_ports and OXC_BRIDGE not in self.g.node:
            self.addSwitch(OXC_BRIDGE)
        for _ in range(optical_ports):
            self.addLink(tor, OXC_BRIDGE, **_said(optical_bw))
        return tor

    def addSwitch(self, name: str, **opts: Any) -> str:
        """Add a unit's switch, of a `kind` (gpu) and with an `engine` (xdp); the ToR of a rack of a pod,
        which is as its unit; or the optical switch, `oxc`. RequestError for another name, or an unsupported
        parameter.
        """
        if name == OXC_BRIDGE:
            self._check(f"addSwitch({name!r})", name, opts, ())
            return str(self.addNode(name, isSwitch=True, dpid=f"{addresses.OXC_DPID:x}"))
        if rack := _rack_of(name):
            return self._add_rack(name, rack, opts)
        opts = opts or self.sopts
        self._check(f"addSwitch({name!r})", name, opts, ("kind", "engine"))
        if not (unit := _unit_of(name)):
            raise RequestError(
                f"addSwitch({name!r}): accepted are u1, u2, ... for units and oxc for the optical switch, "
                f"and u1r1, u1r2, ... for racks of a pod; units to {addresses.MAX_UNITS}, racks to "
                f"{addresses.MAX_RACKS_PER_POD}"
            )
        described = self._tors[unit] = DescribedTor(**opts)
        dpid = f"{addresses.tor_dpid(unit):x}"
        return str(self.addNode(name, isSwitch=True, dpid=dpid, engine=described.engine))

    def _add_rack(self, name: str, rack: tuple[Unit, int], opts: Iterable[str]) -> str:
        """Add the ToR of a pod's rack; its engine is its unit's."""
        attempt, (unit, number) = f"addSwitch({name!r})", rack
        self._check(attempt, name, opts, ())
        if unit not in self._tors:
            raise RequestError(f"{attempt}: add {unit_name(unit)}, the switch of its pod, before it")
        self._racks.setdefault(unit, set()).add(number)
        dpid = f"{addresses.tor_dpid(unit, number):x}"
        return str(self.addNode(name, isSwitch=True, dpid=dpid, engine=self._tors[unit].engine))

    def addHost(self, name: str, **opts: Any) -> str:
        """Add a host; u1h1 is the first of unit u1. `cpu` is the share of the machine's cores that its
        processes may use together, as in Mininet; `cpus` is the same in cores, as in a file. RequestError for
        another name, both parameters, or any other parameter.
        """
        attempt, opts = f"addHost({name!r})", opts or self.hopts
        self._check(attempt, name, opts, ("cpu", "cpus"))
        if not (place := _place_of(name)):
            raise RequestError(
                f"{attempt}: accepted are u1h1, u1h2, ... for hosts of unit u1; units to "
                f"{addresses.MAX_UNITS}, racks to {addresses.MAX_RACKS_PER_POD}, hosts to "
                f"{addresses.MAX_HOSTS_PER_UNIT}"
            )
        if opts:
            self._cpus[name] = _cores(attempt, **opts)
        ip, mac = f"{addresses.host_ip(*place)}/{PREFIX}", addresses.host_mac(*place)
        gateway = addresses.tor_ip(addresses.tor_of(*place))
        return str(self.addNode(name, ip=ip, mac=mac, defaultRoute=f"via {gateway}"))

    def addLink(self, node1: str, node2: str, **opts: Any) -> Any:
        """Add the link of a host to its ToR, of a pod's ToR to the pod switch, or of a unit's switch to
        `oxc`, which is its next optical port: `bw` in Mb/s, `max_queue_size` in packets, `delay` and `jitter`
        like "5ms", `loss` in percent. RequestError for other ends, or an unsupported parameter.
        """
        attempt, opts = f"addLink({node1!r}, {node2!r})", opts or self.lopts
        _refuse(attempt, opts, ("bw", "max_queue_size", *_STARTS))
        for node in (node1, node2):
            if node not in self.g.node:
                raise RequestError(f"{attempt}: {node} was not added")
        if _place_of(node2) or (_rack_of(node2) and not _place_of(node1)) or node1 == OXC_BRIDGE:
            node1, node2 = node2, node1
        if place := _place_of(node1):
            return self._link_host(attempt, place, node2, **opts)
        if rack := _rack_of(node1):
            return self._link_rack(attempt, rack, node2, **opts)
        unit = _unit_of(node1)
        if not unit or node2 != OXC_BRIDGE:
            raise RequestError(f"{attempt}: accepted are a host with its unit's switch, and that with oxc")
        port = self._optical_ports(node1) + 1
        devices = {
            "intfName1": addresses.optical_device(unit, port),
            "intfName2": addresses.oxc_device(unit, port),
        }
        ports = addresses.optical_number(port), addresses.oxc_port_number(unit, port)
        name, nodes = addresses.optical_port_name(unit, port), (node1, OXC_BRIDGE)
        return self._link(name, nodes, ports, **devices, **_UNADDRESSED, **opts)

    def _link(self, name: str, nodes: tuple[str, str], ports: tuple[int, int], **opts: Any) -> Any:
        """Add the testbed's link of this name, with its own rate if it has one."""
        if name in self._own_rates:
            opts.pop("bw", None)
            opts |= _said(self._own_rates[name])
        return super().addLink(*nodes, *ports, **opts)

    def _link_host(self, attempt: str, place: Host, tor: str, **opts: Any) -> Any:
        unit, host = place
        name, own = host_name(unit, host), rack_name(unit, addresses.rack_of(host))
        if tor != own:
            raise RequestError(f"{attempt}: {name} is a host of {own}, and linked with that")
        if self.ports.get(name):
            raise RequestError(f"{attempt}: a host has one link, and {name} has it")
        ip, mac = f"{addresses.host_ip(unit, host)}/{PREFIX}", addresses.host_mac(unit, host)
        devices = {"intfName1": HOST_DEVICE, "intfName2": addresses.tor_port_device(unit, host)}
        ends = {"addr1": mac, "addr2": None, "params1": {"ip": ip}}
        ports = 0, addresses.tor_port_number(host)
        return self._link(name, (name, tor), ports, **devices, **ends, **opts)

    def _link_rack(self, attempt: str, rack: tuple[Unit, int], above: str, **opts: Any) -> Any:
        unit, number = rack
        name = rack_name(unit, number)
        if above != unit_name(unit):
            raise RequestError(
                f"{attempt}: {name} is the ToR of a rack of {unit_name(unit)}, and linked with that"
            )
        if above in (other for other, _ in self.ports.get(name, {}).values()):
            raise RequestError(f"{attempt}: a ToR has one link to its pod switch, and {name} has it")
        ends = {
            "intfName1": addresses.uplink_device(unit, number),
            "intfName2": addresses.rack_device(unit, number),
        }
        ports = addresses.uplink_number(), addresses.rack_number(number)
        return self._link(name, (name, above), ports, **ends, **_UNADDRESSED, **opts)

    def _check(self, attempt: str, name: str, opts: Iterable[str], accepted: tuple[str, ...]) -> None:
        _refuse(attempt, opts, accepted)
        if name in self.g.node:
            raise RequestError(f"{attempt}: it is there already")

    def _optical_ports(self, tor: str) -> int:
        return sum(other == OXC_BRIDGE for other, _ in self.ports.get(tor, {}).values())

    # -------------------------------------------------------------- the resulting topology

    @property
    def topology(self) -> Topology:
        """The topology that this describes. RequestError names the first error."""
        return self._described or parse(self.configuration(), type(self).__name__)

    def configuration(self) -> dict[str, Any]:
        """Return the topology as the keys and values of a YAML file. RequestError if nodes and links do not
        form units.
        """
        if self._described:
            return words(self._described)
        if not isinstance(self.settings, Mapping):
            raise RequestError(f"settings: {shown(self.settings)}; keys and values of a file are accepted")
        for node in self.g.node:
            if (place := _place_of(node)) and place[0] not in self._tors:
                raise RequestError(f"{node}: {unit_name(place[0])} was not added")
        links = [DescribedLink.of(**info) for _, _, info in self.iterLinks(withInfo=True)]
        optical = [link for link in links if link.node2 == OXC_BRIDGE]
        hosts = [link for link in links if _place_of(link.node1)]
        pods = [link for link in links if _rack_of(link.node1)]
        usual_bw = self._usual_bw(hosts, "host_rate_mbps")
        optical_bw = self._usual_bw(optical, "optical_rate_mbps")
        pod_bw = self._usual_bw(pods, "pod_rate_mbps")
        own_bw = {link.node1: link.bw for link in hosts if link.bw not in (None, usual_bw)}
        units = range(1, max(self._tors, default=0) + 1)
        said = {
            "units": [self._unit(Unit(number), own_bw) for number in units],
            "host_rate_mbps": usual_bw,
            "optical_rate_mbps": optical_bw,
            "pod_rate_mbps": pod_bw,
            "links": _own_links(_own_bw(optical, optical_bw) | _own_bw(pods, pod_bw), links) or None,
            "buffer_packets": _same_buffer(links),
        }
        known = {key: value for key, value in said.items() if value is not None}
        for key in known.keys() & self.settings.keys():
            raise RequestError(f"settings[{key!r}]: nodes and links say that already")
        # Without a scale, a link gets the rate as given: whoever writes bw=100 expects that.
        scale = {"scale": 1} if any(link.is_rated for link in links) else {}
        return {**scale, **self.settings, **known}

    def _unit(self, unit: Unit, own_bw: Mapping[str, Bw]) -> dict[str, Any]:
        tor = unit_name(unit)
        if unit not in self._tors:
            raise RequestError(f"{tor}: it was not added, and units have no gaps")
        racks = max(self._racks.get(unit, {0}))
        for rack in range(1, racks + 1):
            name = rack_name(unit, rack)
            if rack not in self._racks[unit]:
                raise RequestError(f"{name}: it was not added, and racks of a pod have no gaps")
            if not any(other == tor for other, _ in self.ports.get(name, {}).values()):
                raise RequestError(f"{name}: it has no link; addLink({name!r}, {tor!r}) gives it one")
        hosts = {rack: self._hosts_in(unit, rack, own_bw) for rack in range(racks + 1)}
        if racks and hosts.pop(0):
            raise RequestError(f"{tor}: it is a pod, whose hosts are below its racks' ToRs")
        first = hosts[min(hosts)]
        for rack, others in hosts.items():
            if others != first:
                pair = f"{rack_name(unit, 1)} and {rack_name(unit, rack)}"
                raise RequestError(
                    f"{tor}: {pair} have other hosts; racks of a pod have equally many, and alike"
                )
        return {
            "kind": self._tors[unit].kind,
            "engine": self._tors[unit].engine,
            **({"racks": racks} if racks else {}),
            "hosts": first if any(first) else len(first),
            "optical_ports": self._optical_ports(tor),
        }

    def _hosts_in(self, unit: Unit, rack: int, own_bw: Mapping[str, Bw]) -> list[dict[str, Bw]]:
        """Return the settings of each of a rack's hosts. RequestError if the numbers have gaps, or a host
        lacks a link.
        """
        numbers = {place[1] for node in self.g.node if (place := _place_of(node)) and place[0] == unit}
        numbers = {number for number in numbers if addresses.rack_of(number) == rack}
        for host in range(addresses.in_rack(rack, 1), max(numbers, default=0) + 1):
            name = host_name(unit, host)
            if host not in numbers:
                raise RequestError(f"{name}: it was not added, and hosts of a unit have no gaps")
            if not self.ports.get(name):
                tor = rack_name(unit, rack)
                raise RequestError(f"{name}: it has no link; addLink({name!r}, {tor!r}) gives it one")
        own: tuple[tuple[str, Mapping[str, Bw]], ...] = (("rate_mbps", own_bw), ("cpus", self._cpus))
        names = [host_name(unit, addresses.in_rack(rack, host)) for host in range(1, len(numbers) + 1)]
        return [{key: its[name] for key, its in own if name in its} for name in names]

    def _usual_bw(self, links: Sequence[DescribedLink], key: str) -> Bw:
        """Return the default rate for links of a kind: the rate of all of them if equal; if all have one, the
        largest. None if `settings` has this key.
        """
        said = {link.bw for link in links} or {None}
        if key in self.settings:
            return None
        if len(said) == 1:
            return said.pop()
        numbers: list[Any] = [bw for bw in said if is_number(bw)]
        return None if None in said or not numbers else max(numbers)


def _own_bw(links: Sequence[DescribedLink], usual_bw: Bw) -> dict[str, Bw]:
    """Return, by name, the rates of links between switches that differ from the default."""
    return {link.name: link.bw for link in links if link.bw not in (None, usual_bw)}


def _own_links(own_bw: Mapping[str, Bw], links: Sequence[DescribedLink]) -> dict[str, Any]:
    """Return a file's words about single links, by name: their own rates, delays and losses."""
    words: dict[str, Any] = dict(own_bw)
    for link in links:
        if link.start:
            words[link.name] = {
                **link.start,
                **({"rate_mbps": own_bw[link.name]} if link.name in own_bw else {}),
            }
    return words


def _start(others: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a link has from the start besides its rate, in a file's words; Mininet's loss is in
    percent.
    """
    start = {name: others[name] for name in _STARTS if others.get(name) not in (None, 0)}
    if is_number(start.get("loss")):
        start["loss"] = f"{start['loss']:g}%"
    return start


def _said(bw: Bw) -> dict[str, float | str]:
    return {} if bw is None else {"bw": bw}


def _cores(attempt: str, cpu: Any = None, cpus: Any = None) -> Any:
    """Convert Mininet's share of the machine to cores."""
    if cpu is None:
        return cpus
    if cpus is not None:
        raise RequestError(f"{attempt}: cpu and cpus say the same; one of them is accepted")
    if not is_number(cpu) or not 0 < cpu <= 1:
        raise RequestError(f"{attempt}: cpu: {shown(cpu)}; a share of the machine, up to 1, is accepted")
    return cpu * (os.cpu_count() or 1)


def _unit_of(name: str) -> Unit | None:
    """Return the unit whose switch has this name, or None."""
    tor = _tor_of(name)
    return tor[0] if tor and not tor[1] else None


def _rack_of(name: str) -> tuple[Unit, int] | None:
    """Return the unit and the rack of a pod whose ToR has this name, or None."""
    tor = _tor_of(name)
    return tor if tor and tor[1] else None


def _tor_of(name: str) -> tuple[Unit, int] | None:
    """Return the unit and the rack (0: the unit's own switch) whose switch has this name, or None."""
    try:
        dpid = addresses.tor_named(name)
    except RequestError:
        return None
    return addresses.tor_unit(dpid), addresses.tor_rack(dpid)


def _place_of(name: str) -> Host | None:
    """Return the unit and the number in a host's name, or None."""
    match = _HOST.fullmatch(name) if isinstance(name, str) else None
    tor = _tor_of(match[1]) if match else None
    if not match or not tor or int(match[2]) > addresses.MAX_HOSTS_PER_UNIT:
        return None
    unit, rack = tor
    return unit, addresses.in_rack(rack, int(match[2]))


def _refuse(attempt: str, opts: Iterable[str], accepted: tuple[str, ...]) -> None:
    for name in opts:
        if name not in accepted:
            known = f"accepted are {', '.join(accepted)}" if accepted else "none is accepted"
            raise RequestError(f"{attempt}: {name}: {REFUSED.get(name, 'unknown parameter')}; {known}")


def _same_buffer(links: Sequence[DescribedLink]) -> Any:
    """Return the buffer that all of these links have, None if none has any. RequestError if they differ."""
    for link in links:
        if link.max_queue_size != links[0].max_queue_size:
            differing = " and ".join(
                f"{end.node1}-{end.node2} has {shown(end.max_queue_size)}" for end in (links[0], link)
            )
            raise RequestError(f"max_queue_size: {differing}; all such links have the same")
    return links[0].max_queue_size if links else None
