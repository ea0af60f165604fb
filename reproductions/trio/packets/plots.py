"""Pictures of figures 14 to 16 in the style of the paper's. Imports matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from reproductions.trio.packets.claims import WORST
from reproductions.trio.packets.runs import AgedReport, StreamReport
from testbed.figures.verdict_gate import JudgedRun, headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED

AnyReport = TypeVar("AnyReport", AgedReport, StreamReport)

PAPER_US = {64: 30.0, 1024: 200.0}
"""Figure 15's latencies that section 6.3 states, in us by gradients per packet."""
BLUE, RED = "#0072B2", "#D55E00"


def draw_aged(report: AgedReport, path: Path) -> None:
    """Write figure 14 as a PNG."""
    quiet = [row for row in report.rows if not row.busy]
    _draw(report, _aged, quiet, path)


def draw_streams(report: StreamReport, path: Path) -> None:
    """Write figure 15 or 16 as a PNG."""
    _draw(report, _streamed, report.rows, path)


def _draw(
    report: AnyReport, panels_of: Callable[[AnyReport, Any], str], rests: Sequence[JudgedRun], path: Path
) -> None:
    """Write a figure of two panels as a PNG. `panels_of` draws them and returns the headline, which rests on
    the rows `rests`.
    """
    with drawing() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(10, 4.9))
        title = panels_of(report, panels)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, bbox_to_anchor=(0.5, 0.0))
        detail = f"{report.runs} runs of each setting; servers at one switch without declared rates"
        loads = [row.load for row in report.rows]
        detail += f"; others used {min(loads):.0%} to {max(loads):.0%} of the cores"
        headline(figure, report, title, f"{detail}; absolute values are this machine's", rests)
        figure.subplots_adjust(left=0.08, right=0.985, top=0.79, bottom=0.235, wspace=0.2)
        save(plt, figure, path)


def _aged(report: AgedReport, panels: Any) -> str:
    quiet = [row for row in report.rows if not row.busy]
    for axes, is_busy in zip(panels, (False, True), strict=True):
        group = [row for row in report.rows if row.busy is is_busy]
        labels = [f"{row.timeout_ms:g}" for row in group]
        medians = [statistics.median(row.over) for row in group]
        axes.plot(labels, medians, "o-", color=BLUE, label="median")
        axes.plot(labels, [max(row.over) for row in group], "v:", color=RED, label="most")
        if not is_busy:  # the paper's switch was otherwise idle
            axes.axhline(WORST, color=MUTED, linewidth=1.2, linestyle="--", label="the paper's bound")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("timeout, ms")
        axes.set_title("timeouts that a packet takes" + (", every core made busy" if is_busy else ""))
    worst = max(max(row.over) for row in quiet)
    return f"Packets that lack a worker are there within {worst:.2f} timeouts"


def _streamed(report: StreamReport, panels: Any) -> str:
    rows, by_size = report.rows, report.figure == "fig15"
    sizes = dict.fromkeys(row.gradients for row in rows)
    groups = [rows] if by_size else [[row for row in rows if row.gradients == size] for size in sizes]
    for group, colour in zip(groups, (BLUE, RED), strict=False):
        title = "one packet under way" if by_size else f"{group[0].gradients} gradients a packet"
        places = [str(row.gradients if by_size else row.window) for row in group]
        for axes, values in (
            (panels[0], [row.latency_us for row in group]),
            (panels[1], [row.gbps for row in group]),
        ):
            axes.plot(places, values, "o-", color=colour, label=title)
            axes.set_xlabel("gradients a packet" if by_size else "packets under way at most")
            axes.grid(True, axis="y")
    if by_size:
        known = [(str(size), us) for size, us in PAPER_US.items() if size in sizes]
        panels[0].plot(*zip(*known, strict=True), "x", color=INK, markersize=8, label="paper")
    panels[0].set_title("latency of a packet, us")
    panels[1].set_title("gradients of each worker, Gb/s")
    if by_size:
        panels[0].set_ylim(bottom=0)
    else:
        panels[0].set_yscale("log")
    panels[1].set_ylim(bottom=0)
    best = max(row.gbps for row in rows)
    return f"{report.about[0].upper()}{report.about[1:]}: {best:.1f} Gb/s at most"
