"""A tree of switches only: each unit's switch sums its workers, and the switch of the unit with the most
workers also sums the others' partials. No host is needed, and each link carries one vector each way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.aggregation.forest import Forest, below_top, by_unit, meeting_switch
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout, System
from testbed.topology.places import Host, switch
from testbed.wire.transports import PACKETS


class Switches(System):
    """Aggregate at switches, across units too."""

    name = "switches"
    summary = "switches alone sum: each unit's, across units below the one with the most workers"
    programs: Mapping[str, str] = {"xdp": "sum", "bmv2": "sum"}

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out one tree; of units with equally many workers, the first is the top."""
        ranks = by_unit(workers)
        most = max(ranks, key=lambda unit: (len(ranks[unit]), -unit))
        top = switch(most) if len(ranks) > 1 else meeting_switch(workers)
        forest = Forest(tuple(workers), (below_top(workers, top),))
        return Layout(self.name, tuple(workers), PACKETS, None, forest, forest.demands())
