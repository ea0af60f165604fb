"""Compute paths between units over the circuits. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from testbed.errors import TestbedError
from testbed.ocs.circuits import Circuit, carrying
from testbed.topology.addresses import (
    CORE_UNIT,
    CORE_WAY,
    core_link_name,
    parse_optical_port,
    unit_name,
)
from testbed.topology.units import Unit

Ports = dict[tuple[Unit, Unit], list[int]]
Numbers = np.ndarray[Any, np.dtype[Any]]


def _graph(circuits: Iterable[Circuit], units: Iterable[Unit]) -> tuple[nx.Graph[Unit], Ports]:
    """Return the graph of units, and for each directed edge the ports of its first unit. Both directions list
    ports in the order of the circuits: the same index in both is the same circuit.
    """
    graph: nx.Graph[Unit] = nx.Graph()
    graph.add_nodes_from(sorted(units))
    ports: Ports = {}
    for c in sorted(circuits):
        (a, port_a), (b, port_b) = parse_optical_port(c.a), parse_optical_port(c.b)
        if a != b:
            graph.add_edge(a, b)
            ports.setdefault((a, b), []).append(port_a)
            ports.setdefault((b, a), []).append(port_b)
    return graph, ports


def joined(circuits: Iterable[Circuit], units: Iterable[Unit]) -> tuple[dict[Unit, tuple[Unit, ...]], Ports]:
    """Return the units that circuits join to each unit, sorted; and the ports of each directed pair."""
    graph, ports = _graph(circuits, units)
    return {unit: tuple(sorted(graph[unit])) for unit in graph}, ports


class Hops(Mapping[Unit, dict[Unit, tuple[int, ...]]]):
    """First hops of shortest paths: for each unit and each other unit that it can reach, the optical ports of
    all circuits to the same next unit, over which packets are spread (`testbed.wire.spreading`). Unreachable
    units are left out. With a core, CORE_WAY is the port to it.

    `units` is sorted. `bundles` lists sets of ports; the first is the empty one. `numbers[row of unit][row of
    goal]` is the number of a bundle; it is read-only. `from_core` has the unit by whose link the core reaches
    each unit that it does not reach by the unit's own link; None: by none.
    """

    def __init__(
        self,
        units: tuple[Unit, ...],
        bundles: tuple[tuple[int, ...], ...],
        numbers: Numbers,
        from_core: Mapping[Unit, Unit | None] | None = None,
    ) -> None:
        self.units, self.bundles, self.numbers = units, bundles, numbers
        self.from_core = dict(from_core or {})
        self._rows = {unit: row for row, unit in enumerate(units)}

    def __getitem__(self, unit: Unit) -> dict[Unit, tuple[int, ...]]:
        numbers = self.numbers[self._rows[unit]].tolist()
        return {
            goal: self.bundles[number] for goal, number in zip(self.units, numbers, strict=True) if number
        }

    def __iter__(self) -> Iterator[Unit]:
        return iter(self.units)

    def __len__(self) -> int:
        return len(self.units)

    def since(self, before: Hops) -> Numbers:
        """Return the `numbers` of an earlier Hops over the same units, in our numbering of bundles; bundles
        that we lack are numbered after ours, in their order.
        """
        known = {ports: number for number, ports in enumerate(self.bundles)}
        return np.array([known.setdefault(ports, len(known)) for ports in before.bundles])[before.numbers]

    def bundles_since(self, before: Hops) -> tuple[tuple[int, ...], ...]:
        """Return the bundles that `since` numbers: ours, then the earlier ones that we lack."""
        return tuple(dict.fromkeys((*self.bundles, *before.bundles)))


@dataclass(frozen=True, slots=True, eq=False)
class Rerouted:
    """Changed routes, as parallel arrays: the unit of the switch, the destination network (the number of its
    first address; a network has 256), and the number of the bundle of optical ports before and now.
    `bundles[0]` is empty: no route.
    """

    units: Numbers
    networks: Numbers
    before: Numbers
    now: Numbers
    bundles: tuple[tuple[int, ...], ...]


def next_hops(
    circuits: Iterable[Circuit],
    units: Iterable[Unit],
    has_core: bool = False,
    down: Collection[str] = (),
) -> Hops:
    """Compute the first hops of shortest paths; of equally short ones, that over the unit with the smallest
    number. With a core, units that no circuit joins directly reach each other over the core. No path uses a
    link that is `down`, an optical port's or one to the core. A unit without its link to the core reaches it,
    and is reached from it, over circuits to other units.
    """
    graph, ports = _graph(carrying(circuits, down), units)
    order = tuple(graph)
    if not has_core:
        return _shortest(order, {unit: sorted(graph[unit]) for unit in order}, ports)
    joined = _at_core(order, down)
    if len(joined) == len(order):
        return _direct_or_core(order, ports)
    near = {unit: sorted(graph[unit]) for unit in order}
    # first of all, so that of equally short paths that over the core is taken
    near |= {unit: [CORE_UNIT, *near[unit]] for unit in joined}
    near[CORE_UNIT] = joined
    for unit in joined:
        ports[unit, CORE_UNIT], ports[CORE_UNIT, unit] = [CORE_WAY], [unit]
    return _without_core_row(_shortest((*order, CORE_UNIT), near, ports))


def _at_core(units: Iterable[Unit], down: Collection[str]) -> list[Unit]:
    """Return the units whose links to the core are up."""
    return [unit for unit in units if core_link_name(unit) not in down]


def _without_core_row(hops: Hops) -> Hops:
    """Separate the core's first hops, and the bundles that only it uses, from the units'."""
    used, numbers = np.unique(np.append(hops.numbers[:-1, :-1], 0), return_inverse=True)
    numbers = numbers[:-1].reshape(len(hops) - 1, len(hops) - 1).astype(np.int32)
    numbers.setflags(write=False)
    bundles = tuple(hops.bundles[number] for number in used.tolist())
    own = hops[CORE_UNIT]
    by_other = {
        unit: Unit(own[unit][0]) if unit in own else None
        for unit in hops.units[:-1]
        if own.get(unit) != (unit,)
    }
    return Hops(hops.units[:-1], bundles, numbers, by_other)


def _shortest(order: tuple[Unit, ...], neighbours: Mapping[Unit, list[Unit]], ports: Ports) -> Hops:
    """Compute first hops by one breadth-first search for all goals at once, one bit each; of equally short
    paths, that over the first of a unit's neighbours.
    """
    row = {unit: number for number, unit in enumerate(order)}
    near = [neighbours[unit] for unit in order]
    degree, size = max(map(len, near), default=0), len(order)
    bundles: dict[tuple[int, ...], int] = {(): 0}
    # by index among a unit's neighbours: the neighbour's row, or the row after the last, which reaches
    # nothing
    via = np.full((degree, size), size)
    by = np.zeros((degree, size), np.int32)
    for number, unit in enumerate(order):
        for place, other in enumerate(near[number]):
            via[place, number] = row[other]
            by[place, number] = bundles.setdefault(tuple(ports[unit, other]), len(bundles))
    front = np.packbits(np.eye(size + 1, size, dtype=bool), axis=1)
    reached, taken = front[:size].copy(), np.zeros((degree, size, front.shape[1]), np.uint8)
    while front.any():
        beyond = np.zeros_like(front)
        for place in range(degree):
            step = front[via[place]] & ~reached
            reached |= step
            taken[place] |= step
            beyond[:size] |= step
        front = beyond
    numbers = np.zeros((size, size), np.int32)
    for place in range(degree):
        numbers += np.unpackbits(taken[place], axis=1, count=size) * by[place][:, None]
    numbers.setflags(write=False)
    return Hops(order, tuple(bundles), numbers)


def _direct_or_core(order: tuple[Unit, ...], ports: Ports) -> Hops:
    row = {unit: number for number, unit in enumerate(order)}
    bundles: dict[tuple[int, ...], int] = {(): 0, (CORE_WAY,): 1}
    numbers = np.ones((len(order), len(order)), np.int32)
    np.fill_diagonal(numbers, 0)
    for (a, b), between in ports.items():
        numbers[row[a], row[b]] = bundles.setdefault(tuple(between), len(bundles))
    numbers.setflags(write=False)
    return Hops(order, tuple(bundles), numbers)


def tree(
    circuits: Iterable[Circuit],
    units: Iterable[Unit],
    root: Unit,
    members: Iterable[Unit],
    has_core: bool = False,
    down: Collection[str] = (),
) -> dict[Unit, list[tuple[int, ...]]]:
    """Compute a multicast tree: for each unit on it, tuples of optical ports. A packet from `root` goes on by
    one port of each tuple; a tuple has the parallel circuits to one unit. With a core, members without a
    direct circuit to `root` are reached over it: the core is CORE_UNIT, and its ports are the units' numbers.

    It uses no link that is `down`. TestbedError when a member cannot be reached.
    """
    graph, ports = _graph(carrying(circuits, down), units)
    if has_core:
        joined = _at_core(graph, down)
        if len(joined) == len(graph):
            return _tree_with_core(ports, root, sorted(members))
        for unit in joined:
            graph.add_edge(unit, CORE_UNIT)
            ports[unit, CORE_UNIT], ports[CORE_UNIT, unit] = [CORE_WAY], [unit]
    parent = dict(nx.bfs_predecessors(graph, root, sort_neighbors=_core_first))
    downstream: dict[Unit, set[tuple[int, ...]]] = {root: set()}
    for member in sorted(members):
        unit = member
        while unit != root:
            if unit not in parent:
                raise TestbedError(
                    f"reach {unit_name(member)} from {unit_name(root)}: no path over the circuits"
                )
            downstream.setdefault(unit, set())
            downstream.setdefault(parent[unit], set()).add(tuple(ports[parent[unit], unit]))
            unit = parent[unit]
    return {unit: sorted(bundles) for unit, bundles in sorted(downstream.items())}


def _core_first(units: Iterable[Unit]) -> list[Unit]:
    return sorted(units, key=lambda unit: (unit != CORE_UNIT, unit))


def _tree_with_core(ports: Ports, root: Unit, members: list[Unit]) -> dict[Unit, list[tuple[int, ...]]]:
    direct = [unit for unit in members if (root, unit) in ports]
    over = [unit for unit in members if unit != root and unit not in direct]
    downstream: dict[Unit, list[tuple[int, ...]]] = {unit: [] for unit in members}
    downstream[root] = sorted(tuple(ports[root, unit]) for unit in direct)
    if over:
        downstream[root].append((CORE_WAY,))
        downstream[CORE_UNIT] = [(unit,) for unit in over]
    return dict(sorted(downstream.items()))
