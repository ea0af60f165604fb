"""Figures 14 to 16 as pictures like the paper's. Imports matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproductions.trio.packets.claims import WORST
from reproductions.trio.packets.runs import latency_us, rate
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Report = Mapping[str, Any]
PAPER_US = {64: 30.0, 1024: 200.0}
"""Figure 15's latencies that the text of section 6.3 has, by gradients a packet."""
BLUE, RED = "#0072B2", "#D55E00"


def draw(report: Report, path: Path) -> None:
    """Write a PNG."""
    with drawing() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(10, 4.9))
        title = (_aged if report["figure"] == "fig14" else _streamed)(report, panels)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, bbox_to_anchor=(0.5, 0.0))
        detail = f"{report['runs']} runs of each setting; servers at one switch without declared rates"
        loads = [row["load"] for row in report["rows"]]
        detail += f"; others used {min(loads):.0%} to {max(loads):.0%} of the cores"
        rests = [row for row in report["rows"] if not row.get("busy")]
        headline(figure, report, title, f"{detail}; absolute values are this machine's", rests)
        figure.subplots_adjust(left=0.08, right=0.985, top=0.79, bottom=0.235, wspace=0.2)
        save(plt, figure, path)


def _aged(report: Report, panels: Any) -> str:
    quiet = [row for row in report["rows"] if not row["busy"]]
    for axes, is_busy in zip(panels, (False, True), strict=True):
        its = [row for row in report["rows"] if row["busy"] is is_busy]
        labels = [f"{row['timeout_ms']:g}" for row in its]
        medians = [statistics.median(row["over"]) for row in its]
        axes.plot(labels, medians, "o-", color=BLUE, label="median")
        axes.plot(labels, [max(row["over"]) for row in its], "v:", color=RED, label="most")
        if not is_busy:  # the paper's switch had nothing else to do
            axes.axhline(WORST, color=MUTED, linewidth=1.2, linestyle="--", label="the paper's bound")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("timeout, ms")
        axes.set_title("timeouts that a packet takes" + (", every core made busy" if is_busy else ""))
    worst = max(max(row["over"]) for row in quiet)
    return f"Packets that lack a worker are there within {worst:.2f} timeouts"


def _streamed(report: Report, panels: Any) -> str:
    rows, key = report["rows"], "gradients" if report["figure"] == "fig15" else "window"
    groups = (
        [rows]
        if key == "gradients"
        else [
            [row for row in rows if row["gradients"] == size]
            for size in dict.fromkeys(row["gradients"] for row in rows)
        ]
    )
    for its, colour in zip(groups, (BLUE, RED), strict=False):
        title = "one packet under way" if key == "gradients" else f"{its[0]['gradients']} gradients a packet"
        _line(panels[0], its, key, [latency_us(dict(row)) for row in its], colour, title)
        _line(panels[1], its, key, [rate(dict(row)) * 32 / 1e3 for row in its], colour, title)
    if key == "gradients":
        known = [(str(size), us) for size, us in PAPER_US.items() if size in {row[key] for row in rows}]
        panels[0].plot(*zip(*known, strict=True), "x", color=INK, markersize=8, label="paper")
    panels[0].set_title("latency of a packet, us")
    panels[1].set_title("gradients of each worker, Gb/s")
    if key == "window":
        panels[0].set_yscale("log")
    else:
        panels[0].set_ylim(bottom=0)
    panels[1].set_ylim(bottom=0)
    best = max(rate(dict(row)) * 32 / 1e3 for row in rows)
    return f"{report['about'][0].upper()}{report['about'][1:]}: {best:.1f} Gb/s at most"


def _line(axes: Axes, rows: Any, key: str, values: list[float], colour: str, label: str) -> None:
    axes.plot([str(row[key]) for row in rows], values, "o-", color=colour, label=label)
    axes.set_xlabel("gradients a packet" if key == "gradients" else "packets under way at most")
    axes.grid(True, axis="y")
