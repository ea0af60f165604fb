"""Tables of LuWu's predicted figures for a terminal. Imports rich."""

from __future__ import annotations

from rich.console import Console

from reproductions.luwu.predicted.rows import LargestReport, PredictedReport
from reproductions.tables import ruled, statements
from testbed.systems.luwu.prediction import TITLES


def show_largest(report: LargestReport, console: Console) -> None:
    """Print figure 10, and the paper's claims with ours."""
    shown = ruled(_title(report), ["system", "workers", "model"])
    for row in report.rows:
        shown.add_row(TITLES[row.system], str(row.workers), row.model or "none")
    console.print(shown)
    console.print(statements(report.claims, "the model says"))


def show(report: PredictedReport, console: Console) -> None:
    """Print the predictions, and the paper's claims with ours."""
    columns = ["system", "model", "workers", "disks", "micro-\nbatch", "iteration,\ns", "of it\ncomputing"]
    columns += ["of it\nupdate", "TFLOPS\na GPU", "limit"]
    shown = ruled(_title(report), columns, left=2)
    for row in report.rows:
        shown.add_row(
            TITLES[row.system],
            row.model,
            *(str(count) for count in (row.workers, row.disks, row.micro_batch)),
            f"{row.iteration_s:.1f}",
            f"{row.computing_s / row.iteration_s:.0%}",
            f"{row.update_s / row.iteration_s:.0%}",
            f"{row.tflops:.0f}",
            row.limit,
        )
    console.print(shown)
    console.print(statements(report.claims, "the model says"))


def _title(report: LargestReport | PredictedReport) -> str:
    return f"Fig. {report.figure.removeprefix('fig')}, predicted: {report.about}"
