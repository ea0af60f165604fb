"""Pictures of ALEPH's simulations: a line for each scheme, with the spread over the seeds. Imports
matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.aleph.simulated.claims import PRINTED_NUMBERS
from reproductions.aleph.simulated.report import IterationReport
from reproductions.claims import tally
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.systems.aleph.simulator import FAT_TREE, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# colours of Okabe and Ito: the hue separates ALEPH from others, the depth its clusterings
LOOKS: Mapping[str, tuple[str, str]] = {
    "ours": ("#009E73", "o"),
    "mwcha": ("#0072B2", "s"),
    "mwcha-printed": ("#9CCBEB", "v"),
    "ps": ("#D55E00", "^"),
    "ring": ("#E69F00", "D"),
    "balanced": ("#A34F8A", "x"),
}
PAPER = "paper"
AXES = {"workers": "number of workers", "deviation": "standard deviation of the available bandwidth"}
PANELS: Mapping[str, tuple[tuple[str, str | None, str, bool], ...]] = {
    "fig13": (
        ("workers_gbps", FAT_TREE, "(a) bandwidth usage of all workers, Gb/s", False),
        ("servers_gbps", FAT_TREE, "(b) bandwidth usage of all PSs, Gb/s", False),
    ),
    "fig14": (
        ("overhead_gb", "fat-tree", "(a) communication overhead, fat tree, GB", False),
        ("overhead_gb", "leaf-spine", "(b) communication overhead, leaf and spine, GB", False),
    ),
    "fig15": (
        ("hops", "fat-tree", "(a) gradient hops, fat tree", True),
        ("hops", "leaf-spine", "(b) gradient hops, leaf and spine", True),
    ),
    "fig16": (
        ("hops", "fat-tree", "(a) gradient hops, fat tree", False),
        ("hops", "leaf-spine", "(b) gradient hops, leaf and spine", False),
    ),
}


def draw(report: IterationReport, path: Path) -> None:
    """Write the figure as a PNG. Whiskers span the least and the most over the seeds."""
    with drawing() as plt:
        save(plt, picture(report), path)


def picture(report: IterationReport) -> Figure:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.9))
    for axes, (metric, topology, title, logarithmic) in zip(panels, PANELS[report.figure], strict=True):
        _lines(axes, report, metric, topology)
        _paper(axes, report, metric, topology)
        axes.set_title(title)
        axes.set_xlabel(AXES[report.sweep])
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.grid(True, axis="y")
    drawn = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = sorted(drawn, key=lambda label: label == PAPER)  # the paper's last
    figure.legend(
        [drawn[label] for label in labels],
        labels,
        loc="lower center",
        ncols=4,
        frameon=False,
        bbox_to_anchor=(0.5, 0.0),
    )
    headline(figure, report, _headline(report), _detail(report), ())
    figure.subplots_adjust(left=0.075, right=0.985, top=0.79, bottom=0.235, wspace=0.16)
    return figure


def _lines(axes: Axes, report: IterationReport, metric: str, topology: str | None) -> None:
    means = [mean for mean in report.means if mean.topology == topology]
    for scheme in dict.fromkeys(mean.scheme for mean in means):
        points = [mean for mean in means if mean.scheme == scheme]
        values, middles = [mean.value for mean in points], [mean.spread(metric).mean for mean in points]
        if not any(middles):
            continue  # a ring has no servers
        colour, marker = LOOKS[scheme]
        # the mean of equal values may differ from them by a rounding error
        below = [max(0.0, mean.spread(metric).mean - mean.spread(metric).least) for mean in points]
        above = [max(0.0, mean.spread(metric).most - mean.spread(metric).mean) for mean in points]
        axes.errorbar(
            values,
            middles,
            (below, above),
            color=colour,
            marker=marker,
            markersize=4.5,
            capsize=2,
            elinewidth=0.8,
            label=TITLES[scheme],
        )


def _paper(axes: Axes, report: IterationReport, metric: str, topology: str | None) -> None:
    """Mark the numbers that the paper prints with crosses; several readings of one algorithm share a
    cross.
    """
    for number in PRINTED_NUMBERS[report.figure]:
        if (number.metric, number.topology) == (metric, topology):
            colour, _ = LOOKS[number.schemes[0]]
            named = PAPER in axes.get_legend_handles_labels()[1]
            axes.plot(number.at, number.paper, "x", color=colour, markersize=10, markeredgewidth=2.2,
                      linestyle="none", zorder=5, label=None if named else PAPER)  # fmt: skip


def _headline(report: IterationReport) -> str:
    """Say how many of the paper's statements agree, and what the figure is about."""
    return f"{tally(report.claims)}: {report.about}"


def _detail(report: IterationReport) -> str:
    seeds, options = len(report.seeds), report.options
    fixed = f"deviation {options.deviation:g}" if report.sweep == "workers" else f"{options.workers} workers"
    return (
        f"Means of {seeds} seeds; whiskers: least and most. {fixed[0].upper()}{fixed[1:]}, 10 PSs; who can "
        f"head whom: {options.reach}; workers {options.place}."
    )
