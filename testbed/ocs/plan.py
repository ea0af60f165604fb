"""Plan circuits that serve demands between units, with few changes to existing circuits. Pure and
deterministic.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import networkx as nx

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit, carrying, circuit, ports_of
from testbed.topology.addresses import parse_optical_port, unit_name
from testbed.topology.units import Unit, UnitPair

PortTable = Mapping[Unit, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The circuits to set up in the end, and the changes that lead to them."""

    target: frozenset[Circuit]
    removed: frozenset[Circuit]
    added: frozenset[Circuit]


def servable(demands: Iterable[UnitPair], ports: PortTable, planes: Mapping[str, str]) -> list[UnitPair]:
    """Select the demands, in their order, that can have a circuit at the same time; a core carries the
    others. With a core, a plan fails only for lack of ports, so a plan for these demands never fails.
    """
    tables = _tables(ports, planes)
    free = Counter({unit: len(names) for unit, names in ports.items()})
    served: list[UnitPair] = []
    for pair in demands:
        if pair[0] != pair[1]:
            if not all(free[unit] for unit in pair) or not _fit([*served, pair], tables, planes):
                continue
            free.subtract(pair)
        served.append(pair)
    return served


def _fit(demands: list[UnitPair], tables: Mapping[str, PortTable], planes: Mapping[str, str]) -> bool:
    """Return whether each demand can have a plane with a free port of both units. With a single plane only
    ports can run out, and the caller counts these.
    """
    if len(tables) < 2:
        return True
    try:
        _by_plane(frozenset(), demands, tables, planes)
    except RequestError:
        return False
    return True


def plan_planes(
    current: frozenset[Circuit],
    demands: Iterable[UnitPair],
    ports: PortTable,
    planes: Mapping[str, str],
    has_core: bool = False,
    down: Collection[str] = (),
    held: Collection[Circuit] = (),
) -> Plan:
    """Plan as `plan` does, for ports of several planes: assign each demand to a plane, then plan each plane
    by itself. A demand that an existing circuit serves stays on its plane. The others are assigned by the
    number of planes that have ports for them, fewest first, each to the plane with the most ports left of
    both units. A port that is `down` gets no circuit, and its present one serves no demand, but stays unless
    its other port is needed. Of parallel circuits, those that are `held` serve demands first.

    RequestError when no plane has a port of both units left for a demand.
    """
    if down:
        return _plan_around(current, list(demands), ports, planes, has_core, down, held)
    tables = _tables(ports, planes)
    if len(tables) < 2:
        return plan(current, demands, ports, has_core, held)
    parts = [
        plan(frozenset(c for c in current if planes[c.a] == name), assigned, tables[name], has_core, held)
        for name, assigned in _by_plane(current, list(demands), tables, planes, held).items()
    ]
    target = frozenset(c for part in parts for c in part.target)
    return Plan(target, current - target, target - current)


def _plan_around(
    current: frozenset[Circuit],
    demands: list[UnitPair],
    ports: PortTable,
    planes: Mapping[str, str],
    has_core: bool,
    down: Collection[str],
    held: Collection[Circuit],
) -> Plan:
    alive = carrying(current, down)
    try:
        target = plan_planes(alive, demands, up(ports, down), planes, has_core, held=held).target
    except RequestError as error:
        units = sorted({unit for pair in demands for unit in pair})
        lacking = [port for unit in units for port in ports.get(unit, ()) if port in down]
        if not lacking:
            raise
        are = f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'}"
        raise RequestError(f"{error}; {are} down, and no free port") from error
    taken = set(ports_of(target))
    target |= {each for each in current - alive if taken.isdisjoint(each.ports)}
    return Plan(target, current - target, target - current)


def up(ports: PortTable, down: Collection[str]) -> dict[Unit, tuple[str, ...]]:
    """Return each unit's ports without those that are down."""
    return {unit: tuple(port for port in names if port not in down) for unit, names in ports.items()}


def _tables(ports: PortTable, planes: Mapping[str, str]) -> dict[str, PortTable]:
    """Return each plane's ports by unit, by plane."""
    return {
        name: {unit: tuple(port for port in names if planes[port] == name) for unit, names in ports.items()}
        for name in sorted(set(planes.values()))
    }


def _by_plane(
    current: frozenset[Circuit],
    demands: list[UnitPair],
    tables: Mapping[str, PortTable],
    planes: Mapping[str, str],
    held: Collection[Circuit] = (),
) -> dict[str, list[UnitPair]]:
    left = {name: {unit: len(names) for unit, names in table.items()} for name, table in tables.items()}
    assigned: dict[str, list[UnitPair]] = {name: [] for name in tables}

    def assign(name: str, pair: UnitPair) -> None:
        assigned[name].append(pair)
        for unit in pair:
            left[name][unit] -= 1

    def able(pair: UnitPair) -> list[str]:
        return [name for name in tables if all(left[name].get(unit) for unit in pair)]

    wanted = Counter((min(a, b), max(a, b)) for a, b in demands if a != b)
    for serving in _held_first(current, held):
        if wanted[serving.units] > 0:
            wanted[serving.units] -= 1
            assign(planes[serving.a], serving.units)
    beside: dict[Unit, set[UnitPair]] = {}
    for pair in +wanted:
        for unit in pair:
            beside.setdefault(unit, set()).add(pair)
    # a pair whose number of possible planes falls is queued again; an entry with an outdated number is
    # skipped
    queue = [(len(able(pair)), pair) for pair in +wanted]
    heapq.heapify(queue)
    while queue:
        count, pair = heapq.heappop(queue)
        names = able(pair)
        if not wanted[pair] or count != len(names):
            continue
        if not names:
            a, b = map(unit_name, pair)
            raise RequestError(f"demand {a}-{b}: no plane has an optical port left of both units")
        wanted[pair] -= 1
        name = max(names, key=lambda name: (min(left[name][unit] for unit in pair), name))
        assign(name, pair)
        full = [unit for unit in pair if not left[name][unit]]
        for other in {pair}.union(*(beside[unit] for unit in full)):
            if wanted[other]:
                heapq.heappush(queue, (len(able(other)), other))
    return assigned


def _held_first(circuits: Iterable[Circuit], held: Collection[Circuit]) -> list[Circuit]:
    return sorted(circuits, key=lambda each: (each not in held, each))


def plan(
    current: frozenset[Circuit],
    demands: Iterable[UnitPair],
    ports: PortTable,
    has_core: bool = False,
    held: Collection[Circuit] = (),
) -> Plan:
    """Plan circuits so that each two units have one for each time that their pair is demanded.

    Existing circuits that serve a demand stay, and as few of the others as possible are cut. Where ports
    allow, every unit keeps a path to every other: free ports are joined, and if necessary circuits that serve
    no demand are cut. With a core neither is done, since every unit has a path anyway. Ports that lost their
    circuit are joined to each other, which darkens no further port. `ports` lists each unit's optical ports.
    RequestError when a unit has fewer ports than demands.
    """
    wanted = Counter((min(a, b), max(a, b)) for a, b in demands if a != b)
    check_demands(wanted.elements(), ports)

    kept: set[Circuit] = set()
    missing: list[UnitPair] = []
    for pair in sorted(wanted):
        serving = _held_first((c for c in current if c.units == pair), held)[: wanted[pair]]
        kept.update(serving)
        missing += [pair] * (wanted[pair] - len(serving))

    spare = {c for c in current if c not in kept}
    for number, (a, b) in enumerate(missing):
        reserved = Counter(unit for pair in missing[number + 1 :] for unit in pair)
        chosen = min(
            itertools.product(_ends(a, kept, spare, ports), _ends(b, kept, spare, ports)),
            key=lambda ends: _cost(circuit(*ends), kept, spare, ports, reserved),
        )
        kept.add(circuit(*chosen))
        spare = _without(spare, *chosen)
    if not has_core:
        spare |= _joined(kept | spare, ports, Counter())
        while (better := _repaired(kept, spare, ports)) is not None:
            spare = better
    spare |= _refilled(current, kept | spare)
    target = frozenset(kept | spare)
    return Plan(target, current - target, target - current)


def check_demands(demands: Iterable[UnitPair], ports: PortTable) -> None:
    """Raise RequestError if a unit has fewer ports than it has demands that need circuits at the same
    time.
    """
    need: Counter[Unit] = Counter()
    for pair, count in Counter(pair for pair in demands if pair[0] != pair[1]).items():
        for unit in pair:
            if unit not in ports:
                demand = f"{unit_name(pair[0])}-{unit_name(pair[1])}"
                raise RequestError(
                    f"demand {demand}: no unit {unit_name(unit)}; there are u1 to u{max(ports)}"
                )
            need[unit] += count
    for unit, count in sorted(need.items()):
        if count > len(ports[unit]):
            raise RequestError(
                f"demands need {count} optical ports of {unit_name(unit)}; it has {len(ports[unit])}"
            )


def _ends(unit: Unit, kept: set[Circuit], spare: set[Circuit], ports: PortTable) -> list[str]:
    """Return the ports of `unit` that a new circuit may use: the first idle one, and one of a spare circuit
    to each other unit.
    """
    used = {end: c for c in kept | spare for end in c.ports}
    ends: dict[tuple[Unit, ...], str] = {}
    for port in ports[unit]:
        if port not in used:
            ends.setdefault((), port)
        elif used[port] in spare:
            ends.setdefault(used[port].units, port)
    return list(ends.values())


def _cost(
    new: Circuit, kept: set[Circuit], spare: set[Circuit], ports: PortTable, reserved: Counter[Unit]
) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    """Compare new circuits: count the circuits that one cuts, then the parts without a path to each other
    that remain once free ports are joined; the port numbers break ties.

    `reserved` counts the ports that demands not yet served will need of each unit.
    """
    left = _without(spare, *new.ports)
    circuits = kept | left | {new}
    parts = len(_parts(circuits | _joined(circuits, ports, reserved), ports))
    return (len(spare) - len(left), parts, tuple(parse_optical_port(port) for port in new.ports))


def _without(circuits: set[Circuit], *ends: str) -> set[Circuit]:
    return {c for c in circuits if not set(ends) & set(c.ports)}


def _parts(circuits: Iterable[Circuit], ports: PortTable) -> list[set[Unit]]:
    """Return the connected components: sets of units that reach each other, in the order of their first
    units.
    """
    part_of = {unit: {unit} for unit in sorted(ports)}
    for c in circuits:
        a, b = c.units
        if part_of[a] is not part_of[b]:
            small, large = sorted((part_of[a], part_of[b]), key=len)
            large |= small
            part_of |= dict.fromkeys(small, large)
    return list({id(part): part for part in part_of.values()}.values())


def _free(circuits: Iterable[Circuit], ports: PortTable) -> dict[Unit, list[str]]:
    """Return each unit's ports without a circuit."""
    used = {end for c in circuits for end in c.ports}
    return {unit: [port for port in names if port not in used] for unit, names in sorted(ports.items())}


def _joined(circuits: set[Circuit], ports: PortTable, reserved: Counter[Unit]) -> set[Circuit]:
    """Return circuits between free ports, `reserved` ones excepted, that join parts without a path to each
    other.
    """
    free = {unit: names[reserved[unit] :] for unit, names in _free(circuits, ports).items()}
    parts = _parts(circuits, ports)
    added: set[Circuit] = set()
    while True:
        able = [part for part in parts if any(free[unit] for unit in part)]
        if len(able) < 2:
            return added
        # the part with most ports left first: a part with one port left is an end of the network, and two
        # ends joined cannot grow further
        able.sort(key=lambda part: (-sum(len(free[unit]) for unit in part), min(part)))
        a, b = (max(part, key=lambda unit: (len(free[unit]), -unit)) for part in able[:2])
        added.add(circuit(free[a].pop(0), free[b].pop(0)))
        parts = [part for part in parts if part not in able[:2]] + [able[0] | able[1]]


def _repaired(kept: set[Circuit], spare: set[Circuit], ports: PortTable) -> set[Circuit] | None:
    """Change spare circuits so that there is one part fewer, with as few cuts as possible; None if
    impossible.

    A part with two free ports is inserted between the ends of any spare circuit of another part. A part with
    one free port takes an end of a spare circuit on a ring. Of two parts without free ports, one spare
    circuit each is cut and the four ends are crossed, if one of the two circuits was on a ring.
    """
    parts = _parts(kept | spare, ports)
    if len(parts) < 2:
        return None
    free = _free(kept | spare, ports)
    part_of = {unit: number for number, part in enumerate(parts) for unit in part}
    rings = _on_rings(kept | spare)
    for number, part in enumerate(parts):
        ends = [port for unit in sorted(part) for port in free[unit]][:2]
        for cut in sorted(spare) if ends else ():
            if part_of[cut.units[0]] != number and (len(ends) == 2 or cut in rings):
                return spare - {cut} | {circuit(*pair) for pair in zip(ends, cut.ports, strict=False)}
    for first, second in itertools.combinations(sorted(spare), 2):
        if part_of[first.units[0]] == part_of[second.units[0]]:
            continue
        if first in rings or second in rings:
            return spare - {first, second} | {circuit(first.a, second.a), circuit(first.b, second.b)}
    return None


def _refilled(current: frozenset[Circuit], target: set[Circuit]) -> set[Circuit]:
    """Return circuits between the ports that have one now and would have none afterwards; pairs of units
    without a direct circuit come first.
    """
    taken = {port for c in target for port in c.ports}
    idle = [port for port in ports_of(current) if port not in taken]
    direct = {c.units for c in target}
    added: set[Circuit] = set()
    while able := [
        c for a, b in itertools.combinations(idle, 2) if len(set((c := circuit(a, b)).units)) == 2
    ]:
        best = min(able, key=lambda c: (c.units in direct, parse_optical_port(c.a), parse_optical_port(c.b)))
        added.add(best)
        direct.add(best.units)
        idle = [port for port in idle if port not in best.ports]
    return added


def _on_rings(circuits: set[Circuit]) -> set[Circuit]:
    """Return the circuits that are on a ring: their ends reach each other without them too."""
    beside = Counter(c.units for c in circuits)
    graph: nx.Graph[Unit] = nx.Graph(iter(beside))
    bridges = {(min(ends), max(ends)) for ends in cast("Iterable[UnitPair]", nx.bridges(graph))}
    return {c for c in circuits if beside[c.units] > 1 or c.units not in bridges}
