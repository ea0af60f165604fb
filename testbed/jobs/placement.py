"""Place a job's workers and parameter server on hosts. Pure: the free hosts are arguments.

Units and hosts are numbers from 1, a host is the pair (unit, host); testbed/topology/addresses.py makes the
names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random

from testbed.aggregation.packets import Packets
from testbed.aggregation.program import SUM, chosen
from testbed.aggregation.site import Rack, Site
from testbed.aggregation.system import Layout, System, completed
from testbed.errors import RequestError
from testbed.plugins.registry import programs as all_programs
from testbed.plugins.registry import programs_for, systems, where_to_have
from testbed.topology import addresses
from testbed.topology.addresses import Dpid
from testbed.topology.dataplanes import DATA_PLANES, HOSTS
from testbed.topology.places import Host
from testbed.topology.units import Unit
from testbed.wire.recovery import Recovery
from testbed.wire.spec import MIN_LANES, lanes_for

LayOut = Callable[[Sequence[Host], Site], Layout]
"""Lays out a job's workers on a site: `laid_out` with a system."""

_PLACE = re.compile(r"(u[1-9][0-9]*(?:r[1-9][0-9]*)?):([0-9]+)")

Wanted = Sequence[tuple[Dpid, int]]
"""Switches with their numbers of workers, in the order of ranks; at a pod's own switch: in any of its
racks.
"""


def parse_place(text: str) -> tuple[tuple[Dpid, int], ...]:
    """Parse `u1:2,u2:2` to ((1, 2), (2, 2)): switches of units, or of racks of pods, by datapath number, with
    numbers of workers, in the order of ranks. Raises RequestError.
    """
    parts = []
    for part in text.split(","):
        match = _PLACE.fullmatch(part.strip())
        if not match or int(match[2]) == 0:
            raise RequestError(
                f"--place {part.strip()!r}: accepted is UNIT:WORKERS, such as u1:2,u2:2, and for racks of a "
                f"pod RACK:WORKERS, such as u1r1:2,u1r2:2"
            )
        parts.append((_switch(match[1], part.strip()), int(match[2])))
    dpids = [dpid for dpid, _ in parts]
    if twice := [dpid for dpid in dpids if dpids.count(dpid) > 1]:
        raise RequestError(f"--place {text!r}: {addresses.tor_name(twice[0])} is named twice")
    return tuple(parts)


def _switch(name: str, part: str) -> Dpid:
    try:
        return addresses.tor_named(name)
    except RequestError as error:
        raise RequestError(f"--place {part!r}: {error}") from error


def place_workers(racks: Sequence[Rack], busy: Collection[Host], wanted: Wanted | None) -> list[Host]:
    """Choose the hosts of the workers, by rank; without `wanted`, all hosts of the first gpu unit. Prefers,
    in each unit, the hosts with the fastest links.

    Raises RequestError for an unknown unit or rack, for more workers than hosts, and for hosts in use by
    another job.
    """
    by_unit = {rack.unit: rack for rack in racks}
    if wanted is None:
        first = next((rack for rack in racks if rack.kind == "gpu"), None)
        if first is None:
            raise RequestError(f"no gpu unit to place workers in: say --place; units are {_names(by_unit)}")
        wanted = [(addresses.tor_dpid(first.unit), first.size)]
    chosen: list[Host] = []
    for dpid, count in wanted:
        unit, rack, name = addresses.tor_unit(dpid), addresses.tor_rack(dpid), addresses.tor_name(dpid)
        if unit not in by_unit or rack > by_unit[unit].racks:
            kind = "rack" if rack else "unit"
            raise RequestError(f"--place {name}:{count}: no such {kind}; accepted are {_names(by_unit)}")
        members = by_unit[unit].members(rack)
        free = [host for host in members if host not in busy and host not in chosen]
        if count > len(free):
            total = len(members)
            taken = sum(host in busy for host in members)
            in_use = f", {taken} of them in use" if taken else ""
            raise RequestError(
                f"--place {name}:{count}: {name} has {total} hosts{in_use}; {len(free)} can be placed there"
            )
        chosen += by_unit[unit].fastest(free, count)
    return chosen


def host_for_server(
    racks: Sequence[Rack], busy: Collection[Host], workers: Collection[Host], at: Dpid
) -> Host:
    """Choose the host, in a unit or a pod's rack, of a job's server process or top place: the free one with
    the fastest link. Raises RequestError if none is free.
    """
    unit, rack, name = addresses.tor_unit(at), addresses.tor_rack(at), addresses.tor_name(at)
    by_unit = {each.unit: each for each in racks}
    if unit not in by_unit or rack > by_unit[unit].racks:
        kind = "rack" if rack else "unit"
        raise RequestError(f"--ps {name}: no such {kind}; accepted are {_names(by_unit)}")
    members = by_unit[unit].members(rack)
    free = [host for host in members if host not in busy and host not in workers]
    if not free:
        raise RequestError(f"--ps {name}: none of its {len(members)} hosts is free")
    return by_unit[unit].fastest(free, 1)[0]


def parse_server(text: str) -> Dpid:
    """Parse the unit, or rack of a pod, of `--ps`. Raises RequestError."""
    try:
        return addresses.tor_named(text)
    except RequestError as error:
        raise RequestError(f"--ps {text}: {error}") from error


def draw_workers(
    racks: Sequence[Rack],
    busy: Collection[Host],
    workers: int,
    wanted: Wanted | None,
    together: bool,
    ps_unit: Unit | None,
    random: Random,
) -> list[Host] | None:
    """Choose hosts for a queued job's workers; None while there are too few.

    Without `wanted`, the workers go to a random gpu unit that has room for all of them. If there is none, and
    they need not be `together`, they go to as few units as possible. One host of `ps_unit` stays free.
    Prefers, in each unit, the free hosts with the fastest links.
    """
    by_unit = {rack.unit: rack for rack in racks}
    free = {rack.unit: [host for host in rack.members() if host not in busy] for rack in racks}
    if wanted is None:
        room = {
            rack.unit: len(free[rack.unit]) - (rack.unit == ps_unit) for rack in racks if rack.kind == "gpu"
        }
        wanted = _draw_units(room, workers, together, random)
    chosen: list[Host] = []
    for dpid, count in wanted or ():
        unit, rack = addresses.tor_unit(dpid), addresses.tor_rack(dpid)
        able = [host for host in by_unit[unit].members(rack) if host in free[unit] and host not in chosen]
        if count > len(able):
            return None
        chosen += by_unit[unit].fastest(able, count)
    return chosen or None


def draw_server(
    racks: Sequence[Rack], busy: Collection[Host], ps_unit: Unit | None, random: Random
) -> Host | None:
    """Choose a host for a queued job's parameter server: in `ps_unit` or, without that, in a random cpu unit,
    or in any unit if there is no cpu unit; the host with the fastest link there. None if none is free.
    """
    by_unit = {rack.unit: rack for rack in racks}
    free = {rack.unit: [host for host in rack.members() if host not in busy] for rack in racks}
    cpu = [rack.unit for rack in racks if rack.kind == "cpu"]
    allowed = [ps_unit] if ps_unit is not None else cpu or list(free)
    able = [unit for unit in allowed if free[unit]]
    if not able:
        return None
    unit = random.choice(able)
    return by_unit[unit].fastest(free[unit], 1)[0]


def place_in_queue(
    racks: Sequence[Rack],
    busy: Collection[Host],
    workers: int,
    wanted: Wanted | None,
    together: bool,
    ps_unit: Unit | None,
    random: Random,
    lay_out: LayOut,
) -> Layout | None:
    """Return hosts for a queued job whose policy decides how it is summed: it has a host for its parameter
    server until a switch is to sum for it, and `lay_out` lays it out. None while there are too few hosts.
    """
    chosen = draw_workers(racks, busy, workers, wanted, together, ps_unit, random)
    if chosen is None:
        return None
    server = draw_server(racks, {*busy, *chosen}, ps_unit, random)
    if server is None:
        return None
    return lay_out(chosen, Site(tuple(racks), frozenset(busy), frozenset(), server))


def _draw_units(
    free: Mapping[Unit, int], workers: int, together: bool, random: Random
) -> list[tuple[Dpid, int]] | None:
    if sum(free.values()) < workers or (together and max(free.values(), default=0) < workers):
        return None
    rest, drawn = dict(free), []
    while workers:
        most = max(rest.values())
        unit = random.choice([unit for unit, count in rest.items() if count >= min(workers, most)])
        drawn.append((addresses.tor_dpid(unit), min(workers, most)))
        workers -= min(workers, most)
        del rest[unit]
    return drawn


def _names(by_unit: Mapping[Unit, Rack]) -> str:
    return ", ".join(
        f"{addresses.unit_name(unit)} ({hosts_in_words(rack)})" for unit, rack in sorted(by_unit.items())
    )


def hosts_in_words(rack: Rack) -> str:
    """Say how many hosts a unit has, in a pod by rack."""
    return f"{rack.racks} racks of {rack.hosts} hosts" if rack.racks else f"{rack.hosts} hosts"


def check_packets(layout: Layout, packets: Packets, engines: Mapping[Unit, str], mtu: int) -> None:
    """Raise RequestError if a job's packets of that many lanes do not fit, go to no place, or pass a switch
    whose engine handles full packets only; or if a switch cannot answer its recovery's questions. `engines`
    is by unit.
    """
    lanes, recovery = packets.lanes, packets.recovery
    if lanes is not None:
        check_width(lanes, mtu)
    if layout.forest is None:
        if lanes is not None:
            raise RequestError(
                f"--lanes {lanes}: {layout.system} sums at no place, so its packets have no lanes"
            )
        if recovery is not Recovery.WINDOW:
            because = "nobody can be asked" if recovery is Recovery.INTEGRITY else "TCP recovers its packets"
            raise RequestError(f"--recovery {recovery}: {layout.system} sums at no place, so {because}")
        return
    units = {*layout.forest.units, *(place.unit for place in layout.forest.places)}
    passed = {unit: engines[unit] for unit in units}
    if lanes is not None:
        check_narrow(lanes, passed, mtu)
    check_asks(recovery, passed)
    chosen(all_programs(), layout.forest, layout.programs, engines).check(layout, packets, engines)


def check_asks(recovery: Recovery, engines: Mapping[Unit, str]) -> None:
    """Raise RequestError if the recovery asks questions, and a unit's engine cannot answer them."""
    if recovery is not Recovery.INTEGRITY:
        return
    for unit, engine in sorted(engines.items()):
        if not DATA_PLANES[engine].answers:
            raise RequestError(
                f"--recovery {recovery}: {addresses.unit_name(unit)} has engine: {engine}, whose program "
                f"knows no questions; {Recovery.WINDOW} is accepted there"
            )


def check_width(lanes: int, mtu: int) -> None:
    """Raise RequestError if packets of that many lanes do not suit a fabric of this MTU."""
    most = lanes_for(mtu)
    if not MIN_LANES <= lanes <= most:
        raise RequestError(
            f"--lanes {lanes}: {MIN_LANES} to {most} are accepted, as many as the MTU of {mtu} holds"
        )


def check_narrow(lanes: int, engines: Mapping[Unit, str], mtu: int) -> None:
    """Raise RequestError if a unit's engine has no program for packets with so few lanes."""
    if lanes == lanes_for(mtu):
        return
    for unit, engine in sorted(engines.items()):
        if not DATA_PLANES[engine].takes_fewer:
            raise RequestError(
                f"--lanes {lanes}: {addresses.unit_name(unit)} has engine: {engine}, whose program takes "
                f"packets of {lanes_for(mtu)} lanes only"
            )


def laid_out(system: System, workers: Sequence[Host], site: Site, engines: Mapping[Unit, str]) -> Layout:
    """Have a system lay a job out, and check that its places' engines have the programs. All layouts of jobs
    that run come from here. Raises RequestError if there is no layout, or no program for one of its places.
    `engines` is by unit.
    """
    layout = completed(system.lay_out(workers, site), system)
    check_programs(layout, layout.programs, engines)
    return layout


def check_programs(layout: Layout, programs: Mapping[str, str], engines: Mapping[Unit, str]) -> None:
    """Raise RequestError if a place's engine is not among those that the job's system has a program for, or
    lacks that program. `programs` is System.programs, `engines` is by unit.
    """
    for place in layout.forest.places if layout.forest else []:
        engine = engines[place.unit] if place.is_switch else HOSTS
        if place.is_switch and engine not in programs:
            accepted = " or ".join(sorted(programs)) or "no engine: it names no programs"
            raise RequestError(
                f"--sync {layout.system}: {place} has engine: {engine}, which cannot sum "
                f"for it; accepted are units with {accepted}, and there "
                f"{' and '.join(name for name, system in systems().items() if not system.programs)}"
            )
        program = programs.get(engine, SUM)
        known = programs_for(engine)
        if program not in known:
            raise RequestError(
                f"--sync {layout.system}: {place} has engine: {engine}, which has no program "
                f"{program!r}; accepted are {', '.join(known) or 'none'}{where_to_have(engine, program)}"
            )
        if not place.is_switch and program != SUM:
            raise RequestError(
                f"--sync {layout.system}: {place} is a host, which sums by {SUM!r} alone, and not by "
                f"{program!r}; switches are accepted"
            )
    # with an owner, switches that sum nothing also pass its packets on, by the program
    if layout.forest and layout.forest.owner:
        for engine in sorted(set(engines.values()) & set(programs)):
            if programs[engine] not in (known := programs_for(engine)):
                raise RequestError(
                    f"--sync {layout.system}: its packets may pass units with engine: {engine}, which has no "
                    f"program {programs[engine]!r}; accepted are {', '.join(known) or 'none'}"
                    f"{where_to_have(engine, programs[engine])}"
                )
    check_copies(layout, engines)


def check_copies(layout: Layout, engines: Mapping[Unit, str]) -> None:
    """Raise RequestError if hosts relay results behind a switch whose engine drops these. `engines` is by
    unit.
    """
    if layout.forest is None or not any(tree.relayed for tree in layout.forest.trees):
        return
    for unit in sorted({unit for unit, _ in layout.forest.hosts()}):
        engine = engines[unit]
        if not DATA_PLANES[engine].passes_copies:
            accepted = " or ".join(name for name, plane in DATA_PLANES.items() if plane.passes_copies)
            raise RequestError(
                f"--sync {layout.system}: {addresses.unit_name(unit)} has engine: {engine}, which passes no "
                f"results from host to host; accepted are units with {accepted}"
            )
