"""Figures 14 to 16 as tables on a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from testbed.systems.trio.figures.packets.runs import latency_us, rate
from testbed.systems.trio.figures.slow.tables import titled

if TYPE_CHECKING:
    from rich.console import Console

Report = Mapping[str, Any]


def show(report: Report, console: Console) -> None:
    """Print a report."""
    number = report["figure"].removeprefix("fig")
    title = f"Figure {number}: {report['about']}"
    if report["figure"] == "fig14":
        table = titled(title, "timeout", "machine", "timeouts: median", "most", "packets")
        for row in report["rows"]:
            table.add_row(
                f"{row['timeout_ms']:g} ms",
                "every core busy" if row["busy"] else "quiet",
                f"{statistics.median(row['over']):.2f}",
                f"{max(row['over']):.2f}",
                str(len(row["over"])),
            )
    else:
        table = titled(title, "gradients", "window", "latency, us", "gradients/us", "Gb/s", "runs, us")
        for row in report["rows"]:
            by_run = sorted(row["window"] * 1e6 * each / row["packets"] for each in row["seconds"])
            table.add_row(
                str(row["gradients"]),
                str(row["window"]),
                f"{latency_us(row):.1f}",
                f"{rate(row):.1f}",
                f"{rate(row) * 32 / 1e3:.2f}",
                f"{by_run[0]:.1f} to {by_run[-1]:.1f}",
            )
    console.print(table)
    table = titled("The paper's claims", "", "paper", "ours", "")
    for claim in report["claims"]:
        table.add_row(claim["text"], claim["paper"], claim["ours"], claim["verdict"])
    console.print(table)
    console.print("Servers at one switch without declared rates: absolute values are this machine's.")
