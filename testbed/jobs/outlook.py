"""The verdict on the last seconds of a job that still runs. Pure.

What its workers measured is known at its end. Until then the verdict compares the time in which links carried
traffic with the time in which one was full: docs/verdict.md, a coarse bound.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from testbed.jobs.observation import bursts_of
from testbed.telemetry.bound import coarse
from testbed.telemetry.demand import unit_of
from testbed.telemetry.evidence import evidence
from testbed.telemetry.happened import Happened
from testbed.telemetry.samples import Recording
from testbed.telemetry.verdict import verdict

LOOK_BACK_S = 10.0


def outlook(recent: Recording | None, hosts: Collection[str], mtu: int) -> dict[str, Any] | None:
    """Return the verdict on a job on these hosts, as a result has it, by its recent samples; None where these
    are too few.
    """
    if recent is None:
        return None
    rates = zip(recent.names, recent.rates_mbps, strict=True)
    seen = evidence(recent, bursts_of(rates, mtu), {}, hosts)
    happened = Happened(links=_links(recent.names, hosts))
    return verdict(seen, coarse(seen), hosts=tuple(hosts), happened=happened).as_json()


def _links(names: Collection[str], hosts: Collection[str]) -> frozenset[str]:
    """Return the links that a job on these hosts may use: theirs, and where they are in several units those
    between switches of these units.
    """
    units = {unit_of(host) for host in hosts}
    between = [name for name in names if "h" not in name and unit_of(name) in units and len(units) > 1]
    return frozenset([*hosts, *between])
