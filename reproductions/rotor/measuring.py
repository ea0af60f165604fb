"""Traffic over a timetable, and whether this machine could have shaped its numbers. Owns no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reproductions.reports import LoadVerdict
from reproductions.rotor.timetables import round_robin
from testbed import Testbed
from testbed.messages.traffic import TrafficResult
from testbed.messages.verdict import Reason
from testbed.topology.yaml_text import written

MTU = 1500
PAYLOAD_SHARE = (MTU - 28) / (MTU + 14)
"""The share of a link's rate that is left for the payload of datagrams, without Ethernet, IP and UDP."""
MOST_MISSED = 0.02
"""The share of packets that may reach the optical switch after their slot: they wait again, and have cost a
slot's time.
"""
BEYOND = 1.03
"""How far a rate may be above its bound before it is no result; a link lets 2 ms of its rate through at once
after each pause.
"""


@dataclass(frozen=True, slots=True)
class TrafficRun:
    """A result of traffic, and the share of packets that reached the optical switch after their slot."""

    result: TrafficResult
    missed: float


def network(units: int, ports: int, port_mbps: float) -> str:
    """Return the configuration of so many units with a host each, as YAML. A host's link has twice the rate
    of its unit's ports, so that it is no bottleneck.
    """
    circuits = [[f"u{a}o1", f"u{b}o1"] for a, b in round_robin(units)[0]]
    return written(
        {
            "units": [{"hosts": 1}] * units,
            "optical_ports": ports,
            "optical_rate_mbps": port_mbps,
            "host_rate_mbps": 2 * port_mbps * ports,
            "mtu": MTU,
            "scale": 1,
            "ocs": {"circuits": circuits},
        }
    )


def carried(
    testbed: Testbed,
    timetable: Mapping[str, Any],
    traffic: Sequence[Mapping[str, Any]],
    seconds: float,
    drain_s: float,
) -> TrafficRun:
    """Send traffic while a timetable runs."""
    before = _queues(testbed)
    testbed.circuits.schedule(dict(timetable))
    try:
        result = testbed.traffic(traffic, seconds=seconds, drain_s=drain_s, record=False)
    finally:
        testbed.circuits.unschedule()
    sent, missed = (after - first for first, after in zip(before, _queues(testbed), strict=True))
    return TrafficRun(result, missed / max(1, sent))


def verdict(run: TrafficRun, reached: float, bound: float) -> LoadVerdict:
    """Judge whether the numbers of a run are the network's. `reached` may not be above its bound."""
    reasons = []
    if not run.result.trustworthy:
        reasons.append(
            Reason("traffic", run.result.verdict.removeprefix("verdict: not trustworthy, because "))
        )
    if run.missed > MOST_MISSED:
        text = f"{run.missed:.1%} of packets came to the optical switch after their slot"
        reasons.append(Reason("late", text))
    if reached > BEYOND * bound:
        reasons.append(Reason("beyond", f"{reached:.3g} is above the bound, {bound:.3g}"))
    return LoadVerdict(not reasons, reasons)


def _queues(testbed: Testbed) -> tuple[int, int]:
    queues = testbed.circuits.queues()
    return sum(each["sent"] for each in queues), sum(each["missed"] for each in queues)
