"""A picture of figure 13 in the style of the paper's. Imports matplotlib."""

from __future__ import annotations

from pathlib import Path

from reproductions.trio.slow import tables
from reproductions.trio.slow.iterations import SlowReport, ideal_ms, models_of
from reproductions.trio.slow.setting import PAPER, PAPER_P, SWITCHML_64, TRIO, WAYS
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED


def draw(report: SlowReport, path: Path) -> None:
    """Draw a panel for each model as a PNG: iteration times against the probability, measured and expected,
    and Ideal.
    """
    rows = report.rows
    models = models_of(rows)
    with drawing() as plt:
        width, height = max(8.6, 4.2 * len(models) + 0.6), 4.9
        figure, panels = plt.subplots(1, len(models), figsize=(width, height), squeeze=False)
        for axes, model in zip(panels[0], models, strict=True):
            for way in WAYS:
                points = [row for row in rows if (row.model, row.way) == (model, way.key)]
                percent = [100 * row.p for row in points]
                axes.plot(percent, [row.iteration_ms for row in points], "o-", color=way.colour,
                          markersize=4, label=way.title)  # fmt: skip
                axes.plot(percent, [row.expected_ms for row in points], ":", color=way.colour,
                          linewidth=1.2, label=f"{way.title}, expected")  # fmt: skip
                axes.plot(percent, [row.replayed_ms for row in points], "x", color=INK, markersize=5,
                          label="expected of this seed" if way is WAYS[0] else None)  # fmt: skip
            for row in rows:
                if (row.model, row.way) == (model, SWITCHML_64.key):
                    axes.plot(100 * row.p, row.iteration_ms, "D", color=SWITCHML_64.colour,
                              markersize=6, label=SWITCHML_64.title)  # fmt: skip
                if (row.model, row.way, row.p) == (model, TRIO.key, PAPER_P):
                    axes.plot(100 * PAPER_P, PAPER[model] * row.iteration_ms, "*", color=INK, markersize=9,
                              label="the paper's ratio over Trio-ML")  # fmt: skip
            axes.axhline(ideal_ms(rows, model), color=MUTED, linewidth=1.2, linestyle="--", label="Ideal")
            axes.set_ylim(bottom=0)
            axes.set_title(f"{model}: an iteration, ms")
            axes.set_xlabel("probability of a delay at a point, %")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=4,
                      frameon=False, bbox_to_anchor=(0.5, 0.0))  # fmt: skip
        trust = report.trust
        detail = (
            f"{trust.trustworthy} of {trust.of} runs trustworthy; {report.iterations} iterations, "
            f"seed {report.seed}; links and gradients divided by {report.scale}"
        )
        headline(figure, report, tables.headline(report), detail, tables.headline_rows(report))
        figure.subplots_adjust(
            left=0.7 / width, right=1 - 0.2 / width, top=1 - 1.05 / height, bottom=1.15 / height, wspace=0.2
        )
        save(plt, figure, path)
