"""Convert a clustering to trees of places: each head aggregates its cluster on its own host, and a parameter
server's host aggregates the heads and the workers without one. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.aggregation.forest import Forest, Node, Tree
from testbed.errors import RequestError
from testbed.systems.aleph.model import Clustering, shares
from testbed.systems.aleph.site import check_apart
from testbed.topology.places import Host, at_host


def forest(
    clustering: Clustering, workers: Sequence[Host], servers: Sequence[Host], rates: Sequence[float]
) -> Forest:
    """Make a job's forest: one tree for each parameter server, which takes a share of the fragments by these
    rates (section 7). RequestError where two workers, or a worker and a server, are on one host.
    """
    if len(clustering.head) != len(workers):
        raise RequestError(f"a clustering of {len(clustering.head)} workers; there are {len(workers)}")
    check_apart(workers, servers)
    by_server = zip(servers, shares(rates), strict=True)
    trees = tuple(tree(clustering, workers, server, share) for server, share in by_server if share > 0)
    return Forest(tuple(workers), trees)


def tree(clustering: Clustering, workers: Sequence[Host], server: Host, weight: float = 1.0) -> Tree:
    """Make the tree below one parameter server. A head is also a worker of its own place."""
    below = tuple(
        Node(at_host(workers[head]), tuple(sorted((head, *members))))
        for head, members in clustering.clusters.items()
    )
    return Tree(Node(at_host(server), clustering.direct, below), weight, relayed=True)
