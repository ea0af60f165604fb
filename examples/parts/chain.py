"""Sum along a chain of hosts: each adds its own gradients to the sum of those behind it, and passes the
result on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.aggregation.forest import Forest, Node, Tree
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.topology.places import Host, at_host
from testbed.wire.transports import PACKETS


class Chain:
    """A system with one tree, in which each worker's host is a place below the host of the worker before
    it.
    """

    programs: Mapping[str, str] = {}  # no switch sums

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out the job: return where each contribution goes."""
        below: tuple[Node, ...] = ()
        for rank in reversed(range(len(workers))):
            below = (Node(at_host(workers[rank]), (rank,), below),)
        forest = Forest(tuple(workers), (Tree(below[0]),))
        return Layout("chain", tuple(workers), PACKETS, None, forest, forest.demands())
