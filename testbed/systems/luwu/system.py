"""LuWu's forest (section 3.2 of the paper): each switch sums the gradients from below it. The top is the
switch of the optimizer node, which alone receives the sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.aggregation.forest import Forest, Tree, below_top
from testbed.aggregation.site import Site
from testbed.aggregation.system import SERVER_ALWAYS, Layout, Service, System
from testbed.topology import addresses
from testbed.topology.places import Host, at_tor
from testbed.wire.transports import OWNED

SERVICE = Service("workloads.luwu.service", "optimizer node")


class LuWu(System):
    """Workers train without storing parameters: an optimizer node sends them and receives the gradients,
    which are summed on the way.
    """

    name = "luwu"
    summary = "LuWu: an optimizer node sends parameters, and switches sum gradients for it"
    programs: Mapping[str, str] = {"xdp": "owned", "bmv2": "owned"}
    server = SERVER_ALWAYS
    paper: str | None = "luwu"
    not_automatic = "it needs a script of its own"

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out one tree. Its owner is a free host of a unit of kind optimizer, or else of any unit."""
        node = site.server(workers, "optimizer", f"the {SERVICE.name}")
        tree = below_top(workers, at_tor(addresses.tor_of(*node)))
        forest = Forest(tuple(workers), (Tree(tree.top, owner=node),))
        return Layout(self.name, tuple(workers), OWNED, node, forest, forest.demands(), service=SERVICE)
