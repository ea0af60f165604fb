"""A picture of figure 12 in the style of the paper's. Imports matplotlib."""

from __future__ import annotations

from pathlib import Path

from reproductions.trio.accuracy import tables
from reproductions.trio.accuracy.claims import PAPER
from reproductions.trio.accuracy.runs import IDEAL, AccuracyReport, P, picked, reached_s, titles
from reproductions.trio.slow.setting import SWITCHML, TRIO
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED

COLOURS = {IDEAL: INK, SWITCHML.sync: SWITCHML.colour, TRIO.sync: TRIO.colour}


def draw(report: AccuracyReport, path: Path) -> None:
    """Draw accuracy against time as a PNG, a line for each run."""
    with drawing() as plt:
        figure, axes = plt.subplots(figsize=(8.6, 4.9))
        for way, title in titles().items():
            for number, row in enumerate(picked(report.rows, way)):
                accuracy = [100 * each for each in row.accuracy]
                axes.plot(row.ended_s, accuracy, color=COLOURS[way], linewidth=1.2,
                          alpha=0.8, label=None if number else title)  # fmt: skip
        axes.axhline(100 * report.target, color=MUTED, linewidth=1.2, linestyle="--")
        times = [reached_s(row, report.target) for row in picked(report.rows, TRIO.sync)]
        known = [seconds for seconds in times if seconds]
        if known:
            papers = [ratio * sum(known) / len(known) for ratio in PAPER]
            axes.plot(papers, [100 * report.target] * len(papers), "*", color=INK, markersize=9, zorder=5,
                      label=f"{SWITCHML.title} by the paper's ratio over {TRIO.title}")  # fmt: skip
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds")
        axes.set_title("images of the test set that are named rightly, %")
        figure.legend(loc="lower center", ncols=4, frameon=False, bbox_to_anchor=(0.5, 0.0))
        trust = report.trust
        detail = (
            f"{trust.trustworthy} of {trust.of} runs trustworthy; p = {P:.0%}, "
            f"{report.seeds} seeds, an iteration of {report.typical_ms:.0f} ms where nobody is slow"
        )
        headline(figure, report, tables.headline(report), detail, report.rows)
        figure.subplots_adjust(left=0.08, right=0.98, top=0.79, bottom=0.21)
        save(plt, figure, path)
