"""Data-centre topologies as graphs: how many of what, how far apart, and whether they block."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.topology.datacenters import (
    AGGREGATION,
    CORE,
    EDGE,
    SERVER,
    fat_tree,
    layer_of,
    leaf_spine,
)

SMALL = {"fat tree": fat_tree(4, 3), "leaf and spine": leaf_spine(3, 4, 2)}


def layers(graph: nx.Graph) -> Counter[str]:
    return Counter(its for _, its in graph.nodes(data="layer"))


def test_aleph_s_two_topologies() -> None:
    tree, leaves = fat_tree(), leaf_spine()
    assert layers(tree) == {CORE: 16, AGGREGATION: 32, EDGE: 32, SERVER: 320}
    assert layers(leaves) == {CORE: 30, EDGE: 30, SERVER: 300}
    assert tree.edges["p1e1s1", "p1e1"]["gbps"] == leaves.edges["l1s1", "l1"]["gbps"] == 10
    assert tree.edges["p8e4", "p8a4"]["gbps"] == tree.edges["p8a4", "c16"]["gbps"] == 25
    assert leaves.edges["l30", "s30"]["gbps"] == pytest.approx(100 / 30)


def rates(graph: nx.Graph, node: str, layer: str) -> float:
    """Return what a node's links to a layer carry together."""
    return sum(
        graph.edges[node, other]["gbps"] for other in graph[node] if graph.nodes[other]["layer"] == layer
    )


@pytest.mark.parametrize("graph", [fat_tree(), leaf_spine(), *SMALL.values()])
def test_each_switch_carries_up_what_comes_from_below(graph: nx.Graph) -> None:
    above = AGGREGATION if layer_of(graph, AGGREGATION) else CORE
    for edge in layer_of(graph, EDGE):
        assert rates(graph, edge, above) == pytest.approx(rates(graph, edge, SERVER))
    for upper in layer_of(graph, AGGREGATION):
        assert rates(graph, upper, CORE) == pytest.approx(rates(graph, upper, EDGE))


@pytest.mark.parametrize("graph", SMALL.values(), ids=SMALL)
def test_half_of_the_servers_send_to_the_others_at_their_full_rate(graph: nx.Graph) -> None:
    servers = layer_of(graph, SERVER)
    flow = nx.DiGraph(graph)
    half = len(servers) // 2
    flow.add_edges_from((("from", server) for server in servers[:half]), gbps=10.0)
    flow.add_edges_from(((server, "to") for server in servers[half:]), gbps=10.0)
    assert nx.maximum_flow_value(flow, "from", "to", capacity="gbps") == pytest.approx(10.0 * half)


@given(st.sampled_from([2, 4, 6]), st.integers(1, 3))
def test_servers_of_a_fat_tree_are_two_four_or_six_links_apart(arity: int, servers: int) -> None:
    graph = fat_tree(arity, servers)
    assert layers(graph)[SERVER] == arity * arity // 2 * servers
    assert {graph.degree[core] for core in layer_of(graph, CORE)} == {arity}
    for a, lengths in nx.all_pairs_shortest_path_length(graph):
        for b, links in lengths.items() if graph.nodes[a]["layer"] == SERVER else ():
            if graph.nodes[b]["layer"] == SERVER and a != b:
                together = [graph.nodes[a]["pod"] == graph.nodes[b]["pod"], set(graph[a]) == set(graph[b])]
                assert links == 6 - 2 * sum(together)


def test_oversubscribed_links_carry_less() -> None:
    assert fat_tree(oversubscription=2.5).edges["p1e1", "p1a1"]["gbps"] == 10
    assert leaf_spine(10, oversubscription=2).edges["l1", "s1"]["gbps"] == 5


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fat_tree(5), "^arity: 5; an even number of ports is accepted"),
        (lambda: fat_tree(0), "^arity: 0; a whole number from 1 is accepted"),
        (lambda: fat_tree(servers=True), "^servers: True; a whole number"),
        (lambda: fat_tree(server_gbps=-1), "^server_gbps: -1; a number above 0"),
        (lambda: fat_tree(oversubscription=float("nan")), "^oversubscription: nan; a number above 0"),
        (lambda: leaf_spine(spines=0), "^spines: 0; a whole number from 1"),
    ],
)
def test_what_is_no_topology_is_one_line(make: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        make()
