"""Pictures of figures 5 to 7 in the style of the paper's, from live reports. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.p4inc.live.claims import CLAIMS, connections, reduction, total_jct_s
from reproductions.p4inc.live.report import QueueReport, QueueRow
from reproductions.p4inc.live.throughput import CASES, PAPER, ThroughputReport, predicted_ratio, ratio
from reproductions.p4inc.simulated.plots import COLOURS
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED
from testbed.systems.p4inc.policies.catalogue import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MODELS = {
    "resnet50": "ResNet50",
    "resnet101": "ResNet101",
    "resnet152": "ResNet152",
    "vgg11": "VGG11",
    "vgg16": "VGG16",
    "vgg19": "VGG19",
}
_CASES = {"inc": "#0072B2", "ps": "#D55E00", "ring": "#E69F00", "ps-10g": "#8C3B00"}


def draw(report: QueueReport, path: Path) -> None:
    """Write figures 6 and 7 as a PNG."""
    with drawing() as plt:
        save(plt, queue(report), path)


def draw_throughput(report: ThroughputReport, path: Path) -> None:
    """Write figure 5 as a PNG."""
    with drawing() as plt:
        save(plt, throughput(report), path)


def throughput(report: ThroughputReport) -> Figure:
    """Draw images per second by model and case, and INC's ratio over a parameter server beside the
    paper's.
    """
    import matplotlib.pyplot as plt

    rows = report.rows
    models = list(dict.fromkeys(row.model for row in rows))
    by = {(row.model, row.case): row for row in rows}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8))
    for order, case in enumerate(CASES):
        places = [at + (order - 1.5) * 0.21 for at in range(len(models))]
        heights = [by[model, case.name].images_per_s for model in models]
        left.bar(places, heights, 0.19, color=_CASES[case.name], label=case.title)
    left.set_title("(a) training throughput, images per second of 2 workers")
    for order, (case_name, label) in enumerate(
        (("ps", "ours, optics at 40 Gb/s"), ("ps-10g", "ours, optics at 10 Gb/s"))
    ):
        places = [at + (order - 1) * 0.28 for at in range(len(models))]
        heights = [ratio(rows, model, case_name) for model in models]
        right.bar(places, heights, 0.26, color=_CASES[case_name], label=label)
        foreseen = [predicted_ratio(rows, model, case_name) for model in models]
        right.plot(places, foreseen, "_", color=INK, markersize=11, label="predicted" if order else None)
    right.bar(
        [at + 0.28 for at in range(len(models))], [PAPER[m] for m in models], 0.26, color=MUTED, label="paper"
    )
    right.set_title("(b) throughput with INC over that without")
    right.axhline(1, color=MUTED, linewidth=0.7)
    for axes, columns in ((left, 2), (right, 2)):
        axes.set_xticks(range(len(models)), [MODELS[model] for model in models], fontsize=9)
        axes.tick_params(axis="x", length=0)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=columns, frameon=False, fontsize=9)
    best = max(models, key=lambda model: ratio(rows, model, "ps"))
    same, slow = ratio(rows, best, "ps"), ratio(rows, best, "ps-10g")
    gains = f"{same:.1f} times as fast as a parameter server, {slow:.1f} times"
    trusted = f"{report.trust.trustworthy} of {report.trust.of} jobs trustworthy"
    rates = f"links at a {report.scale}th of the declared rates"
    detail = f"{report.iterations} iterations, {rates}. Dashes: predicted. {trusted}."
    finding = f"INC trains {MODELS[best]} {gains} with optics at 10 Gb/s"
    headline(figure, report, finding, detail, rows)
    figure.subplots_adjust(left=0.055, right=0.985, top=0.79, bottom=0.2, wspace=0.12)
    return figure


def queue(report: QueueReport) -> Figure:
    """Draw a row of panels for each model: total JCT and connections set up, by number of jobs and scheme,
    and our reductions beside the paper's.
    """
    import matplotlib.pyplot as plt

    rows = report.rows
    models = list(dict.fromkeys(row.model for row in rows))
    schemes = list(dict.fromkeys(row.scheme for row in rows))
    size = (11, 1.5 + 2.8 * len(models))
    figure, grid = plt.subplots(len(models), 3, figsize=size, squeeze=False, width_ratios=(1, 1, 1.35))
    for (jct, connected, reductions), model in zip(grid, models, strict=True):
        group = [row for row in rows if row.model == model]
        _bars(jct, group, schemes, total_jct_s, lambda row: row.predicted.ahead_total_jct_s)
        jct.set_title(f"{MODELS[model]}: total JCT, s")
        _bars(connected, group, schemes, connections, lambda row: row.predicted.ahead_connections)
        connected.set_title(f"{MODELS[model]}: connections set up")
        _reductions(reductions, group, model)
        reductions.set_title(f"{MODELS[model]}: total JCT reduced by, %")
    for axes in grid[-1][:2]:
        axes.set_xlabel("number of jobs")
    drawn = {
        label: bar for axes in grid.flat for bar, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(drawn.values(), drawn.keys(), loc="lower center", ncols=len(drawn), frameon=False)
    height = figure.get_figheight()
    headline(figure, report, _finding(report), _detail(report), rows)
    margins = {"left": 0.05, "right": 0.985, "top": 1 - 1.0 / height, "bottom": 1.05 / height}
    figure.subplots_adjust(**margins, wspace=0.2, hspace=0.42)
    return figure


def _bars(
    axes: Axes,
    rows: Sequence[QueueRow],
    schemes: Sequence[str],
    value: Callable[[QueueRow], float],
    foreseen: Callable[[QueueRow], float],
) -> None:
    """Draw means as bars, each run as a dot, and the prediction from the submission alone as a dash."""
    counts = sorted({row.jobs for row in rows})
    width = 0.84 / len(schemes)
    for order, scheme in enumerate(schemes):
        for at, jobs in enumerate(counts):
            runs = [row for row in rows if (row.scheme, row.jobs) == (scheme, jobs)]
            if not runs:
                continue
            values = [value(row) for row in runs]
            place = at + (order - (len(schemes) - 1) / 2) * width
            label = TITLES[scheme] if at == 0 else None
            axes.bar(place, sum(values) / len(values), width * 0.92, color=COLOURS[scheme], label=label)
            axes.plot([place] * len(values), values, ".", color=INK, markersize=4, clip_on=False)
            predicted = sum(map(foreseen, runs)) / len(runs)
            axes.plot(place, predicted, "_", color=INK, markersize=14, clip_on=False)
    axes.set_xticks(range(len(counts)), [str(jobs) for jobs in counts])
    axes.tick_params(length=0)
    axes.set_ylim(bottom=0)
    axes.grid(True, axis="y")


def _reductions(axes: Axes, rows: Sequence[QueueRow], model: str) -> None:
    """Draw the paper's reductions and ours as bars, and the predicted ones as dashes."""
    foreseen = [replace(row, total_jct_s=row.predicted.ahead_total_jct_s) for row in rows]
    claims = [claim for claim in CLAIMS if claim.model == model]
    for at, claim in enumerate(claims):
        axes.bar(at - 0.2, 100 * claim.paper, 0.36, color=MUTED, label=None if at else "paper")
        ours, predicted = (reduction(group, claim, total_jct_s) for group in (rows, foreseen))
        if ours is not None and predicted is not None:
            axes.bar(at + 0.2, 100 * ours, 0.36, color=COLOURS[claim.pairs[0][0]])
            axes.plot(at + 0.2, 100 * predicted, "_", color=INK, markersize=14, clip_on=False)
    axes.axhline(0, color=MUTED, linewidth=0.7)
    names = ["\nbelow\n".join(TITLES[scheme] for scheme in claim.pairs[0]) for claim in claims]
    axes.set_xticks(range(len(claims)), names, fontsize=8)
    axes.tick_params(length=0)
    axes.grid(True, axis="y")


def _finding(report: QueueReport) -> str:
    shares = {
        claim.model: reduction(report.rows, claim, total_jct_s)
        for claim in CLAIMS
        if claim.model and claim.text.endswith("INC-FCFS below noINC-FCFS")
    }
    parts = [f"{share:.0%} ({MODELS[model]})" for model, share in shares.items() if share is not None]
    return (
        f"INC shortens total JCT by {' and '.join(parts)} under FCFS"
        if parts
        else "Total JCT and connections"
    )


def _detail(report: QueueReport) -> str:
    trust, scale = report.trust, report.scale
    trusted = f"{trust.trustworthy} of {trust.of} jobs trustworthy"
    optical = f"{report.optical_ports} optical ports of {report.optical_gbps:g} Gb/s"
    ports = f"{optical} a rack, emulated at a {scale}th"
    return f"Means of {report.runs} runs; dots: runs; dashes: predicted. {ports}. {trusted}."
