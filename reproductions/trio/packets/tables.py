"""Tables of figures 14 to 16 for a terminal."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from reproductions.tables import plain, plain_claims
from reproductions.trio.packets.runs import AgedReport, AgedRow, StreamReport
from testbed.figures.machine_load import QUIET

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def show_aged(report: AgedReport, console: Console) -> None:
    """Print figure 14."""
    table = plain(_title(report), "timeout", "machine", "timeouts: median", "most", "packets")
    for row in report.rows:
        table.add_row(
            f"{row.timeout_ms:g} ms",
            machine_of(row),
            f"{statistics.median(row.over):.2f}",
            f"{max(row.over):.2f}",
            str(len(row.over)),
        )
    _show(table, report, console)


def show_streams(report: StreamReport, console: Console) -> None:
    """Print figure 15 or 16."""
    columns = ("gradients", "window", "latency, us", "gradients/us", "Gb/s", "runs, us", "others' load")
    table = plain(_title(report), *columns)
    for row in report.rows:
        by_run = sorted(row.window * 1e6 * each / row.packets for each in row.seconds)
        table.add_row(
            str(row.gradients),
            str(row.window),
            f"{row.latency_us:.1f}",
            f"{row.rate:.1f}",
            f"{row.gbps:.2f}",
            f"{by_run[0]:.1f} to {by_run[-1]:.1f}",
            f"{row.load:.0%}",
        )
    _show(table, report, console)


def _title(report: AgedReport | StreamReport) -> str:
    return f"Figure {report.figure.removeprefix('fig')}: {report.about}"


def _show(table: Table, report: AgedReport | StreamReport, console: Console) -> None:
    console.print(table)
    console.print(plain_claims(report.claims))
    good, of = sum(row.is_trusted for row in report.rows), len(report.rows)
    console.print(f"{good} of {of} runs trustworthy: others use at most {QUIET:.0%} of the cores")
    console.print("Servers at one switch without declared rates: absolute values are this machine's.")


def machine_of(row: AgedRow) -> str:
    """Describe the cores' load during a run: this command's own load, and others'."""
    own = "every core busy by this command, " if row.busy else ""
    return f"{own}others {row.load:.0%}"
