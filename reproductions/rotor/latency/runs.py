"""The runs of the latency figure: short flows over Opera's timetable, without and with bulk traffic. Owns no
claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.reports import FigureReport, LoadVerdict, NumberedRow
from reproductions.rotor import measuring
from reproductions.rotor.latency import setting
from reproductions.rotor.latency.setting import LIT, PORT_MBPS, SIZES_KB
from reproductions.rotor.measuring import PAYLOAD_SHARE
from reproductions.rotor.timetables import OPERA_PORTS
from testbed import Testbed
from testbed.errors import TestbedError
from testbed.figures import finished_runs

DRAIN_S = 5.0
OnDone = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LatencyRow(NumberedRow):
    """Short flows by a routing, by their size (SIZES_KB): median and 99th percentile of their completion
    times in ms, the least median, and how many of them finished, as a share. `offered_mbps` and
    `carried_mbps` are the bulk traffic of a unit (0: none), in payload.
    """

    routing: str
    median_ms: Sequence[float]
    p99_ms: Sequence[float]
    bound_ms: Sequence[float]
    finished: Sequence[float]
    offered_mbps: float
    carried_mbps: float
    missed: float
    verdict: LoadVerdict

    @property
    def is_trusted(self) -> bool:
        return self.verdict.trustworthy

    @property
    def has_bulk(self) -> bool:
        return self.offered_mbps > 0


@dataclass(frozen=True, slots=True)
class LatencyReport(FigureReport):
    """The report of the latency figure. `bulk` is the bulk traffic's share of what direct circuits can
    carry.
    """

    version: int
    units: int
    seconds: float
    bulk: float
    sizes_kb: Sequence[int]
    rows: Sequence[LatencyRow]


def measure(
    units: int, routings: Sequence[str], bulk: float, seconds: float, folder: Path, on_done: OnDone
) -> list[LatencyRow]:
    """Measure short flows by each routing, without and with bulk traffic."""
    rows = []
    with live.testbed("rotor-latency", measuring.network(units, OPERA_PORTS, PORT_MBPS), folder) as running:
        testbed = Testbed.connect(running.name)
        for routing in routings:
            for share in (0.0, bulk):
                measure_one = partial(_row, testbed, units, routing, share, seconds)
                rows.append(finished_runs.row(folder, f"{routing}.{share:g}", LatencyRow, measure_one))
                on_done(f"{routing}, {'with' if share else 'without'} bulk")
    return rows


def _row(testbed: Testbed, units: int, routing: str, share: float, seconds: float) -> LatencyRow:
    offered_mbps = share * OPERA_PORTS * PORT_MBPS * PAYLOAD_SHARE * LIT
    traffic = setting.traffic(units, offered_mbps)
    run = measuring.carried(testbed, setting.timetable(units, routing), traffic, seconds, DRAIN_S)
    short, bulk = run.result.generators[: len(SIZES_KB)], run.result.generators[len(SIZES_KB) :]
    for size_kb, each in zip(SIZES_KB, short, strict=True):
        if each.times.median_ms is None:
            raise TestbedError(f"{routing}: no flow of {size_kb} kB finished: nothing was measured")
    carried_mbps = sum(float(each.carried_mbps) for each in bulk) / units
    return LatencyRow(
        routing=routing,
        median_ms=[float(each.times.median_ms or 0.0) for each in short],
        p99_ms=[float(each.times.p99_ms or 0.0) for each in short],
        bound_ms=[round(setting.bound_ms(units, routing, size), 3) for size in SIZES_KB],
        finished=[round(each.finished / each.flows, 4) for each in short],
        offered_mbps=round(offered_mbps, 4),
        carried_mbps=round(carried_mbps, 4),
        missed=round(run.missed, 5),
        verdict=measuring.verdict(run, carried_mbps, offered_mbps),
    )
