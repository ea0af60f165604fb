"""The latency figure's tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reproductions.rotor.latency.runs import LatencyReport
from reproductions.tables import plain, plain_claims

if TYPE_CHECKING:
    from rich.console import Console


def show(report: LatencyReport, console: Console) -> None:
    """Print the completion times of short flows by each routing, and the claims."""
    title = f"Completion times of short flows, {report.units} units, in ms"
    columns = ("routing", "bulk, Mb/s", "flow", "bound", "median", "99 %", "finished", "late")
    table = plain(title, *columns)
    for row in report.rows:
        bulk = f"{row.carried_mbps:.1f} of {row.offered_mbps:.1f}" if row.has_bulk else "none"
        for place, size_kb in enumerate(report.sizes_kb):
            table.add_row(
                row.routing,
                bulk,
                f"{size_kb} kB",
                f"{row.bound_ms[place]:.1f}",
                f"{row.median_ms[place]:.1f}",
                f"{row.p99_ms[place]:.1f}",
                f"{row.finished[place]:.0%}",
                f"{row.missed:.1%}",
            )
    console.print(table)
    console.print(plain_claims(report.claims))
    good = sum(row.is_trusted for row in report.rows)
    console.print(f"{good} of {len(report.rows)} runs trustworthy")
    for row in report.rows:
        for reason in row.verdict.reasons:
            words = f"{row.routing}, {'with' if row.has_bulk else 'without'} bulk: {reason.text}"
            console.print(words, markup=False)
