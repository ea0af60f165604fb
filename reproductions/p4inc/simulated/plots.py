"""Pictures of P4INC-AOI's simulated figures in the style of the paper's: bars by scheme of AOI
reconfigurations and CT-BTI. Imports matplotlib.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.p4inc.simulated.report import PaperCell, SweepReport
from reproductions.p4inc.simulated.tables import title_of
from testbed.figures.verdict_gate import headline
from testbed.messages.coding import UnsetType
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED, PAPER
from testbed.systems.p4inc.simulator.settings import SETTINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# colours of Okabe and Ito: the hue separates INC from noINC, the depth FCFS from TW
COLOURS = {
    "milp": "#4D4D4D",
    "noinc-fcfs": "#F2C879",
    "noinc-tw": "#D55E00",
    "noinc-tw+": "#8C3B00",
    "inc-fcfs": "#9CCBEB",
    "inc-tw": "#0072B2",
    "inc-tw-norecon": "#A34F8A",
    "inc-tw+": "#009E73",
}
AXES = {
    "job_count": "number of jobs",
    "units": "number of units",
    "inc": "INC capacity of a switch, in jobs",
    "slot_s": "length of a time slot, in seconds",
}
PANELS = (
    ("connections", "(a) AOI reconfigurations: connections set up"),
    ("ct_bti_s", "(b) CT-BTI, in seconds"),
)


def draw(report: SweepReport, path: Path) -> None:
    """Write the figure as a PNG. Whiskers span the least and the most over the seeds."""
    with drawing() as plt:
        save(plt, picture(report), path)


def picture(report: SweepReport) -> Figure:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.9))
    schemes = list(dict.fromkeys(mean.scheme for mean in report.means))
    for axes, (metric, title) in zip(panels, PANELS, strict=True):
        _bars(axes, report, schemes, metric)
        axes.set_title(title)
        axes.set_xlabel(AXES.get(SETTINGS[report.figure].sweep, SETTINGS[report.figure].sweep))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower center", ncols=len(handles), frameon=False, bbox_to_anchor=(0.5, 0.0)
    )
    headline(figure, report, report.headline, _detail(report), ())
    figure.subplots_adjust(left=0.075, right=0.985, top=0.79, bottom=0.205, wspace=0.16)
    return figure


def _bars(axes: Axes, report: SweepReport, schemes: list[str], metric: str) -> None:
    values = list(dict.fromkeys(mean.value for mean in report.means))
    by = {(mean.scheme, mean.value): getattr(mean, metric) for mean in report.means}
    papers = {(mean.scheme, mean.value): mean.paper for mean in report.means}
    width = 0.84 / len(schemes)
    for order, scheme in enumerate(schemes):
        spreads = [by[scheme, value] for value in values]
        places = [at + (order - (len(schemes) - 1) / 2) * width for at in range(len(values))]
        means = [spread.mean for spread in spreads]
        below = [spread.mean - spread.least for spread in spreads]
        above = [spread.most - spread.mean for spread in spreads]
        axes.bar(places, means, width * 0.92, color=COLOURS[scheme], label=title_of(scheme))
        if len(report.seeds) > 1:
            axes.errorbar(places, means, (below, above), fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
        known = [
            (place, number)
            for place, value in zip(places, values, strict=True)
            if (number := _printed(papers.get((scheme, value)), metric)) is not None
        ]
        if known:
            named = "paper" in axes.get_legend_handles_labels()[1]
            axes.plot(*zip(*known, strict=True), "X", color=INK, markeredgecolor=PAPER, markersize=9,
                      clip_on=False, zorder=5, label=None if named else "paper")  # fmt: skip
        for place, mean in zip(places, means, strict=True):
            if mean == 0:
                axes.text(place, 0, "0", ha="center", va="bottom", fontsize=7, color=MUTED)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.tick_params(length=0)
    axes.set_ylim(bottom=0)
    axes.grid(True, axis="y")


def _printed(paper: PaperCell | UnsetType | None, metric: str) -> float | None:
    """Return the metric's value in the paper's table; None where it has none."""
    if not isinstance(paper, PaperCell):
        return None
    return paper.connections if metric == "connections" else paper.ct_bti_s


def _detail(report: SweepReport) -> str:
    seeds, about = len(report.seeds), SETTINGS[report.figure].about
    whiskers = f"Means of {seeds} seeds; whiskers: least and most." if seeds > 1 else "One seed."
    return f"{about[0].upper()}{about[1:]}. {whiskers} Reading: {report.options.reading}."
