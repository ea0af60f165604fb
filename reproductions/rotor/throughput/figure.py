"""The throughput figure as an experiment. Heavy modules are imported only when the figure is used."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption, words_of
from reproductions.rotor.timetables import UNITS
from testbed.errors import RequestError

if TYPE_CHECKING:
    from reproductions.claims import Finding
    from reproductions.rotor.throughput.runs import RotationReport

VERSION = 1
USUAL_DEMANDS, QUICK_DEMANDS = "uniform,skewed,permutation,few", "uniform,permutation"
USUAL_ROUTINGS, QUICK_ROUTINGS = "direct,vlb,hoho", "direct,vlb"


def _complete(_: str, options: Namespace) -> None:
    from reproductions.rotor.throughput.demands import DEMANDS, ROUTINGS

    if options.units not in UNITS:
        raise RequestError(f"--units {options.units}: {', '.join(map(str, UNITS))} are accepted")
    options.demands = words_of("demands", options.demands, tuple(DEMANDS))
    options.routings = words_of("routings", options.routings, ROUTINGS)


def _estimate_s(_: str, options: Namespace) -> float:
    """Estimate how many seconds the runs take, with what it takes to bring the testbed up."""
    return float(15 + len(options.demands) * len(options.routings) * (options.seconds + 4))


def _rows(figure: str, options: Namespace, out: Path) -> RotationReport:
    from reproductions.live import runs_folder
    from reproductions.progress import progress
    from reproductions.rotor.throughput import runs

    folder, count = runs_folder(out, figure), len(options.demands) * len(options.routings)
    with progress("rotor throughput", count, lines=True) as on_done:
        rows = runs.measure(
            options.units, options.demands, options.routings, options.seconds, folder, on_done
        )
    return runs.RotationReport(VERSION, options.units, options.seconds, rows)


def _claims(_: str, report: RotationReport) -> list[Finding]:
    from reproductions.rotor.throughput import claims

    return claims.of(report.rows, report.units)


def _chart() -> Chart[RotationReport]:
    from reproductions.rotor.throughput import plots, runs, tables

    return Chart(runs.RotationReport, tables.show, plots.draw)


EXPERIMENTS = (
    Experiment(
        name="throughput",
        on_testbed=True,
        about="Measure the throughput of a rotation of matchings, on a testbed that the command brings up "
        "and ends. The question, and what was chosen: docs/rotor.md.",
        declared=(
            QUICK,
            ExperimentOption("units", "4, 6 or 8 (8)", usual=8, quick=4),
            ExperimentOption(
                "seconds", "of each run (5)", float, "S", usual=5.0, quick=2.0, accepted=(1, 600)
            ),
            ExperimentOption(
                "demands", f"of {USUAL_DEMANDS}", str, "A,B", usual=USUAL_DEMANDS, quick=QUICK_DEMANDS
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
