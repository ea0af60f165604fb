"""A job's workers on a running testbed as an instance of clustering, and the hosts of its parameter servers.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.aggregation.system import Site
from testbed.contract import spec
from testbed.systems.aleph.instances import MOST, check_apart
from testbed.systems.aleph.model import Instance, capacities
from testbed.topology.places import Host

MOST_SERVERS = 4
"""Each is a tree of its own, which has its part of a job's slots."""


def instance_at(site: Site, workers: Sequence[Host], servers: Sequence[Host]) -> Instance:
    """Return the instance of these workers and parameter servers, with the rates that the testbed's hosts are
    declared with; one that the site spares heads nobody. RequestError for two on one host.
    """
    check_apart(workers, servers)
    rates = tuple(map(site.rate_mbps, workers))
    room = tuple(
        0 if host in site.spared else min(MOST, most)
        for host, most in zip(workers, capacities(rates), strict=True)
    )
    return Instance(rates, room, tuple(map(site.rate_mbps, servers)), None, spec.MAX_WORKERS)


def servers_at(site: Site, workers: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts of several parameter servers: the one that a job with one would have, and of the cpu
    units' free hosts those with the fastest links. RequestError where no host is free.
    """
    first = site.server(workers)
    taken = {*site.busy, *workers, first}
    free = [host for rack in site.racks if rack.kind == "cpu" for host in rack.members() if host not in taken]
    further = sorted(free, key=lambda host: (-site.rate_mbps(host), host))
    return (first, *further[: MOST_SERVERS - 1])
