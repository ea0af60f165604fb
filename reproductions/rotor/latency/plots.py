"""The latency figure's picture. Imports matplotlib."""

from __future__ import annotations

from pathlib import Path

from reproductions.rotor.latency.runs import LatencyReport
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import PALETTE

TITLES = {"opera": "Opera", "direct": "direct circuits (RotorNet)", "at-once": "all traffic at once"}


def draw(report: LatencyReport, path: Path) -> None:
    """Write median, 99th percentile and bound by size, without and with bulk traffic, as a PNG."""
    routings = list(dict.fromkeys(row.routing for row in report.rows))
    labels = [f"{size} kB" for size in report.sizes_kb]
    with drawing() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(10, 4.9), sharey=True)
        for axes, has_bulk in zip(panels, (False, True), strict=True):
            for row in report.rows:
                if row.has_bulk is not has_bulk:
                    continue
                colour = PALETTE[routings.index(row.routing)]
                title = TITLES[row.routing]
                axes.plot(labels, row.median_ms, "o-", color=colour, label=f"{title}: median")
                axes.plot(labels, row.p99_ms, "v:", color=colour, label="99 %")
                axes.plot(labels, row.bound_ms, "_", color=colour, markersize=22, label="bound of the median")
            axes.set_yscale("log")
            axes.grid(True, axis="y")
            axes.set_title(f"completion time, ms, {'with' if has_bulk else 'without'} bulk traffic")
            axes.set_xlabel("size of the flow")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, 0.0))
        detail = f"{report.units} units with three ports each, {report.seconds:g} s a run; "
        detail += f"bulk: {report.bulk:.0%} of what direct circuits carry"
        headline(figure, report, _finding(report), detail, report.rows)
        figure.subplots_adjust(left=0.07, right=0.985, top=0.79, bottom=0.32, wspace=0.08)
        save(plt, figure, path)


def _finding(report: LatencyReport) -> str:
    medians = {row.routing: row.median_ms[0] for row in report.rows if not row.has_bulk}
    if "opera" not in medians or "direct" not in medians:
        return "Completion times of short flows over circuits that change"
    times = medians["direct"] / medians["opera"]
    return f"By direct circuits, flows of {report.sizes_kb[0]} kB take {times:.1f} times as long as by Opera"
