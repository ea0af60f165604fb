"""Traffic over a timetable, and whether this machine could have shaped its numbers. Owns no figure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reproductions.reports import LoadVerdict
from reproductions.rotor.timetables import round_robin
from testbed import Testbed
from testbed.errors import TestbedError
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


EMPTY_S = 60.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class _QueueTotals:
    """What all calendar queues together have sent, what of it came back, and what waits."""

    sent: int
    missed: int
    waiting: int


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
    """Send traffic while a timetable runs, and leave no packet in a calendar queue: what waits when a
    timetable ends would take the time of the next one. TestbedError if packets wait for longer than EMPTY_S.
    """
    before = _totals(testbed)
    testbed.circuits.schedule(dict(timetable))
    try:
        result = testbed.traffic(traffic, seconds=seconds, drain_s=drain_s, record=False)
        after = _emptied(testbed)
    finally:
        testbed.circuits.unschedule()
    sent, missed = after.sent - before.sent, after.missed - before.missed
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


def _emptied(testbed: Testbed) -> _QueueTotals:
    """Wait until no packet waits, and return the queues' counts."""
    deadline_s = time.monotonic() + EMPTY_S
    while (totals := _totals(testbed)).waiting:
        if time.monotonic() > deadline_s:
            raise TestbedError(f"{totals.waiting} packets still wait {EMPTY_S:g} s after the traffic's end")
        time.sleep(_LOOK_S)
    return totals


def _totals(testbed: Testbed) -> _QueueTotals:
    queues = testbed.circuits.queues()
    sent, missed, waiting = (sum(each[key] for each in queues) for key in ("sent", "missed", "waiting"))
    return _QueueTotals(sent, missed, waiting)
