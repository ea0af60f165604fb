"""Paths between units over the circuits. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx

from testbed.errors import TestbedError
from testbed.ocs.circuits import Circuit
from testbed.topology.addresses import parse_optical_port, unit_name
from testbed.topology.units import Unit

Ports = dict[tuple[Unit, Unit], list[int]]


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


def next_hops(circuits: Iterable[Circuit], units: Iterable[Unit]) -> dict[Unit, dict[Unit, tuple[int, ...]]]:
    """Return, for each unit and each other unit that it can reach, the optical ports of the first hop of a
    shortest path: of all circuits to the same next unit, over which packets are spread
    (`testbed.contract.spreading`). Unreachable units are left out.
    """
    graph, ports = _graph(circuits, units)
    near = {unit: sorted(graph[unit]) for unit in graph}
    parallel = {way: tuple(numbers) for way, numbers in ports.items()}
    hops: dict[Unit, dict[Unit, tuple[int, ...]]] = {unit: {} for unit in graph}
    for destination in graph:
        reached, front = {destination}, [destination]
        while front:  # unit by unit in their order: each is reached by the first of those that are as near
            beyond = []
            for via in front:
                for unit in near[via]:
                    if unit not in reached:
                        reached.add(unit)
                        beyond.append(unit)
                        hops[unit][destination] = parallel[unit, via]
            front = sorted(beyond)
    return hops


def tree(
    circuits: Iterable[Circuit], units: Iterable[Unit], root: Unit, members: Iterable[Unit]
) -> dict[Unit, list[tuple[int, ...]]]:
    """A multicast tree: for each unit on it, the optical ports by which a packet from `root` goes on towards
    the members, by one of each tuple: those of parallel circuits to one unit.

    TestbedError when a member cannot be reached.
    """
    graph, ports = _graph(circuits, units)
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
