"""Trio-ML's forest (section 4 of the paper): first-level switches are sources of a top-level one: of the pod
switch in a pod; across units, of the switch of the unit with the most workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.aggregation.forest import Forest, below_top, by_unit, meeting_switch
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout, System
from testbed.topology.places import Host, switch
from testbed.wire.transports import PACKETS


class Trio(System):
    """Aggregate at switches by block records, with timers that send incomplete sums when a worker is late."""

    name = "trio"
    summary = "Trio-ML: switches sum by block records, and send sums without workers that are late"
    programs: Mapping[str, str] = {"xdp": "blocks", "bmv2": "blocks"}
    usual_options: Mapping[str, float] = {"age_out_ms": 10.0}  # section 6.1
    paper: str | None = "trio"
    not_automatic = "it may send sums without workers that are late"

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out one tree; of units with equally many workers, the first is the top."""
        ranks = by_unit(workers)
        most = max(ranks, key=lambda unit: (len(ranks[unit]), -unit))
        top = switch(most) if len(ranks) > 1 else meeting_switch(workers)
        forest = Forest(tuple(workers), (below_top(workers, top),))
        return Layout(self.name, tuple(workers), PACKETS, None, forest, forest.demands())
