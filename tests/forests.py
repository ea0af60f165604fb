"""Forests for tests and benchmarks of single parts, made without a system."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.aggregation.forest import Forest, below_top
from testbed.topology.places import Host, at_host, switch


def p4inc(workers: Sequence[Host], ps: Host | None = None) -> Forest:
    """Return a tree of switches below a parameter server's host; without one, the first worker's switch is
    the top.
    """
    hosts = tuple((unit, host) for unit, host in workers)
    top = at_host((ps[0], ps[1])) if ps else switch(hosts[0][0])
    return Forest(hosts, (below_top(hosts, top),))


def switches(workers: Sequence[Host]) -> Forest:
    """Return a tree of each unit's switch below the switch of the first worker's unit: across units no
    host sums.
    """
    hosts = tuple((unit, host) for unit, host in workers)
    return Forest(hosts, (below_top(hosts, switch(hosts[0][0])),))
