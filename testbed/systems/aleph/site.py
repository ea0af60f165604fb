"""Convert a job's workers on a testbed to a clustering instance, and choose the hosts of its parameter
servers. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from testbed.aggregation.site import Site
from testbed.errors import RequestError
from testbed.systems.aleph.model import Cut, Instance, capacities, shares
from testbed.topology import addresses
from testbed.topology.places import Host
from testbed.topology.units import Unit
from testbed.wire import spec

MOST = spec.MAX_WORKERS - 1
"""Workers that a head can aggregate besides itself: a place takes MAX_WORKERS contributions, its own
included.
"""
MOST_SERVERS = 4
"""Each parameter server has a tree of its own, with a part of the job's slots."""


def instance_at(site: Site, workers: Sequence[Host], servers: Sequence[Host]) -> Instance:
    """Make the instance of these workers and parameter servers from the declared rates of their hosts, and of
    the circuits and rack links between them. Workers on hosts that the site spares head nobody. RequestError
    for two on one host.
    """
    check_apart(workers, servers)
    rates = tuple(map(site.rate_mbps, workers))

    def held(most: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            0 if host in site.spared else min(MOST, each) for host, each in zip(workers, most, strict=True)
        )

    at_servers = tuple(map(site.rate_mbps, servers))
    return Instance(
        rates,
        held(capacities(rates)),
        at_servers,
        None,
        spec.MAX_WORKERS,
        held([len(workers) - 1] * len(workers)),
        cuts_of(site, workers, servers, shares(at_servers)),
    )


def check_apart(workers: Sequence[Host], servers: Sequence[Host]) -> None:
    """Raise RequestError unless every worker, and so every head, and every server has a host of its own."""
    at: dict[Host, str] = {}
    names = [f"worker {rank}" for rank in range(len(workers))]
    names += [f"parameter server {number}" for number in range(len(servers))]
    for name, host in zip(names, (*workers, *servers), strict=True):
        if host in at:
            raise RequestError(
                f"{at[host]} and {name} are both on {addresses.host_name(*host)}; each, and so each head, "
                f"needs a host of its own"
            )
        at[host] = name


def cuts_of(
    site: Site, workers: Sequence[Host], servers: Sequence[Host], parts: Sequence[float]
) -> tuple[Cut, ...]:
    """Return the cuts between each two units of a job, and at each of its racks in pods. `parts` has each
    server's share of every vector.
    """
    cuts = []
    units = sorted({unit for unit, _ in (*workers, *servers)})
    for first, other in itertools.combinations(units, 2):
        rate = site.between_mbps(first, other)
        of = [[rank for rank, host in enumerate(workers) if host[0] == unit] for unit in (first, other)]
        here = [_part(servers, parts, _members(site, unit)) for unit in (first, other)]
        cuts.append(Cut(rate, frozenset(of[0]), frozenset(of[1]), *here))
    for rack in site.racks:
        for number, mbps in enumerate(rack.pod_mbps, start=1):
            inside = frozenset(rack.members(number))
            behind = frozenset(rank for rank, host in enumerate(workers) if host in inside)
            others = frozenset(range(len(workers))) - behind
            part = _part(servers, parts, inside)
            cuts.append(Cut(math.inf if mbps is None else mbps, behind, others, part, 1.0 - part))
    return tuple(cut for cut in cuts if math.isfinite(cut.rate) and _is_crossed(cut))


def _members(site: Site, unit: Unit) -> frozenset[Host]:
    return frozenset(host for rack in site.racks if rack.unit == unit for host in rack.members())


def _part(servers: Sequence[Host], parts: Sequence[float], inside: frozenset[Host]) -> float:
    return math.fsum(part for host, part in zip(servers, parts, strict=True) if host in inside)


def _is_crossed(cut: Cut) -> bool:
    """Return whether there are workers on one side, and workers or servers on the other."""
    return bool((cut.side and (cut.other or cut.other_servers)) or (cut.other and cut.servers))


def servers_at(site: Site, workers: Sequence[Host]) -> tuple[Host, ...]:
    """Choose the hosts of several parameter servers: the host of a single one first, then the free hosts of
    cpu units with the fastest links. RequestError if no host is free.
    """
    first = site.server(workers)
    taken = {*site.busy, *workers, first}
    free = [host for rack in site.racks if rack.kind == "cpu" for host in rack.members() if host not in taken]
    further = sorted(free, key=lambda host: (-site.rate_mbps(host), host))
    return (first, *further[: MOST_SERVERS - 1])
