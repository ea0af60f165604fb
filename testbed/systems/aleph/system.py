"""ALEPH as a system: what it brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.aggregation.system import SERVER_ALWAYS, Layout, Site, System
from testbed.errors import RequestError
from testbed.systems.aleph.clusters import Clusters
from testbed.systems.aleph.figures import FIGURES
from testbed.topology.places import Host


class Aleph(System):
    """Sums at heads among the workers, and at a parameter server."""

    name = "aleph"
    summary = "ALEPH: workers in clusters, whose heads sum for them, and a parameter server above"
    programs: Mapping[str, str] = {"xdp": "sum"}
    server = SERVER_ALWAYS
    paper = "aleph"
    figures = FIGURES
    clusterer = Clusters()

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """RequestError: heads that hand results on are not there yet."""
        raise RequestError(f"--sync {self.name}: clusters can be shown (testbed cluster), and not run yet")
