"""Data-centre topologies of published simulations as NetworkX graphs, for simulators. Pure.

A node's `layer` is one of LAYERS, and `pod` is the number of its pod or leaf, 0 for switches of no pod; an
edge's `gbps` is its rate in each direction. `fat_tree()` and `leaf_spine()` without arguments are the two of
ALEPH (section VI-B, simulation settings).
"""

from __future__ import annotations

import itertools

import networkx as nx

from testbed.errors import RequestError

SERVER, EDGE, AGGREGATION, CORE = LAYERS = ("server", "edge", "aggregation", "core")


def fat_tree(
    arity: int = 8, servers: int = 10, server_gbps: float = 10.0, oversubscription: float = 1.0
) -> nx.Graph[str]:
    """Make a three-layer fat tree (Al-Fares et al.): `arity` pods, each with arity / 2 edge and as many
    aggregation switches, every edge switch linked with every aggregation switch, and (arity / 2)^2 core
    switches, each linked with one aggregation switch of each pod. Each edge switch has that many `servers`,
    p1e1s1, ...

    An edge switch's uplinks together have the rate of the links to its servers, divided by
    `oversubscription`; so have an aggregation switch's. The defaults give 16 core, 32 aggregation and 32 edge
    switches and 320 servers, non-blocking. Raises RequestError for an odd arity, for counts below 1, and for
    rates that are not above 0.
    """
    _check(arity=arity, servers=servers)
    _check_rates(server_gbps=server_gbps, oversubscription=oversubscription)
    if arity % 2:
        raise RequestError(f"arity: {arity}; an even number of ports is accepted")
    half = arity // 2
    up_gbps = servers * server_gbps / half / oversubscription
    graph: nx.Graph[str] = nx.Graph()
    cores = {(row, column): f"c{row * half + column + 1}" for row in range(half) for column in range(half)}
    graph.add_nodes_from(cores.values(), layer=CORE, pod=0)
    for pod in range(1, arity + 1):
        uppers = [f"p{pod}a{number}" for number in range(1, half + 1)]
        edges = [f"p{pod}e{number}" for number in range(1, half + 1)]
        graph.add_nodes_from(uppers, layer=AGGREGATION, pod=pod)
        graph.add_nodes_from(edges, layer=EDGE, pod=pod)
        for edge in edges:
            _add_servers(graph, edge, servers, server_gbps)
        graph.add_edges_from(itertools.product(edges, uppers), gbps=up_gbps)
        links = ((upper, cores[row, column]) for row, upper in enumerate(uppers) for column in range(half))
        graph.add_edges_from(links, gbps=up_gbps)
    return graph


def leaf_spine(
    spines: int = 30,
    leaves: int = 30,
    servers: int = 10,
    server_gbps: float = 10.0,
    oversubscription: float = 1.0,
) -> nx.Graph[str]:
    """Make a two-layer leaf and spine topology: each leaf is linked with each spine, and has that many
    `servers`, l1s1, ...

    A leaf's uplinks together have the rate of the links to its servers, divided by `oversubscription`. The
    defaults give 30 spines, 30 leaves and 300 servers, non-blocking. Raises RequestError for counts below 1,
    and for rates that are not above 0.
    """
    _check(spines=spines, leaves=leaves, servers=servers)
    _check_rates(server_gbps=server_gbps, oversubscription=oversubscription)
    graph: nx.Graph[str] = nx.Graph()
    tops = [f"s{number}" for number in range(1, spines + 1)]
    graph.add_nodes_from(tops, layer=CORE, pod=0)
    for number in range(1, leaves + 1):
        leaf = f"l{number}"
        graph.add_node(leaf, layer=EDGE, pod=number)
        _add_servers(graph, leaf, servers, server_gbps)
        gbps = servers * server_gbps / spines / oversubscription
        graph.add_edges_from(((leaf, top) for top in tops), gbps=gbps)
    return graph


def layer_of(graph: nx.Graph[str], layer: str) -> list[str]:
    """Return the nodes of a layer, in the order of their creation."""
    return [node for node in graph if graph.nodes[node]["layer"] == layer]


def _add_servers(graph: nx.Graph[str], switch: str, servers: int, gbps: float) -> None:
    names = [f"{switch}s{number}" for number in range(1, servers + 1)]
    graph.add_nodes_from(names, layer=SERVER, pod=graph.nodes[switch]["pod"])
    graph.add_edges_from(((name, switch) for name in names), gbps=gbps)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise RequestError(f"{name}: {count}; a whole number from 1 is accepted")


def _check_rates(**rates: float) -> None:
    for name, rate in rates.items():
        if not rate > 0:
            raise RequestError(f"{name}: {rate}; a number above 0 is accepted")
