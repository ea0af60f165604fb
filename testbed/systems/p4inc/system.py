"""P4INC-AOI's forest (section IV of the paper), one tree: workers, switch, parameter server's host. Within
one unit the switch alone is its top; in a pod the ToRs are below the pod switch. Also brings the policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from testbed.aggregation.forest import Forest, below_top, meeting_switch
from testbed.aggregation.site import Site
from testbed.aggregation.system import SERVER_ACROSS, Layout, Policies, Showing, System
from testbed.systems.p4inc.policies import catalogue
from testbed.topology.places import Host, at_host
from testbed.wire.transports import PACKETS


class P4inc(System):
    """Aggregate at switches; a job without room there is summed by its parameter server (section IV)."""

    name = "inc"
    summary = "P4INC-AOI: each unit's switch sums, across units a parameter server's host as well"
    programs: Mapping[str, str] = {"xdp": "sum", "bmv2": "sum"}
    instead = "ps"
    server = SERVER_ACROSS
    policies = Policies(
        {name: partial(catalogue.make, name) for name in catalogue.NAMES},
        with_inc="inc",
        without_inc="ps",
        usual="inc-tw",
    )
    paper = "p4inc"
    showing = Showing("in the network (inc)", across=True)

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out one tree. Within one unit no parameter server is needed."""
        server = site.server(workers) if len({unit for unit, _ in workers}) > 1 else None
        top = at_host(server) if server else meeting_switch(workers)
        forest = Forest(tuple(workers), (below_top(workers, top),))
        return Layout(self.name, tuple(workers), PACKETS, server, forest, forest.demands())
