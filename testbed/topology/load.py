"""Reads a topology from YAML and says in one line what is wrong with it: the key, its value, and what is
accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.topology import addresses
from testbed.topology.dataplanes import ENGINES
from testbed.topology.fields import (
    choice,
    flag,
    integer,
    is_number,
    listed,
    mapping,
    name_of,
    shown,
)
from testbed.topology.load_optical import ocs, optical_ports, plane_names
from testbed.topology.model import (
    BMV2_LAYOUTS,
    CONTROLLERS,
    UNIT_KINDS,
    Bmv2Spec,
    HostSpec,
    IncSpec,
    LinkSpec,
    Topology,
    UnitSpec,
)
from testbed.topology.units import Unit
from testbed.topology.yaml_text import read_yaml, read_yaml_of_stdin
from testbed.wire.blocks import LEAST_RECORDS, MOST_RECORDS
from testbed.wire.spec import MAX_MTU

STDIN = Path("-")
MIN_MBPS, MAX_MBPS = 1.0, 20000.0
MIN_CPUS, MAX_CPUS = 0.05, 1024.0  # the kernel gives out shares of 100 ms, of which 1 ms is the least


def load(path: Path) -> Topology:
    """Reads a file, or the standard input, which is STDIN, and the files that it names. RequestError if it is
    not there, is no YAML, or describes no topology.
    """
    if path == STDIN:
        data, name, shown_path = read_yaml_of_stdin(), "stdin", "standard input"
    else:
        data, name, shown_path = read_yaml(path), path.stem, str(path)
    try:
        return parse(data, name, path.parent)
    except RequestError as error:
        raise RequestError(f"{shown_path}: {error}") from error


def parse(data: Any, name: str, folder: Path | None = None) -> Topology:
    """A topology from parsed YAML, with the files that it names in `folder`; None: it may name none.
    RequestError names the first thing that is wrong.
    """
    top = mapping(
        data,
        "configuration",
        (
            "name",
            "units",
            "host_rate_mbps",
            "optical_rate_mbps",
            "pod_rate_mbps",
            "links",
            "core",
            "optical_ports",
            "buffer_packets",
            "ocs",
            "inc",
            "scale",
            "mtu",
            "bmv2",
            "controller",
            "programs",
            "shared",
        ),
    )
    scale = integer(top, "scale", 200, low=1, high=100_000)
    mtu = integer(top, "mtu", 1500, low=1280, high=MAX_MTU)
    buffer_packets = integer(top, "buffer_packets", 256, low=16, high=10_000)
    planes = plane_names(top)
    ports = top.get("optical_ports", 2)
    optical_ports(ports, "optical_ports", planes)
    if "units" not in top:
        raise RequestError("units: missing; a list of units is needed, each with kind and hosts")
    raw_units = top["units"]
    if not isinstance(raw_units, list) or not 1 <= len(raw_units) <= addresses.MAX_UNITS:
        raise RequestError(
            f"units: {shown(raw_units)}; a list of 1 to {addresses.MAX_UNITS} units is accepted"
        )
    host_rate = _rate(top, "host_rate_mbps", scale, 40_000)
    usual = HostSpec(host_rate)
    units = tuple(
        _unit(raw, Unit(index), ports, usual, scale, planes) for index, raw in enumerate(raw_units, 1)
    )
    core_link = _core_link(top, scale, units, buffer_packets)
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
    link_rates = {
        link: rate_mbps
        for unit, raw in zip(units, raw_units, strict=True)
        for link, rate_mbps in _unit_rates(raw, unit, scale).items()
    } | _link_rates(top, units, scale)
    topology = Topology(
        name=name_of(top, "name", name),
        units=units,
        host_link=LinkSpec(host_rate, buffer_packets),
        optical_link=LinkSpec(
            _rate(top, "optical_rate_mbps", scale, top.get("host_rate_mbps", 40_000)), buffer_packets
        ),
        ocs=ocs(top.get("ocs", {}), units, folder),
        inc=_inc(top.get("inc", {})),
        scale=scale,
        mtu=mtu,
        bmv2=_bmv2(top.get("bmv2", {})),
        controller=choice(top, "controller", CONTROLLERS[0], CONTROLLERS),
        pod_link=_pod_link(top, scale, units, buffer_packets),
        core_link=core_link,
        programs=_programs(top, folder),
        shared=flag(top, "shared", False),
    )
    links = [link for unit in units for link in unit.links]
    return replace(topology, link_rates={link: link_rates[link] for link in links if link in link_rates})


def _programs(top: Mapping[str, Any], folder: Path | None) -> tuple[str, ...]:
    """Return the data-plane programs that are named, with whole paths."""
    raw = top.get("programs", [])
    if not isinstance(raw, list) or not all(isinstance(each, str) for each in raw):
        raise RequestError(f"programs: {shown(raw)}; a list of FILE.py:CLASS is accepted")
    named = []
    for each in raw:
        file, _, class_name = each.rpartition(":")
        path = (folder or Path()) / file
        if not file.endswith(".py") or not class_name.isidentifier():
            raise RequestError(f"programs: {each}; FILE.py:CLASS is accepted")
        try:
            is_there = path.is_file() and (folder is not None or path.is_absolute())
        except OSError as error:  # a folder on the way may not be entered
            raise RequestError(f"programs: {each}: {path}: {error.strerror}") from error
        if not is_there:
            raise RequestError(f"programs: {each}: {path} is no file")
        named.append(f"{path.resolve()}:{class_name}")
    return tuple(named)


def _core_link(
    top: Mapping[str, Any], scale: int, units: tuple[UnitSpec, ...], buffer_packets: int
) -> LinkSpec | None:
    """Return the links between units and the electrical core; None where there is none."""
    if "core" not in top:
        return None
    data = mapping(top["core"], "core", ("rate_mbps",))
    if len(units) == 1:
        raise RequestError(
            f"core: {shown(top['core'])}; it joins units, and is accepted where there are several"
        )
    usual = top.get("host_rate_mbps", 40_000)
    return LinkSpec(_rate(data, "rate_mbps", scale, usual, "core"), buffer_packets)


def _unit_rates(raw: Mapping[str, Any], unit: UnitSpec, scale: int) -> dict[str, float | None]:
    """Return the rates of a unit's links by its `rate_mbps`: of those whose rate no host says."""
    if "rate_mbps" not in raw:
        return {}
    rate_mbps = _rate(raw, "rate_mbps", scale, None, f"units[{unit.index - 1}]")
    hosts = raw["hosts"] if isinstance(raw["hosts"], list) else [{}] * unit.hosts
    saying = {number for number, host in enumerate(hosts, 1) if "rate_mbps" in host}
    own = {
        addresses.host_name(unit.index, number)
        for number in unit.numbers
        if addresses.place_in_rack(number) in saying
    }
    return {link: rate_mbps for link in unit.links if link not in own}


def _link_rates(top: Mapping[str, Any], units: tuple[UnitSpec, ...], scale: int) -> dict[str, float | None]:
    """Return the rates of links that are named."""
    raw = top.get("links", {})
    if not isinstance(raw, dict):
        raise RequestError(f"links: {shown(raw)}; names of links, each with a rate in Mb/s, are accepted")
    known = {link for unit in units for link in unit.links}
    for link in raw:
        if link not in known:
            names = listed(link for unit in units for link in unit.links)
            raise RequestError(f"links.{link}: {shown(raw[link])}; no such link; there are {names}")
    return {link: _rate(raw, link, scale, None, "links") for link in raw}


def _pod_link(
    top: Mapping[str, Any], scale: int, units: tuple[UnitSpec, ...], buffer_packets: int
) -> LinkSpec | None:
    """Return the links between ToRs and pod switches; None where no unit is a pod."""
    if not any(unit.racks for unit in units):
        if "pod_rate_mbps" in top:
            raise RequestError(
                f"pod_rate_mbps: {shown(top['pod_rate_mbps'])}; it is accepted where a unit has racks"
            )
        return None
    return LinkSpec(_rate(top, "pod_rate_mbps", scale, top.get("host_rate_mbps", 40_000)), buffer_packets)


def _unit(
    raw: Any, index: Unit, ports: Any, usual: HostSpec, scale: int, planes: tuple[str, ...]
) -> UnitSpec:
    path = f"units[{index - 1}]"
    data = mapping(raw, path, ("kind", "racks", "hosts", "rate_mbps", "optical_ports", "engine"))
    if "hosts" not in data:
        raise RequestError(f"{path}.hosts: missing; a unit needs 1 to {addresses.MAX_HOSTS_PER_UNIT} hosts")
    hosts, unequal = _hosts(data, path, usual, scale)
    count, by_plane = optical_ports(data.get("optical_ports", ports), f"{path}.optical_ports", planes)
    return UnitSpec(
        index=index,
        kind=choice(data, "kind", "gpu", UNIT_KINDS, path),
        hosts=hosts,
        optical_ports=count,
        planes=by_plane,
        engine=choice(data, "engine", "xdp", ENGINES, path),
        unequal=unequal,
        racks=integer(data, "racks", 1, low=1, high=addresses.MAX_RACKS_PER_POD, path=f"{path}.")
        if "racks" in data
        else 0,
    )


def _hosts(
    data: Mapping[str, Any], path: str, usual: HostSpec, scale: int
) -> tuple[int, tuple[HostSpec, ...]]:
    """Return how many hosts a unit has, and what each of them is, unless all are as `usual`."""
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
    hosts = tuple(_host(host, f"{path}.hosts[{at}]", usual, scale) for at, host in enumerate(raw))
    return len(raw), () if all(host == usual for host in hosts) else hosts


def _host(raw: Any, path: str, usual: HostSpec, scale: int) -> HostSpec:
    data = mapping(raw, path, ("rate_mbps", "cpus"))
    rate = _rate(data, "rate_mbps", scale, None, path) if "rate_mbps" in data else usual.rate_mbps
    cpus: Any = data.get("cpus")
    if "cpus" in data and not (is_number(cpus) and MIN_CPUS <= cpus <= MAX_CPUS):
        raise RequestError(
            f"{path}.cpus: {shown(cpus)}; a number of cores from {MIN_CPUS:g} to {MAX_CPUS:g} is accepted"
        )
    return HostSpec(rate, None if cpus is None else float(cpus))


def _inc(value: object) -> IncSpec:
    inc = mapping(value, "inc", ("jobs", "timers", "blocks"))
    return IncSpec(
        integer(inc, "jobs", 4, low=1, high=32, path="inc."),
        integer(inc, "timers", 16, low=1, high=100, path="inc."),
        _blocks(inc) if "blocks" in inc else None,
    )


def _blocks(inc: Mapping[str, Any]) -> int:
    accepted = f"a power of two from {LEAST_RECORDS} to {MOST_RECORDS}"
    blocks = inc["blocks"]
    if not isinstance(blocks, int) or blocks.bit_count() != 1 or not LEAST_RECORDS <= blocks <= MOST_RECORDS:
        raise RequestError(f"inc.blocks: {shown(blocks)}; {accepted} is accepted")
    return blocks


def _bmv2(raw: Any) -> Bmv2Spec:
    data = mapping(raw, "bmv2", ("layout", "log"))
    default = Bmv2Spec()
    layout = choice(data, "layout", default.layout, BMV2_LAYOUTS, "bmv2")
    return Bmv2Spec(layout, flag(data, "log", default.log, "bmv2"))


def _rate(data: Mapping[str, Any], key: str, scale: int, default: Any, path: str = "") -> float | None:
    raw = data.get(key, default)
    key = f"{path}.{key}" if path else key
    if raw == "unshaped":
        return None
    if not is_number(raw) or raw <= 0:
        raise RequestError(f"{key}: {shown(raw)}; a rate in Mb/s or the word unshaped is accepted")
    if not MIN_MBPS <= raw / scale <= MAX_MBPS:
        raise RequestError(
            f"{key}: {shown(raw)} at scale {scale} is {raw / scale:g} Mb/s; from {MIN_MBPS:g} to "
            f"{MAX_MBPS:g} Mb/s can be emulated"
        )
    return float(raw)
