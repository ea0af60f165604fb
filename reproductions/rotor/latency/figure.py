"""The latency figure as an experiment. Heavy modules are imported only when the figure is used."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption, words_of
from reproductions.rotor.timetables import OPERA_UNITS
from testbed.errors import RequestError

if TYPE_CHECKING:
    from reproductions.claims import Finding
    from reproductions.rotor.latency.runs import LatencyReport

VERSION = 1
USUAL_ROUTINGS, QUICK_ROUTINGS = "opera,direct,at-once", "opera,direct"


def _complete(_: str, options: Namespace) -> None:
    from reproductions.rotor.latency.setting import ROUTINGS

    if options.units not in OPERA_UNITS:
        raise RequestError(f"--units {options.units}: {', '.join(map(str, OPERA_UNITS))} are accepted")
    options.routings = words_of("routings", options.routings, ROUTINGS)


def _estimate_s(_: str, options: Namespace) -> float:
    """Estimate how many seconds the runs take, with what it takes to bring the testbed up."""
    return float(20 + 2 * len(options.routings) * (options.seconds + 5))


def _rows(figure: str, options: Namespace, out: Path) -> LatencyReport:
    from reproductions.live import runs_folder
    from reproductions.progress import progress
    from reproductions.rotor.latency import runs
    from reproductions.rotor.latency.setting import SIZES_KB

    folder = runs_folder(out, figure)
    with progress("rotor latency", 2 * len(options.routings), lines=True) as on_done:
        rows = runs.measure(options.units, options.routings, options.bulk, options.seconds, folder, on_done)
    return runs.LatencyReport(VERSION, options.units, options.seconds, options.bulk, SIZES_KB, rows)


def _claims(_: str, report: LatencyReport) -> list[Finding]:
    from reproductions.rotor.latency import claims

    return claims.of(report.rows)


def _chart() -> Chart[LatencyReport]:
    from reproductions.rotor.latency import plots, runs, tables

    return Chart(runs.LatencyReport, tables.show, plots.draw)


EXPERIMENTS = (
    Experiment(
        name="latency",
        on_testbed=True,
        about="Measure short flows over circuits that always join all units, without and with bulk traffic, "
        "on a testbed that the command brings up and ends. The question, and what was chosen: docs/rotor.md.",
        declared=(
            QUICK,
            ExperimentOption("units", "6 or 8 (8)", usual=8, quick=6),
            ExperimentOption(
                "seconds", "of each run (20)", float, "S", usual=20.0, quick=4.0, accepted=(3, 600)
            ),
            ExperimentOption(
                "bulk",
                "the bulk traffic's share of what direct circuits can carry (0.6)",
                float,
                "SHARE",
                usual=0.6,
                quick=0.4,
                accepted=(0.05, 1),
            ),
            ExperimentOption(
                "routings", f"of {USUAL_ROUTINGS}", str, "A,B", usual=USUAL_ROUTINGS, quick=QUICK_ROUTINGS
            ),
        ),
        rows=_rows,
        findings=_claims,
        chart=_chart,
        complete=_complete,
        estimate_s=_estimate_s,
    ),
)
