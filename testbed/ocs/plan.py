"""Which circuits serve a set of demands, with few changes to those that are lit. Pure and deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit, circuit
from testbed.topology.addresses import parse_optical_port, unit_name

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """The circuits to have, and what changes to get there."""

    target: frozenset[Circuit]
    removed: frozenset[Circuit]
    added: frozenset[Circuit]


def plan(current: frozenset[Circuit], demands: Iterable[Pair], ports: Mapping[int, tuple[str, ...]]) -> Plan:
    """Circuits such that every demanded pair of units has one for each time that it is demanded.

    Circuits that serve a demand stay; of the others only those are cut whose port is needed; ports left over are joined where that
    connects units which would have no path otherwise. `ports` lists each unit's optical ports. RequestError when a unit has fewer ports
    than demands.
    """
    wanted = Counter((min(a, b), max(a, b)) for a, b in demands if a != b)
    _check(wanted, ports)

    kept: set[Circuit] = set()
    missing: list[Pair] = []
    for pair in sorted(wanted):
        there = sorted(c for c in current if c.units == pair)[: wanted[pair]]
        kept.update(there)
        missing += [pair] * (wanted[pair] - len(there))

    spare = {c for c in current if c not in kept}
    added: set[Circuit] = set()
    for a, b in missing:
        ends = []
        for unit, other in ((a, b), (b, a)):
            end = _free_port(unit, other, kept | added | spare, spare, ports)
            spare = {c for c in spare if end not in c.ports}
            ends.append(end)
        added.add(circuit(*ends))
    added |= _joined(kept | added | spare, ports)
    target = frozenset(kept | added | spare)
    return Plan(target, current - target, target - current)


def _check(wanted: Counter[Pair], ports: Mapping[int, tuple[str, ...]]) -> None:
    need: Counter[int] = Counter()
    for pair, count in wanted.items():
        for unit in pair:
            if unit not in ports:
                demand = f"{unit_name(pair[0])}-{unit_name(pair[1])}"
                raise RequestError(f"demand {demand}: no unit {unit_name(unit)}; there are u1 to u{max(ports)}")
            need[unit] += count
    for unit, count in sorted(need.items()):
        if count > len(ports[unit]):
            raise RequestError(f"demands need {count} optical ports of {unit_name(unit)}; it has {len(ports[unit])}")


def _free_port(
    unit: int, other: int, in_use: set[Circuit], spare: set[Circuit], ports: Mapping[int, tuple[str, ...]]
) -> str:
    """An unused port of `unit`, or that of the spare circuit whose loss hurts least: one that `other` loses a port of, too."""
    used = {end: c for c in in_use for end in c.ports}
    idle = [port for port in ports[unit] if port not in used]
    if idle:
        return idle[0]
    cuttable = [port for port in ports[unit] if used[port] in spare]

    def cost(port: str) -> tuple[bool, bool, Pair]:
        return (other not in used[port].units, _is_bridge(used[port], in_use), parse_optical_port(port))

    return min(cuttable, key=cost)


def _is_bridge(cut: Circuit, circuits: set[Circuit]) -> bool:
    graph = nx.Graph(c.units for c in circuits if c != cut)
    a, b = cut.units
    return not (a in graph and b in graph and nx.has_path(graph, a, b))


def _joined(circuits: set[Circuit], ports: Mapping[int, tuple[str, ...]]) -> set[Circuit]:
    used = {end for c in circuits for end in c.ports}
    free = {unit: [port for port in names if port not in used] for unit, names in sorted(ports.items())}
    graph = nx.Graph(c.units for c in circuits)
    graph.add_nodes_from(ports)
    added: set[Circuit] = set()
    while True:
        parts = [sorted(unit for unit in part if free[unit]) for part in nx.connected_components(graph)]
        able = [units for units in parts if units]
        if len(able) < 2:
            return added
        # the part with most ports left first: a part with one port is an end, and two ends joined are a dead end
        able.sort(key=lambda units: (-sum(len(free[unit]) for unit in units), units[0]))
        a, b = (max(units, key=lambda unit: (len(free[unit]), -unit)) for units in able[:2])
        added.add(circuit(free[a].pop(0), free[b].pop(0)))
        graph.add_edge(a, b)
