"""Read a topology from YAML. An error is one line: the key, its value, and what is accepted.
testbed.topology.model declares each key; the rules between keys are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.keys import keys_of, names_of
from testbed.topology import addresses
from testbed.topology.fields import listed, mapping, shown
from testbed.topology.load_optical import ocs, optical_ports, plane_names
from testbed.topology.model import Bmv2Spec, HostSpec, IncSpec, LinkSpec, LinkStart, Topology, UnitSpec
from testbed.topology.units import Unit
from testbed.topology.values import (
    AUTO_SCALE,
    Reading,
    plain_values,
    rate_mbps,
    rate_said,
    read_into,
    read_value,
)
from testbed.topology.yaml_text import read_yaml, read_yaml_of_stdin

STDIN, SHOWN_STDIN = Path("-"), "standard input"
_KEYS = keys_of(Topology)


@dataclass(frozen=True, slots=True)
class AtUp:
    """A command that brings the topology up, and so can measure which scale the machine keeps up with.
    `scale` replaces that of the configuration.
    """

    scale: int | str | None = None


def load(path: Path, at_up: AtUp | None = None) -> Topology:
    """Read a file, or the standard input (STDIN), and the files that it names. Raises RequestError if it is
    missing, is no YAML, or describes no topology; and for `scale: auto`, unless a command brings it up.
    """
    if path == STDIN:
        data, name, shown_path = read_yaml_of_stdin(), "stdin", SHOWN_STDIN
    else:
        data, name, shown_path = read_yaml(path), path.stem, str(path)
    try:
        return parse(data, name, path.parent, at_up)
    except RequestError as error:
        raise RequestError(f"{shown_path}: {error}") from error


def parse(data: Any, name: str, folder: Path | None = None, at_up: AtUp | None = None) -> Topology:
    """Make a topology from parsed YAML, with the files that it names in `folder`; None: it may name none.
    Raises RequestError for the first fault. Only for a command that brings it up its scale may be
    AUTO_SCALE, which that command replaces (testbed.topology.auto_scale) before it uses the topology.
    """
    top = mapping(data, "configuration", names_of(Topology))
    if at_up is not None and at_up.scale is not None:
        top = {**top, "scale": at_up.scale}
    reading = Reading(folder, _value("scale", top, Reading()))
    if reading.scale == AUTO_SCALE and at_up is None:
        raise RequestError(
            "scale: auto; only `testbed up` measures it; a whole number is accepted here, such as the one "
            "that `testbed up` printed"
        )
    packets = _value("queues", top, reading)
    planes = plane_names(top)
    ports = top.get("optical_ports", _KEYS["usual_ports"].default)
    optical_ports(ports, "optical_ports", planes)
    if "units" not in top:
        raise RequestError("units: missing; a list of units is needed, each with kind and hosts")
    raw_units = top["units"]
    if not isinstance(raw_units, list) or not 1 <= len(raw_units) <= addresses.MAX_UNITS:
        raise RequestError(
            f"units: {shown(raw_units)}; a list of 1 to {addresses.MAX_UNITS} units is accepted"
        )
    host_rate = _value("host_link", top, reading)
    usual = HostSpec(host_rate)
    units = tuple(
        _unit(raw, Unit(index), ports, usual, planes, reading) for index, raw in enumerate(raw_units, 1)
    )
    core_link = _core_link(top, usual, units, packets, reading)
    if core_link:
        units = tuple(replace(unit, has_core=True) for unit in units)
    if len(units) > 1:
        for unit in units:
            if unit.optical_ports == 0 and not core_link:
                raise RequestError(
                    f"units[{unit.index - 1}].optical_ports: 0; with several units and no core each needs at "
                    f"least 1"
                )
    else:
        units = (replace(units[0], optical_ports=0, planes=()),)
    own_rates, link_starts = _links(top, units, reading)
    link_rates = {
        link: rate_mbps
        for unit, raw in zip(units, raw_units, strict=True)
        for link, rate_mbps in _unit_rates(raw, unit, reading).items()
    } | own_rates
    links = [link for unit in units for link in unit.links]
    topology = Topology(
        name=name,
        units=units,
        host_link=LinkSpec(host_rate, packets),
        optical_link=LinkSpec(_value("optical_link", top, reading, host_rate), packets),
        ocs=ocs(top.get("ocs", {}), units, folder),
        inc=read_into(IncSpec(), top.get("inc", {}), "inc", reading),
        bmv2=read_into(Bmv2Spec(), top.get("bmv2", {}), "bmv2", reading),
        pod_link=_pod_link(top, usual, units, packets, reading),
        link_rates={link: link_rates[link] for link in links if link in link_rates},
        link_starts={link: link_starts[link] for link in links if link in link_starts},
        core_link=core_link,
    )
    _check_starts(topology)
    _check_second_names(topology)
    plain = plain_values(Topology, top, "", reading)
    return replace(topology, **{**plain, "name": plain["name"] or name})


def _value(holder: str, top: Mapping[str, Any], reading: Reading, usual_mbps: float | None = None) -> Any:
    """Read the value of a key, named by its field: the default, or a link's usual rate, if the configuration
    has none.
    """
    key = _KEYS[holder]
    usual = rate_said(usual_mbps) if key.default is None else key.default
    return read_value(key, {key.name: usual, **top}, "", reading)


def _core_link(
    top: Mapping[str, Any], usual: HostSpec, units: tuple[UnitSpec, ...], packets: int, reading: Reading
) -> LinkSpec | None:
    """Read the links between units and the electrical core; None if there is no core."""
    if "core" not in top:
        return None
    key = keys_of(LinkSpec)["rate_mbps"]
    data = mapping(top["core"], "core", (key.name,))
    if len(units) == 1:
        raise RequestError(
            f"core: {shown(top['core'])}; it joins units, and is accepted where there are several"
        )
    words = {key.name: rate_said(usual.rate_mbps), **data}
    return LinkSpec(read_value(key, words, "core", reading), packets)


def _unit_rates(raw: Mapping[str, Any], unit: UnitSpec, reading: Reading) -> dict[str, float | None]:
    """Read a unit's `rate_mbps`, the rate of its links, except those of hosts with their own."""
    if "rate_mbps" not in raw:
        return {}
    own_mbps = read_value(UnitSpec.own_rate, raw, f"units[{unit.index - 1}]", reading)
    hosts = raw["hosts"] if isinstance(raw["hosts"], list) else [{}] * unit.hosts
    with_own_rate = {number for number, host in enumerate(hosts, 1) if "rate_mbps" in host}
    own_links = {
        addresses.host_name(unit.index, number)
        for number in unit.numbers
        if addresses.place_in_rack(number) in with_own_rate
    }
    return {link: own_mbps for link in unit.links if link not in own_links}


def _links(
    top: Mapping[str, Any], units: tuple[UnitSpec, ...], reading: Reading
) -> tuple[dict[str, float | None], dict[str, LinkStart]]:
    """Read the rates of single links, and what else a link has from the start, by name."""
    raw = top.get("links", {})
    if not isinstance(raw, dict):
        raise RequestError(f"links: {shown(raw)}; names of links, each with a rate in Mb/s, are accepted")
    known = {link for unit in units for link in unit.links}
    for link in raw:
        if link not in known:
            names = listed(link for unit in units for link in unit.links)
            raise RequestError(f"links.{link}: {shown(raw[link])}; no such link; there are {names}")
    rates, starts = {}, {}
    for link, words in raw.items():
        path = f"links.{link}"
        if not isinstance(words, dict):
            rates[link] = rate_mbps(words, path, reading.scale)
            continue
        data = mapping(words, path, names_of(LinkStart))
        if LinkStart.own_rate.name in data:
            rates[link] = read_value(LinkStart.own_rate, data, path, reading)
        start = LinkStart(**plain_values(LinkStart, data, path, reading))
        if start.jitter_ms > start.delay_ms:
            raise RequestError(f"{path}.jitter: {data['jitter']}; at most the delay is accepted")
        if start.delay_ms or start.has_fault:
            starts[link] = start
    return rates, starts


def _check_starts(topology: Topology) -> None:
    """Raise RequestError for delays or faults of a link without a rate, which has no room for them."""
    for link in topology.link_starts:
        if topology.declared_mbps(link) is None:
            raise RequestError(
                f"links.{link}: it is unshaped; a delay and faults are accepted for links with a rate"
            )


def _check_second_names(topology: Topology) -> None:
    """Raise RequestError for a second name that is a name already."""
    # a testbed's own host name begins with optinc-
    taken = {*topology.host_names, *(addresses.tor_name(dpid) for dpid in topology.switches), "localhost"}
    for unit in topology.units:
        for at, number in enumerate(unit.numbers[: unit.hosts]):
            name = topology.host(unit.index, number).name
            if name is None:
                continue
            path = f"units[{unit.index - 1}].hosts[{at}].name"
            if unit.racks > 1:
                raise RequestError(
                    f"{path}: {name}; accepted where a unit has one rack: racks have hosts alike"
                )
            if name.lower() in taken or name.lower().startswith("optinc-"):
                raise RequestError(f"{path}: {name}; this name is taken")
            taken.add(name.lower())


def _pod_link(
    top: Mapping[str, Any], usual: HostSpec, units: tuple[UnitSpec, ...], packets: int, reading: Reading
) -> LinkSpec | None:
    """Read the links between ToRs and pod switches; None if no unit is a pod."""
    if not any(unit.racks for unit in units):
        if "pod_rate_mbps" in top:
            raise RequestError(
                f"pod_rate_mbps: {shown(top['pod_rate_mbps'])}; it is accepted where a unit has racks"
            )
        return None
    return LinkSpec(_value("pod_link", top, reading, usual.rate_mbps), packets)


def _unit(
    raw: Any, index: Unit, ports: Any, usual: HostSpec, planes: tuple[str, ...], reading: Reading
) -> UnitSpec:
    path = f"units[{index - 1}]"
    data = mapping(raw, path, names_of(UnitSpec))
    if "hosts" not in data:
        raise RequestError(f"{path}.hosts: missing; a unit needs 1 to {addresses.MAX_HOSTS_PER_UNIT} hosts")
    hosts, unequal = _hosts(data, path, usual, reading)
    count, by_plane = optical_ports(data.get("optical_ports", ports), f"{path}.optical_ports", planes)
    return UnitSpec(
        index=index,
        hosts=hosts,
        optical_ports=count,
        unequal=unequal,
        planes=by_plane,
        **plain_values(UnitSpec, data, path, reading),
    )


def _hosts(
    data: Mapping[str, Any], path: str, usual: HostSpec, reading: Reading
) -> tuple[int, tuple[HostSpec, ...]]:
    """Read how many hosts a unit has, and each of them, unless all are as `usual`."""
    raw, most = data["hosts"], addresses.MAX_HOSTS_PER_UNIT
    if not isinstance(raw, list):
        if isinstance(raw, bool) or not isinstance(raw, int) or not 1 <= raw <= most:
            raise RequestError(
                f"{path}.hosts: {shown(raw)}; a whole number from 1 to {most}, or a list of hosts like "
                f"{{rate_mbps: 30000, cpus: 0.5}}, is accepted"
            )
        return raw, ()
    if not 1 <= len(raw) <= most:
        raise RequestError(f"{path}.hosts: a list of {len(raw)}; 1 to {most} hosts are accepted")
    hosts = tuple(read_into(usual, host, f"{path}.hosts[{at}]", reading) for at, host in enumerate(raw))
    return len(raw), () if all(host == usual for host in hosts) else hosts
