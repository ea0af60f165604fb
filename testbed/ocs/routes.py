"""Paths between units over the circuits. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from testbed.errors import TestbedError
from testbed.ocs.circuits import Circuit
from testbed.topology.addresses import CORE_UNIT, CORE_WAY, parse_optical_port, unit_name
from testbed.topology.units import Unit

Ports = dict[tuple[Unit, Unit], list[int]]
Numbers = np.ndarray[Any, np.dtype[Any]]


def _graph(circuits: Iterable[Circuit], units: Iterable[Unit]) -> tuple[nx.Graph[Unit], Ports]:
    """The graph of units, and for each directed edge the ports of its first unit, both ways in the order of
    the circuits: what takes the same place of both takes the same circuit.
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


class Hops(Mapping[Unit, dict[Unit, tuple[int, ...]]]):
    """First hops of shortest paths: for each unit and each other unit that it can reach, the optical ports of
    all circuits to the same next unit, over which packets are spread (`testbed.wire.spreading`).
    Unreachable units are left out. Where there is a core, CORE_WAY is the port to it.

    `units` is in order, `bundles` says which ports, none first, and `numbers` has by unit and by goal, in
    that order, the number of a bundle. Not to be written to.
    """

    def __init__(
        self, units: tuple[Unit, ...], bundles: tuple[tuple[int, ...], ...], numbers: Numbers
    ) -> None:
        self.units, self.bundles, self.numbers = units, bundles, numbers
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
        """Return the numbers of what there was before, of the same units: those of our bundles, and further
        ones, in their order, for bundles that we have not.
        """
        known = {ports: number for number, ports in enumerate(self.bundles)}
        return np.array([known.setdefault(ports, len(known)) for ports in before.bundles])[before.numbers]

    def bundles_since(self, before: Hops) -> tuple[tuple[int, ...], ...]:
        """Return the bundles that `since` numbers."""
        return tuple(dict.fromkeys((*self.bundles, *before.bundles)))


@dataclass(frozen=True, slots=True, eq=False)
class Rerouted:
    """Routes that changed, side by side: whose switch's (of a unit), to which network (the number of its
    first address; 256 of them), and by which of `bundles` of optical ports before and now, the first being
    none.
    """

    units: Numbers
    networks: Numbers
    before: Numbers
    now: Numbers
    bundles: tuple[tuple[int, ...], ...]


def next_hops(circuits: Iterable[Circuit], units: Iterable[Unit], has_core: bool = False) -> Hops:
    """Return the first hops of shortest paths: of several that are as short, that by the unit with the least
    number. All goals are looked for at once, from near to far, a bit each. With a core, units that no circuit
    joins directly reach each other over that.
    """
    graph, ports = _graph(circuits, units)
    if has_core:
        return _direct_or_core(tuple(graph), ports)
    order = tuple(graph)
    row = {unit: number for number, unit in enumerate(order)}
    near = [sorted(graph[unit]) for unit in order]
    degree, size = max(map(len, near), default=0), len(order)
    bundles: dict[tuple[int, ...], int] = {(): 0}
    # by place among a unit's neighbours: the neighbour's row, or one behind all, where nothing is reached
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


def _tree_with_core(ports: Ports, root: Unit, members: list[Unit]) -> dict[Unit, list[tuple[int, ...]]]:
    direct = [unit for unit in members if (root, unit) in ports]
    over = [unit for unit in members if unit != root and unit not in direct]
    downstream: dict[Unit, list[tuple[int, ...]]] = {unit: [] for unit in members}
    downstream[root] = sorted(tuple(ports[root, unit]) for unit in direct)
    if over:
        downstream[root].append((CORE_WAY,))
        downstream[CORE_UNIT] = [(unit,) for unit in over]
    return dict(sorted(downstream.items()))


def tree(
    circuits: Iterable[Circuit],
    units: Iterable[Unit],
    root: Unit,
    members: Iterable[Unit],
    has_core: bool = False,
) -> dict[Unit, list[tuple[int, ...]]]:
    """A multicast tree: for each unit on it, the optical ports by which a packet from `root` goes on towards
    the members, by one of each tuple: those of parallel circuits to one unit. With a core, members to which
    no circuit leads directly are reached over that, which is CORE_UNIT then, and has the units' numbers as
    ports.

    TestbedError when a member cannot be reached.
    """
    graph, ports = _graph(circuits, units)
    if has_core:
        return _tree_with_core(ports, root, sorted(members))
    parent = dict(nx.bfs_predecessors(graph, root, sort_neighbors=sorted))
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
