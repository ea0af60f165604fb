"""The throughput figure's picture. Imports matplotlib."""

from __future__ import annotations

from pathlib import Path

from reproductions.rotor.throughput.runs import RotationReport
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED, PALETTE

TITLES = {"direct": "direct circuits", "vlb": "VLB", "hoho": "hop-on hop-off"}


def draw(report: RotationReport, path: Path) -> None:
    """Write a bar for each demand and routing, its bound, and the ideal's, as a PNG."""
    routings = list(dict.fromkeys(row.routing for row in report.rows))
    demands = list(dict.fromkeys(row.demand for row in report.rows))
    width = 0.8 / len(routings)
    with drawing() as plt:
        figure, axes = plt.subplots(figsize=(9, 4.9))
        for number, routing in enumerate(routings):
            rows = [row for row in report.rows if row.routing == routing]
            places = [demands.index(row.demand) + (number - (len(routings) - 1) / 2) * width for row in rows]
            axes.bar(
                places,
                [row.carried_mbps for row in rows],
                0.9 * width,
                color=PALETTE[number],
                label=f"carried by {TITLES[routing]}",
            )
            axes.hlines(
                [row.bound_mbps for row in rows],
                [place - 0.45 * width for place in places],
                [place + 0.45 * width for place in places],
                color=INK,
                linewidth=2,
                label="the bound of each" if not number else None,
            )
        for number, demand in enumerate(demands):
            ideal_mbps = next(row.ideal_mbps for row in report.rows if row.demand == demand)
            span = (number - 0.45, number + 0.45)
            axes.hlines(
                ideal_mbps,
                *span,
                color=MUTED,
                linestyle="--",
                label="a packet switch" if not number else None,
            )
        axes.set_xticks(range(len(demands)), demands)
        axes.set_ylim(bottom=0)
        axes.set_title("throughput of a unit that sends, Mb/s")
        axes.grid(True, axis="y")
        figure.legend(loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, 0.0))
        detail = f"{report.units} units with one port each, {report.seconds:g} s a run"
        headline(figure, report, _finding(report), detail, report.rows)
        figure.subplots_adjust(left=0.07, right=0.985, top=0.79, bottom=0.22)
        save(plt, figure, path)


def _finding(report: RotationReport) -> str:
    least = min((row.of_ideal for row in report.rows if row.routing == "vlb"), default=None)
    if least is None:
        best = max(row.of_bound for row in report.rows)
        return f"A rotation carries up to {best:.0%} of its bound"
    return f"With detours, a rotation carries at least {least:.0%} of the traffic of a packet switch"
