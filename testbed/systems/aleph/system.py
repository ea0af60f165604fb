"""ALEPH as systems: heads among the workers aggregate and distribute results; above them does the host of a
parameter server, or several hosts, each for its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.aggregation.clusterer import Clusterer
from testbed.aggregation.site import Site
from testbed.aggregation.system import SERVER_ALWAYS, Layout, System
from testbed.systems.aleph import site as sites
from testbed.systems.aleph import trees
from testbed.systems.aleph.clusters import Clusters
from testbed.topology.places import Host
from testbed.wire.transports import PACKETS


class Aleph(System):
    """Cluster for the least time."""

    name = "aleph"
    summary = "ALEPH: workers in clusters, whose heads sum for them, and a parameter server above"
    programs: Mapping[str, str] = {"xdp": "sum"}
    server = SERVER_ALWAYS
    paper: str | None = "aleph"
    clusterer: Clusterer | None = Clusters()
    chooses_heads = True
    way = "fastest"  # of clusterings.WAYS

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out one tree for each parameter server. RequestError for workers that cannot be clustered."""
        from testbed.systems.aleph import clusterings  # imports solvers

        servers = self.servers(workers, site)
        instance = sites.instance_at(site, workers, servers)
        clustering = clusterings.cluster(self.way, instance)
        forest = trees.forest(clustering, workers, servers, instance.servers)
        return Layout(self.name, tuple(workers), PACKETS, servers[0], forest, forest.demands())

    def servers(self, workers: Sequence[Host], site: Site) -> tuple[Host, ...]:
        """Choose the hosts of the job's parameter servers."""
        return (site.server(workers),)


class AlephUnbound(Aleph):
    """Cluster by time alone: a head may take longer than the slowest worker's own vector."""

    name = "aleph-unbound"
    summary = "ALEPH with heads as slow as the least time takes, beyond the paper's capacities"
    paper, clusterer = None, None
    way = "unbound"


class AlephMwcha(Aleph):
    """Cluster by the paper's own algorithm."""

    name = "aleph-mwcha"
    summary = "ALEPH with clusters by the paper's algorithm, M-WCHA, as it can be meant"
    paper, clusterer = None, None
    not_automatic = "aleph clusters for the least time, by the same trees"
    way = "mwcha"


class AlephServers(Aleph):
    """Use several parameter servers, each with a tree for its share of the fragments (section 7)."""

    name = "aleph-servers"
    summary = "ALEPH with a parameter server on each free host of cpu units, by shares of their rates"
    paper, clusterer = None, None

    def servers(self, workers: Sequence[Host], site: Site) -> tuple[Host, ...]:
        return sites.servers_at(site, workers)
