"""A job's workers on a topology as an instance of clustering. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from testbed.contract import spec
from testbed.errors import RequestError
from testbed.systems.aleph.model import Cut, Instance, capacities
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host

MOST = spec.MAX_WORKERS - 1
"""Workers that a head can sum beside its own: a place takes so many contributions, its own among them."""


def instance_of(
    topology: Topology,
    workers: Sequence[Host],
    servers: Sequence[Host],
    cores_each: float = 0.0,
    cuts: tuple[Cut, ...] = (),
) -> Instance:
    """Return the instance of these workers and parameter servers, rates in Mb/s as they are declared. A head
    needs `cores_each` of its host's cores for each worker that it sums; 0, or a host that says no cores: its
    link alone counts. RequestError for two on one host.
    """
    check_apart(workers, servers)
    rates = [_rate(topology, host) for host in workers]
    cores = [topology.host(*host).cpus for host in workers]
    spare = [math.inf if core is None else core for core in cores]
    room = tuple(min(MOST, most) for most in capacities(rates, spare, cores_each))
    computing = tuple(min(MOST, most) for most in capacities([math.inf] * len(rates), spare, cores_each))
    at_servers = tuple(_rate(topology, host) for host in servers)
    return Instance(tuple(rates), room, at_servers, None, spec.MAX_WORKERS, computing, cuts)


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


def _rate(topology: Topology, host: Host) -> float:
    rate_mbps = topology.host(*host).rate_mbps
    return math.inf if rate_mbps is None else rate_mbps
