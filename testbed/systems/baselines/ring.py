"""gloo's ring all-reduce over TCP."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout, Showing, System
from testbed.topology.places import Host
from testbed.wire.transports import GLOO


class Ring(System):
    """Each worker sends to the next, the last one to the first."""

    name = "ring"
    summary = "gloo's ring all-reduce over TCP; nothing in the network sums"
    showing = Showing("ring (gloo)")

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Demand a circuit between the units of every two neighbours in the ring."""
        units = [unit for unit, _ in workers]
        around = itertools.pairwise([*units, units[0]])
        return Layout(self.name, tuple(workers), GLOO, demands=tuple(around))
