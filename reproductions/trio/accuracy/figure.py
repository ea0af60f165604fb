"""Figure 12 as an experiment. Heavy modules are imported only when the figure is used."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption

if TYPE_CHECKING:
    from reproductions.claims import Finding
    from reproductions.trio.accuracy.runs import AccuracyReport

VERSION = 1


def _estimate_s(_: str, options: Namespace) -> float:
    """Estimate how many seconds the runs take; measured: 15 runs of 60 iterations took eleven minutes."""
    return float(3 * options.seeds * (20.0 + 0.4 * options.iterations))


def _rows(figure: str, options: Namespace, out: Path) -> AccuracyReport:
    from reproductions.live import runs_folder, trust
    from reproductions.progress import progress
    from reproductions.trio.accuracy import runs

    folder = runs_folder(out, figure)
    with progress("figure 12", 3 * options.seeds, lines=True) as on_done:
        rows, typical_ms = runs.measure(range(1, options.seeds + 1), options.iterations, folder, on_done)
    return runs.AccuracyReport(
        version=VERSION,
        rows=rows,
        trust=trust([row.verdict for row in rows]),
        seeds=options.seeds,
        iterations=options.iterations,
        target=options.target,
        typical_ms=typical_ms,
        compute_ms=runs.compute_ms(),
    )


def _claims(_: str, report: AccuracyReport) -> list[Finding]:
    from reproductions.trio.accuracy import claims

    return claims.of(report.rows, report.target)


def _chart() -> Chart[AccuracyReport]:
    from reproductions.trio.accuracy import plots, runs, tables

    return Chart(runs.AccuracyReport, tables.show, plots.draw)


EXPERIMENTS = (
    Experiment(
        name="fig12",
        on_testbed=True,
        about="Train a model to a stated accuracy on a testbed that the command brings up and ends. What was "
        "chosen, and why: docs/trio.md.",
        declared=(
            QUICK,
            ExperimentOption("seeds", "of models and delays (5)", usual=5, quick=1, accepted=(1, 100)),
            ExperimentOption("iterations", "of each job (60)", usual=60, quick=20, accepted=(10, 10_000)),
            ExperimentOption(
                "target", "the accuracy (0.9)", float, "SHARE", usual=0.90, quick=0.50, accepted=(0.2, 1)
            ),
        ),
        rows=_rows,
        findings=_claims,
        chart=_chart,
        estimate_s=_estimate_s,
    ),
)
