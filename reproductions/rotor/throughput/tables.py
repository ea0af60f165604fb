"""The throughput figure's tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reproductions.rotor.throughput.runs import RotationReport
from reproductions.tables import plain, plain_claims

if TYPE_CHECKING:
    from rich.console import Console


def show(report: RotationReport, console: Console) -> None:
    """Print the throughput of each demand by each routing, and the claims."""
    title = f"Throughput of a rotation, {report.units} units, Mb/s of each that sends"
    table = plain(title, "demand", "routing", "carried", "bound", "of it", "packet switch", "of it", "late")
    for row in report.rows:
        table.add_row(
            row.demand,
            row.routing,
            f"{row.carried_mbps:.2f}",
            f"{row.bound_mbps:.2f}",
            f"{row.of_bound:.0%}",
            f"{row.ideal_mbps:.2f}",
            f"{row.of_ideal:.0%}",
            f"{row.missed:.1%}",
        )
    console.print(table)
    console.print(plain_claims(report.claims))
    good = sum(row.is_trusted for row in report.rows)
    console.print(f"{good} of {len(report.rows)} runs trustworthy")
    for row in report.rows:
        for reason in row.verdict.reasons:
            console.print(f"{row.demand} by {row.routing}: {reason.text}", markup=False)
