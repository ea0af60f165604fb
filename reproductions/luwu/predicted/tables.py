"""A predicted figure of LuWu's as tables on a terminal. Imports rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.systems.luwu.prediction import TITLES

STYLES = {"agrees": "green", "same sign, other size": "yellow", "tie": "blue", "differs": "red"}


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print the predictions, and the paper's statements with ours."""
    number = report["figure"].removeprefix("fig")
    if report["figure"] == "fig10":
        shown = table(f"Fig. {number}, predicted: {report['about']}", ["system", "workers", "model"])
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
        shown = table(f"Fig. {number}, predicted: {report['about']}", columns, left=2)
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
    claims = table("The paper's statements, and what the model says of each", ["", "paper", "ours", ""])
    for claim in report["claims"]:
        verdict = Text(claim["verdict"], style=STYLES[claim["verdict"]])
        claims.add_row(claim["text"], claim["paper"], claim["ours"], verdict)
    console.print(claims)


def table(title: str, columns: Sequence[str], left: int = 1) -> Table:
    """Return an empty table; `left` of its columns are words."""
    made = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right")
    return made
