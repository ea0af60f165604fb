"""Tables of figure 12 for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reproductions.tables import plain, plain_claims, show_trust
from reproductions.trio.accuracy.runs import AccuracyReport, final, reached, reached_s, titles
from reproductions.trio.slow.tables import lacking

if TYPE_CHECKING:
    from rich.console import Console


def show(report: AccuracyReport, console: Console) -> None:
    """Print a report's tables."""
    target = report.target
    columns = ("iterations", "seconds", "all iterations, s", "accuracy in the end", "blocks that lacked some")
    table = plain(f"Figure 12: to an accuracy of {target:.0%} beside stragglers", "", *columns)
    for row in report.rows:
        number, seconds = reached(row, target), reached_s(row, target)
        table.add_row(
            f"seed {row.seed}, {titles()[row.way]}",
            "never" if number is None else str(number),
            "" if seconds is None else f"{seconds:.1f}",
            f"{row.ended_s[-1]:.1f}",
            f"{final(row):.2%}",
            lacking(row.blocks, row.without),
        )
    console.print(table)
    console.print(plain_claims(report.claims))
    show_trust(report.trust, console)


def headline(report: AccuracyReport) -> str:
    """Summarise a report in a sentence."""
    return f"SwitchML takes {report.claims[0].ours} times as long as Trio-ML to {report.target:.0%}"
