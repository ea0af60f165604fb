"""The runs of the throughput figure: constant streams over a rotation of matchings. Owns no claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.reports import FigureReport, LoadVerdict, NumberedRow
from reproductions.rotor import measuring
from reproductions.rotor.measuring import PAYLOAD_SHARE
from reproductions.rotor.throughput.demands import DEMANDS, bound, senders, wanted
from reproductions.rotor.timetables import rotornet
from testbed import Testbed
from testbed.figures import finished_runs

PORT_MBPS = 10.0
"""The rate of an optical port: so low that one machine emulates all units. A full frame takes 1.2 ms."""
SLOT_MS, GUARD_MS = 20.0, 2.0
LIT = 1 - GUARD_MS / SLOT_MS
"""The share of a slot in which its circuits carry light."""
DRAIN_S = 1.0
OnDone = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RotationRow(NumberedRow):
    """A demand by a routing. Rates are of payload, in Mb/s, on average of the units that send: what was
    carried, the most that the routing can carry, and what a packet switch would carry. `missed` is the share
    of packets that came to the optical switch after their slot.
    """

    demand: str
    routing: str
    carried_mbps: float
    bound_mbps: float
    ideal_mbps: float
    missed: float
    verdict: LoadVerdict

    @property
    def is_trusted(self) -> bool:
        return self.verdict.trustworthy

    @property
    def of_ideal(self) -> float:
        return self.carried_mbps / self.ideal_mbps

    @property
    def of_bound(self) -> float:
        return self.carried_mbps / self.bound_mbps


@dataclass(frozen=True, slots=True)
class RotationReport(FigureReport):
    """The report of the throughput figure."""

    version: int
    units: int
    seconds: float
    rows: Sequence[RotationRow]


def measure(
    units: int,
    demands: Sequence[str],
    routings: Sequence[str],
    seconds: float,
    folder: Path,
    on_done: OnDone,
) -> list[RotationRow]:
    """Measure each demand by each routing."""
    rows = []
    with live.testbed("rotor-throughput", measuring.network(units, 1, PORT_MBPS), folder) as running:
        testbed = Testbed.connect(running.name)
        for demand in demands:
            for routing in routings:
                measure_one = partial(_row, testbed, units, demand, routing, seconds)
                rows.append(finished_runs.row(folder, f"{demand}.{routing}", RotationRow, measure_one))
                on_done(f"{demand} by {routing}")
    return rows


def _row(testbed: Testbed, units: int, name: str, routing: str, seconds: float) -> RotationRow:
    demand, payload_mbps = DEMANDS[name](units), PORT_MBPS * PAYLOAD_SHARE
    traffic = [
        {
            "kind": "constant",
            "from": f"u{sender}h1",
            "to": f"u{to}h1",
            "rate_mbps": payload_mbps * share,
        }
        for (sender, to), share in demand.items()
    ]
    timetable = rotornet(units, SLOT_MS, GUARD_MS, routing)
    run = measuring.carried(testbed, timetable, traffic, seconds, DRAIN_S)
    carried_mbps = float(run.result.total.carried_mbps) / senders(demand)
    bound_mbps = payload_mbps * bound(demand, routing, units, LIT)
    return RotationRow(
        demand=name,
        routing=routing,
        carried_mbps=round(carried_mbps, 4),
        bound_mbps=round(bound_mbps, 4),
        ideal_mbps=round(payload_mbps * wanted(demand), 4),
        missed=round(run.missed, 5),
        verdict=measuring.verdict(run, carried_mbps, bound_mbps),
    )
