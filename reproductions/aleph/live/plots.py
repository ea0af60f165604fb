"""Pictures of the live experiments in the style of the paper's. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.aleph.live import tables
from reproductions.aleph.live.accuracy import LearningReport
from reproductions.aleph.live.example import ExampleReport
from reproductions.aleph.live.setting import COLOURS, PS, RING, WAYS
from reproductions.aleph.live.training import (
    PAPER_CORES,
    PAPER_CORES_OF,
    PAPER_S,
    ROLES,
    TrainingReport,
    picked,
)
from testbed.figures.verdict_gate import JudgedRun, headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_example(report: ExampleReport, path: Path) -> None:
    """Write table 1 as a PNG."""
    with drawing() as plt:
        save(plt, example(report), path)


def draw_training(report: TrainingReport, path: Path) -> None:
    """Write figures 9 to 11 as a PNG."""
    with drawing() as plt:
        save(plt, training(report), path)


def draw_learning(report: LearningReport, path: Path) -> None:
    """Write figure 12 as a PNG."""
    with drawing() as plt:
        save(plt, learning(report), path)


def example(report: ExampleReport) -> Figure:
    """Draw each way's seconds of a sum as bars, beside the paper's, with a mark at the time that links
    allow.
    """
    import matplotlib.pyplot as plt

    rows = report.rows
    figure, axes = plt.subplots(figsize=(8, 4.4))
    places = range(len(rows))
    axes.bar([at - 0.2 for at in places], [row.seconds for row in rows], 0.38, label="ours",
             color=[COLOURS[row.way] for row in rows])  # fmt: skip
    axes.bar([at + 0.2 for at in places], [row.paper_s for row in rows], 0.38, color=MUTED, label="paper")
    _bounds(axes, [at - 0.2 for at in places], [row.bound_ms / 1e3 for row in rows])
    axes.set_xticks(places, [row.title for row in rows])
    axes.set_title("seconds of one sum")
    return _finished(figure, [axes], report, tables.example_headline(report), report.rows)


def training(report: TrainingReport) -> Figure:
    """Draw communication time by model; for the first model also link rate and CPU cores by role."""
    import matplotlib.pyplot as plt

    rows = [row for row in report.rows if row.profile == "none"]
    models = list(dict.fromkeys(row.model for row in rows))
    figure, (times, rates, cores) = plt.subplots(1, 3, figsize=(13, 4.8))
    for order, way in enumerate(WAYS):
        places = [at + (order - 1.5) * 0.2 for at in range(len(models))]
        runs = [picked(rows, model, way.sync) for model in models]
        times.bar(places, [row.iteration_ms for row in runs], 0.18, color=COLOURS[way.sync], label=way.title)
        _bounds(times, places, [row.bound_ms for row in runs])
        paper = [PAPER_S[model].get(way.sync) for model in models]
        known = [(at, seconds * 1e3) for at, seconds in zip(places, paper, strict=True) if seconds]
        if known:
            times.plot(*zip(*known, strict=True), "x", color=INK, markersize=5,
                       label="paper" if order == 0 else None)  # fmt: skip
    times.set_xticks(range(len(models)), models)
    times.set_title("(fig. 11) communication of an iteration, ms")
    names = list(dict.fromkeys(ROLES.values()))
    unknown = next((row.cores_unknown for row in rows if row.cores_unknown), None)
    for order, way in enumerate(WAYS):
        by = picked(rows, models[0], way.sync).roles
        means = [by.get(name) for name in names]
        taken = [each.cores if each else None for each in means]
        places = [at + (order - 1.5) * 0.2 for at in range(len(names))]
        processes = [each.process if each else 0.0 for each in taken]
        kernel = [each.kernel if each else 0.0 for each in taken]
        colour = COLOURS[way.sync]
        rates.bar(places, [each.gbps if each else 0.0 for each in means], 0.18, color=colour, label=way.title)
        cores.bar(places, processes, 0.18, color=colour, alpha=0.5)
        cores.bar(places, kernel, 0.18, processes, color=colour)
        paper_cores = PAPER_CORES[models[0]].get(way.sync)
        if paper_cores is not None:
            cores.plot(places[names.index(PAPER_CORES_OF)], paper_cores, "x", color=INK, markersize=5)
    rates.set_title(f"(fig. 9) Gb/s of a host's link, {models[0]}")
    shown = "processes, and above them the kernel" if unknown is None else f"not all known: {unknown}"
    cores.set_title(f"(fig. 10) cores of a host, {models[0]}\n{shown}", fontsize="medium")
    for axes in (rates, cores):
        axes.set_xticks(range(len(names)), names)
    finding, rests = tables.training_headline(report), tables.headline_rows(report)
    return _finished(figure, [times, rates, cores], report, finding, rests)


def learning(report: LearningReport) -> Figure:
    """Draw test accuracy against communication time, one line for each way."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.6))
    for row in report.rows:
        axes.plot(row.communication_s, [100 * each for each in row.accuracy], marker="o", markersize=4,
                  color=COLOURS[row.way], label=row.title)  # fmt: skip
    axes.set_xlabel("communication, s")
    axes.set_title("test accuracy after each epoch, %")
    return _finished(figure, [axes], report, tables.learning_headline(report), report.rows)


def _bounds(axes: Axes, places: Sequence[float], heights: Sequence[float]) -> None:
    """Mark the times that links allow; only the first marks of a panel get a legend entry."""
    named = any(text == "links allow" for text in axes.get_legend_handles_labels()[1])
    axes.plot(places, heights, "_", color=INK, markersize=14, label=None if named else "links allow")


def _finished(
    figure: Figure,
    panels: Sequence[Axes],
    report: ExampleReport | TrainingReport | LearningReport,
    finding: str,
    rests: Sequence[JudgedRun],
) -> Figure:
    """Add the legend and the headline to a picture; the headline's finding rests on the runs `rests`."""
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower center", ncols=len(labels), frameon=False, bbox_to_anchor=(0.5, 0.0)
    )
    trust = report.trust
    detail = (
        f"{trust.trustworthy} of {trust.of} runs trustworthy; links and gradients divided by "
        f"{report.scale}; {PS.title} and {RING.title} over TCP on the same links"
    )
    headline(figure, report, finding, detail, rests)
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.07, right=0.985, top=1 - 1.05 / height, bottom=0.8 / height, wspace=0.16)
    return figure
