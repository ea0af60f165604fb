"""A predicted figure of LuWu's as tables on a terminal. Imports rich."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from reproductions.tables import ruled, statements
from testbed.systems.luwu.prediction import TITLES


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print the predictions, and the paper's statements with ours."""
    number = report["figure"].removeprefix("fig")
    if report["figure"] == "fig10":
        shown = ruled(f"Fig. {number}, predicted: {report['about']}", ["system", "workers", "model"])
        for row in report["rows"]:
            shown.add_row(TITLES[row["system"]], str(row["workers"]), row["model"] or "none")
    else:
        columns = [
            "system",
            "model",
            "workers",
            "disks",
            "micro-\nbatch",
            "iteration,\ns",
            "of it\ncomputing",
        ]
        columns += ["of it\nupdate", "TFLOPS\na GPU", "limit"]
        shown = ruled(f"Fig. {number}, predicted: {report['about']}", columns, left=2)
        for row in report["rows"]:
            shown.add_row(
                TITLES[row["system"]],
                row["model"],
                *(str(row[key]) for key in ("workers", "disks", "micro_batch")),
                f"{row['iteration_s']:.1f}",
                f"{row['computing_s'] / row['iteration_s']:.0%}",
                f"{row['update_s'] / row['iteration_s']:.0%}",
                f"{row['tflops']:.0f}",
                row["limit"],
            )
    console.print(shown)
    console.print(statements(report["claims"], "the model says"))
