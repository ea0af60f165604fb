"""Pictures of the live figures. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.claims import tally
from reproductions.luwu.live.claims import serialised
from reproductions.luwu.live.runs import LiveReport, TrainedRow
from reproductions.luwu.live.setting import FSDP, LUWU, WAYS
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK, MUTED

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[TrainedRow]
Panel = tuple[str, Callable[["Axes", Rows], None]]
PARTS: Sequence[tuple[str, str, Callable[[TrainedRow], float]]] = (
    ("forward, computing", "#0072B2", lambda row: row.forward_s - row.forward_waited_s),
    ("forward, waiting", "#A6CEE3", lambda row: row.forward_waited_s),
    ("backward, computing", "#009E73", lambda row: row.backward_s - row.backward_waited_s),
    ("backward, waiting", "#B2DF8A", lambda row: row.backward_waited_s),
    ("step", "#D55E00", lambda row: row.step_s),
)
"""The parts of an iteration: label, colour and seconds."""
SMOOTHED = 20
"""How many iterations a point of a loss curve averages."""


def draw(report: LiveReport, path: Path) -> None:
    """Write a figure as a PNG."""
    with drawing() as plt:
        save(plt, picture(report), path)


def picture(report: LiveReport) -> Figure:
    import matplotlib.pyplot as plt

    panels = _PANELS[report.figure]
    figure, places = plt.subplots(1, len(panels), figsize=(11, 5.0), squeeze=False)
    for axes, (title, draws) in zip(places[0], panels, strict=True):
        draws(axes, report.rows)
        axes.set_title(title)
        axes.grid(True, axis="x" if draws in (_phases, _bytes) else "y")
    handles: dict[str, Artist] = {}
    for axes in places[0]:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(),
        handles,
        loc="lower center",
        ncols=5 if len("".join(handles)) < 110 else 3,
        frameon=False,
        bbox_to_anchor=(0.5, 0.0),
    )
    headline(
        figure,
        report,
        f"Live: {report.about}",
        f"{tally(report.claims)}; the paper's links over {report.scale}.",
        report.rows,
    )
    wide = any(draws in (_phases, _bytes) for _, draws in panels)
    figure.subplots_adjust(left=0.2 if wide else 0.08, right=0.985, top=0.79, bottom=0.2, wspace=0.2)
    return figure


def _named(row: TrainedRow) -> str:
    return f"{row.title},\ndeclared disks" if row.disk_mb_s else row.title


def _phases(axes: Axes, rows: Rows) -> None:
    """Draw an iteration as a bar of phases: the computing of each, then its waiting."""
    for place, row in enumerate(rows):
        left = 0.0
        for label, colour, seconds in PARTS:
            width = seconds(row)
            axes.barh(place, width, 0.7, left=left, color=colour, label=None if place else label)
            left += width
    names = [_named(row) for row in rows]
    if len({row.way for row in rows}) == 1:
        names = [f"micro-batch {row.micro_batch}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlabel("seconds")


def _bytes(axes: Axes, rows: Rows) -> None:
    links = (
        ("up", INK, [max(row.up_bytes) for row in rows]),
        ("down", MUTED, [max(row.down_bytes) for row in rows]),
    )
    for order, (way, colour, widths) in enumerate(links):
        places = [place + 0.36 * (order - 0.5) for place in range(len(rows))]
        axes.barh(places, widths, 0.34, color=colour, label=way)
    axes.axvline(4, color="#009E73", linestyle="--", linewidth=1.2, label="LuWu's bound")
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.set_xlabel("bytes a parameter and iteration")


def _lines(
    key: Callable[[TrainedRow], float], of: Callable[[TrainedRow], int], label: str
) -> Callable[[Axes, Rows], None]:
    def draws(axes: Axes, rows: Rows) -> None:
        for way in dict.fromkeys(row.way for row in rows):
            group = [row for row in rows if row.way == way]
            axes.plot(
                [str(of(row)) for row in group],
                [key(row) for row in group],
                "o-",
                color=WAYS[way].colour,
                label=WAYS[way].title,
            )
            predicted = [
                replace(row, iteration_s=row.predicted_s)
                for row in group
                if isinstance(row.predicted_s, float)
            ]
            if predicted and key in (_iteration, _throughput):
                heights = [key(row) for row in predicted]
                axes.plot([str(of(row)) for row in predicted], heights, "x", color=INK, label="the model")
        axes.set_xlabel(label)
        axes.margins(y=0.1)
        axes.set_ylim(bottom=0)

    return draws


def _iteration(row: TrainedRow) -> float:
    return row.iteration_s


def _throughput(row: TrainedRow) -> float:
    return row.workers * row.micro_batch / row.iteration_s


def _communicated(row: TrainedRow) -> float:
    return row.communicated_s


def _layers(row: TrainedRow) -> int:
    return row.layers


def _micro_batch(row: TrainedRow) -> int:
    return row.micro_batch


def _by_disks(axes: Axes, rows: Rows) -> None:
    _lines(_iteration, lambda row: row.disks, "disks")(axes, [row for row in rows if row.disk_mb_s])
    free = [row for row in rows if not row.disk_mb_s]
    axes.axhline(free[0].iteration_s, color=MUTED, linestyle="--", label="disks as fast as they are")


def _memory(axes: Axes, rows: Rows) -> None:
    for way in dict.fromkeys(row.way for row in rows):
        for workers, style in zip(dict.fromkeys(row.workers for row in rows), ("o-", "s--"), strict=False):
            group = [row for row in rows if (row.way, row.workers) == (way, workers)]
            axes.plot(
                [row.elements / 1e6 for row in group],
                [row.peak_bytes / 1e6 for row in group],
                style,
                color=WAYS[way].colour,
                label=f"{WAYS[way].title}, {workers} workers",
            )
    axes.set_xlabel("parameters, 1e6")
    axes.set_ylim(bottom=0)


def _losses(axes: Axes, rows: Rows) -> None:
    drawn: set[str] = set()
    for row in rows:
        way = WAYS[row.way]
        losses = row.losses
        size = min(SMOOTHED, len(losses))
        means = [sum(losses[end - size : end]) / size for end in range(size, len(losses) + 1)]
        label = None if way.name in drawn else way.title
        drawn.add(way.name)
        style, above = ("--", 3) if way is LUWU else ("-", 2)
        axes.plot(range(size, len(losses) + 1), means, style, color=way.colour, label=label, zorder=above)
    axes.set_xlabel("iterations")


def _apart(axes: Axes, rows: Rows) -> None:
    """Draw LuWu's loss minus FSDP's for each seed, and each FSDP seed minus the mean of FSDP's seeds."""
    ours, theirs = ([row.losses for row in rows if row.way == way.name] for way in (LUWU, FSDP))
    means = [sum(each) / len(each) for each in zip(*theirs, strict=True)]
    for number, losses in enumerate(theirs):
        seeds = [loss - mean for loss, mean in zip(losses, means, strict=True)]
        axes.plot(seeds, color=FSDP.colour, linewidth=0.8, alpha=0.4,
                  label=None if number else "a seed of FSDP less their mean")  # fmt: skip
    for number, (these, those) in enumerate(zip(ours, theirs, strict=True)):
        apart = [loss - other for loss, other in zip(these, those, strict=True)]
        axes.plot(apart, color=LUWU.colour, linewidth=1.0,
                  label=None if number else "LuWu less FSDP, the same seed")  # fmt: skip
    axes.set_xlabel("iterations")


_PANELS: Mapping[str, Sequence[Panel]] = {
    "fig2": [("an iteration", _phases), ("a worker's link", _bytes)],
    "fsdp": [
        ("iteration, s", _lines(_iteration, _layers, "blocks")),
        ("communication that is serialised, of all", _lines(serialised, _layers, "blocks")),
    ],
    "fig3": [
        ("communication that is serialised, of all", _lines(serialised, _micro_batch, "micro-batch")),
        ("communication, s", _lines(_communicated, _micro_batch, "micro-batch")),
        ("iteration, s", _lines(_iteration, _micro_batch, "micro-batch")),
    ],
    "fig4": [("an iteration", _phases)],
    "fig10-live": [("a worker's peak beyond what it began with, MB", _memory)],
    "fig14-live": [
        ("sequences a second of all workers", _lines(_throughput, lambda row: row.workers, "workers"))
    ],
    "fig15-live": [("iteration, s", _by_disks)],
    "fig16": [
        (f"loss, mean of {SMOOTHED} iterations, a line for each seed", _losses),
        ("losses apart", _apart),
    ],
}
