"""Figures 2 to 4 and 16 as experiments, and live runs for comparison with the predictions of figures 10, 14
and 15. Heavy modules are imported only when a figure is used.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption

if TYPE_CHECKING:
    from reproductions.claims import Finding
    from reproductions.luwu.live.runs import LiveReport, LiveRun

VERSION = 1
PLANS: Mapping[str, str] = {
    "fig2": "an iteration by phase, and bytes on links",
    "fig3": "communication that is serialised with computing, by micro-batch",
    "fig4": "an iteration of DDP that sums in the switch",
    "fig10-live": "a worker's memory by the model's size",
    "fig14-live": "throughput by the number of workers",
    "fig15-live": "an iteration by the number of disks",
    "fig16": "loss curves of LuWu and FSDP",
    "fsdp": "an iteration by blocks, beside FSDP as it is over gloo, and tuned",
}
FAST_SCALE = 100
"""The scale where nothing is timed: links faster than two cores can fill."""
UNTIMED = ("fig10-live", "fig16")
ITERATIONS = 1000
DECLARED = {
    "fig16": (
        ExperimentOption("seeds", "of models and batches (3)", usual=3, quick=1, accepted=(1, 100)),
        ExperimentOption(
            "iterations", f"of each job ({ITERATIONS})", usual=ITERATIONS, quick=20, accepted=(5, 100_000)
        ),
    )
}


def _estimate_s(figure: str, options: Namespace) -> float:
    """Estimate how many seconds a figure's runs take."""
    a_run_s = 0.1 * options.iterations if figure == "fig16" else 20.0
    return len(_asked(figure, options)) * (15.0 + a_run_s)


def _rows(figure: str, options: Namespace, out: Path) -> LiveReport:
    from reproductions.live import runs_folder, trust
    from reproductions.luwu.live import runs, setting
    from reproductions.progress import progress

    asked = _asked(figure, options)
    scale = FAST_SCALE if figure in UNTIMED else setting.SCALE
    folder = runs_folder(out, figure)
    with progress(f"luwu {figure}", len(asked), lines=True) as on_done:
        rows = runs.measure(figure, asked, scale, folder, on_done)
    if figure not in UNTIMED:
        rows = runs.predicted(rows, scale)
    sums = trust([row.verdict for row in rows])
    return runs.LiveReport(VERSION, PLANS[figure], options.quick, scale, rows, sums)


def _asked(figure: str, options: Namespace) -> list[LiveRun]:
    from reproductions.luwu.live import runs

    if figure == "fig16":
        return runs.convergence(options.seeds, options.iterations)
    return runs.PLANS[figure](options.quick)


def _claims(figure: str, report: LiveReport) -> list[Finding]:
    from reproductions.luwu.live.claims import findings

    return findings(figure, report.rows)


def _chart() -> Chart[LiveReport]:
    from reproductions.luwu.live import plots, runs, tables

    return Chart(runs.LiveReport, tables.show, plots.draw)


EXPERIMENTS = tuple(
    Experiment(
        name=name,
        on_testbed=True,
        about="Train a byte-level model of OPT's shape on a testbed that the command brings up and ends, by "
        "LuWu and by what it is compared with. What was chosen, and why: docs/studies/luwu.md.",
        declared=(QUICK, *DECLARED.get(name, ())),
        rows=_rows,
        findings=_claims,
        chart=_chart,
        estimate_s=_estimate_s,
    )
    for name in PLANS
)
