"""Systems with forests of several trees, for tests: the units' switches are their tops, each tree with
a weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.aggregation.forest import Forest, Node, Tree, below_top, by_unit
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.topology.places import Host, at_host, switch
from testbed.wire.transports import PACKETS


class Halves:
    """The units' switches are tops in turn, with equal weights."""

    programs: Mapping[str, str] = {"xdp": "sum", "bmv2": "sum"}
    weights: tuple[float, ...] = (1, 1)

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out as many trees as there are weights."""
        units = sorted(by_unit(workers))
        tops = [switch(units[at % len(units)]) for at in range(len(self.weights))]
        trees = (below_top(workers, top) for top in tops)
        forest = Forest(
            tuple(workers),
            tuple(Tree(tree.top, weight) for tree, weight in zip(trees, self.weights, strict=True)),
        )
        return Layout(type(self).__name__, tuple(workers), PACKETS, None, forest, forest.demands())


class Thirds(Halves):
    """One tree has a third of the fragments, the other two thirds."""

    weights = (1 / 3, 2 / 3)


class Three(Halves):
    """Three trees, two of which have the same unit's switch at the top."""

    weights = (0.5, 0.3, 0.2)


class Chains(Halves):
    """Two chains of hosts, one from each end."""

    programs: Mapping[str, str] = {}

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out a chain with the first worker's host at the top, and one with the last worker's."""
        ranks = range(len(workers))
        forest = Forest(tuple(workers), (_chain(workers, [*reversed(ranks)]), _chain(workers, [*ranks])))
        return Layout("Chains", tuple(workers), PACKETS, None, forest, forest.demands())


def _chain(workers: Sequence[Host], ranks: Sequence[int]) -> Tree:
    below: tuple[Node, ...] = ()
    for rank in ranks:
        below = (Node(at_host(workers[rank]), (rank,), below),)
    return Tree(below[0])
