"""Tables of figure 13 for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reproductions.tables import plain, plain_claims, show_trust
from reproductions.trio.slow.iterations import SlowReport, SlowRow, ideal_ms, models_of, picked
from reproductions.trio.slow.setting import SWITCHML, SWITCHML_64, TRIO, WAYS

if TYPE_CHECKING:
    from rich.console import Console

TITLES = {way.key: way.title for way in (*WAYS, SWITCHML_64)}


def show(report: SlowReport, console: Console) -> None:
    """Print a report's tables."""
    rows = report.rows
    columns = ("p", "ms", "of Ideal", "expected, ms", "of this seed, ms", "blocks that lacked some")
    table = plain("Figure 13: an iteration beside stragglers", "", *columns)
    for row in rows:
        table.add_row(
            f"{row.model}, {TITLES[row.way]}",
            f"{row.p:.0%}",
            f"{row.iteration_ms:.0f}",
            f"{row.iteration_ms / ideal_ms(rows, row.model):.2f}",
            f"{row.expected_ms:.0f}",
            f"{row.replayed_ms:.0f}",
            lacking(row.blocks, row.without),
        )
    console.print(table)
    console.print(plain_claims(report.claims))
    show_trust(report.trust, console)


def lacking(blocks: int | None, without: Mapping[str, int] | None) -> str:
    """Return the share of blocks that lack the most frequently missing worker, as text."""
    workers = [count for source, count in (without or {}).items() if source.isdecimal()]
    return f"{max(workers) / blocks:.0%} at most" if workers and blocks else ""


def headline(report: SlowReport) -> str:
    """Summarise a report in a sentence."""
    rows = report.rows
    most = max(row.p for row in rows)
    times = [
        picked(rows, model, SWITCHML, most).iteration_ms / picked(rows, model, TRIO, most).iteration_ms
        for model in models_of(rows)
    ]
    ends = f"{min(times):.2f}" if len(times) == 1 else f"{min(times):.2f} to {max(times):.2f}"
    return f"At p = {most:.0%} SwitchML's iterations take {ends} times as long as Trio-ML's"


def headline_rows(report: SlowReport) -> list[SlowRow]:
    """Return the runs that the headline rests on."""
    rows = report.rows
    most = max(row.p for row in rows)
    return [picked(rows, model, way, most) for model in models_of(rows) for way in WAYS]
