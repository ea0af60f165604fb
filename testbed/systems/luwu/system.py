"""LuWu's forest (section 3.2 of the paper): each switch sums the gradients of what is below it, and the top
is the switch of the optimizer node, which has the sums alone.
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
    """Workers train without parameters of their own: these come from an optimizer node, and gradients go to
    it, summed on the way.
    """

    name = "luwu"
    summary = "LuWu: an optimizer node sends parameters, and switches sum gradients for it"
    programs: Mapping[str, str] = {"xdp": "owned", "bmv2": "owned"}
    server = SERVER_ALWAYS
    paper: str | None = "luwu"

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """One tree, whose owner is a free host of a unit of kind optimizer, or else of any."""
        node = site.server(workers, "optimizer", f"the {SERVICE.name}")
        tree = below_top(workers, at_tor(addresses.tor_of(*node)))
        forest = Forest(tuple(workers), (Tree(tree.top, owner=node),))
        return Layout(self.name, tuple(workers), OWNED, node, forest, forest.demands(), service=SERVICE)
