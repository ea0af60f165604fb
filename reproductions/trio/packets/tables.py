"""Figures 14 to 16 as tables on a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproductions.tables import plain, plain_claims
from reproductions.trio.packets.runs import latency_us, rate
from testbed.figures.machine_load import QUIET
from testbed.figures.verdict_gate import trusted

if TYPE_CHECKING:
    from rich.console import Console

Report = Mapping[str, Any]


def show(report: Report, console: Console) -> None:
    """Print a report."""
    number = report["figure"].removeprefix("fig")
    title = f"Figure {number}: {report['about']}"
    if report["figure"] == "fig14":
        table = plain(title, "timeout", "machine", "timeouts: median", "most", "packets")
        for row in report["rows"]:
            table.add_row(
                f"{row['timeout_ms']:g} ms",
                machine_of(row),
                f"{statistics.median(row['over']):.2f}",
                f"{max(row['over']):.2f}",
                str(len(row["over"])),
            )
    else:
        columns = ("gradients", "window", "latency, us", "gradients/us", "Gb/s", "runs, us", "others' load")
        table = plain(title, *columns)
        for row in report["rows"]:
            by_run = sorted(row["window"] * 1e6 * each / row["packets"] for each in row["seconds"])
            table.add_row(
                str(row["gradients"]),
                str(row["window"]),
                f"{latency_us(row):.1f}",
                f"{rate(row):.1f}",
                f"{rate(row) * 32 / 1e3:.2f}",
                f"{by_run[0]:.1f} to {by_run[-1]:.1f}",
                f"{row['load']:.0%}",
            )
    console.print(table)
    console.print(plain_claims(report["claims"]))
    good, of = sum(map(trusted, report["rows"])), len(report["rows"])
    console.print(f"{good} of {of} runs trustworthy: others use at most {QUIET:.0%} of the cores")
    console.print("Servers at one switch without declared rates: absolute values are this machine's.")


def machine_of(row: Mapping[str, Any]) -> str:
    """Return what the cores did beside a run: this command's own load, and others'."""
    own = "every core busy by this command, " if row["busy"] else ""
    return f"{own}others {row['load']:.0%}"
