"""Describe a forest by names, for a job's status and result: which place sums which hosts and places.
Pure.
"""

from __future__ import annotations

from testbed.aggregation.forest import Forest, Node
from testbed.messages.jobs import SummingNode, SummingTree
from testbed.topology.places import at_host


def summing_trees(forest: Forest) -> tuple[SummingTree, ...]:
    """Describe the trees by names: each tree's share of the fragments, and each place's contributors, hosts
    of workers and places.
    """
    tops = [_summing_node(forest, tree.top) for tree in forest.trees]
    return tuple(
        SummingTree(share, top.place, top.workers, top.below)
        for top, share in zip(tops, forest.fractions(), strict=True)
    )


def _summing_node(forest: Forest, node: Node) -> SummingNode:
    return SummingNode(
        place=str(node.place),
        workers=tuple(str(at_host(forest.workers[rank])) for rank in node.workers),
        below=tuple(_summing_node(forest, child) for child in node.below),
    )
