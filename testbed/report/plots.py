"""The report as pictures. Imports matplotlib, and draws without a display.

Every title states what the picture shows, computed from the report; the jobs keep their colours from one to the next.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.report.style import COLOURS, FAINT, INK, MUTED, NAMES, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Report = Mapping[str, Any]

DPI = 160
LEFT = 0.06  # of the titles, in figure widths
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": FAINT,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "lines.linewidth": 1.8,
}


def draw_all(report: Report, folder: Path) -> list[Path]:
    """Writes the PNG files into the folder and returns their paths. Pictures without data are left out."""
    pictures: dict[str, Callable[[Report], Figure]] = {"loss": loss, "iteration_time": iteration_time, "links": links}
    if any(event["measured_ms"] is not None for event in report["ocs"]["events"]):
        pictures["reconfigurations"] = reconfigurations
    paths = []
    with _matplotlib() as plt:
        for name, draw in pictures.items():
            figure = draw(report)
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=DPI)
            plt.close(figure)
            paths.append(path)
    return paths


@contextmanager
def _matplotlib() -> Iterator[Any]:
    """matplotlib.pyplot in this report's style. Where the user has no home to write to, its cache goes to a passing folder."""
    with tempfile.TemporaryDirectory(prefix="matplotlib-") as cache:
        os.environ.setdefault("MPLCONFIGDIR", cache)
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        with plt.rc_context(STYLE):
            yield plt


def loss(report: Report) -> Figure:
    """Training loss by iteration, where all jobs do the same, and by time, where they differ."""
    import matplotlib.pyplot as plt

    jobs = report["jobs"]
    figure, (by_iteration, by_time) = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True)
    ends = []
    for order, (sync, job) in enumerate(jobs.items()):
        values = smoothed(job["loss"])
        seconds = np.cumsum(job["iteration_ms_list"]) / 1e3
        # drawn over one another: the lower ones are wider, so that all remain visible where they coincide
        width = 1.6 + 1.9 * (len(jobs) - 1 - order)
        by_iteration.plot(np.arange(1, len(values) + 1), values, color=COLOURS[sync], linewidth=width)
        by_time.plot(seconds, values, color=COLOURS[sync], label=NAMES[sync])
        by_time.plot(seconds[-1], values[-1], "o", color=COLOURS[sync], markersize=5, clip_on=False, zorder=5)
        ends.append((sync, float(seconds[-1]), float(values[-1])))
    for axes in (by_iteration, by_time):
        axes.set_yscale("log")
        axes.grid(True, axis="y")
        axes.set_xlim(left=0)
        axes.tick_params(length=0, which="both")
    for sync, at_s, value in ends:
        label = f"{sync}\n{at_s:.0f} s"
        by_time.annotate(
            label, (at_s, value), (0, -8), textcoords="offset points", ha="center", va="top", color=COLOURS[sync],
            fontweight="bold", fontsize=9,
        )  # fmt: skip
    low = min(value for _, _, value in ends)
    by_iteration.set_ylim(bottom=low / 3.2)
    by_iteration.set_ylabel("training loss, mean over the workers")
    by_iteration.set_xlabel("iteration")
    by_time.set_xlabel("time in iterations, real seconds")
    by_iteration.set_title("by iteration")
    by_time.set_title("by time")
    figure.legend(loc="lower right", bbox_to_anchor=(0.985, 0.008), ncols=len(jobs), frameon=False, fontsize=9)
    accuracies = [job["test_accuracy"] for job in jobs.values()]
    _headline(
        figure,
        f"Same learning, different speed: {spread([f'{value:.1%}' for value in accuracies])} test accuracy",
        f"{loss_agreement(jobs)} Curves are means over 9 iterations.",
    )
    figure.subplots_adjust(left=0.075, right=0.975, top=0.80, bottom=0.19, wspace=0.08)
    return figure


def iteration_time(report: Report) -> Figure:
    """A bar per job: communication, and the rest of the iteration."""
    import matplotlib.pyplot as plt

    jobs, scale = report["jobs"], report["clock"]["scale"]
    figure, axes = plt.subplots(figsize=(10, 1.9 + 0.72 * len(jobs)))
    longest = max(job["iteration_ms"] for job in jobs.values())
    for row, (sync, job) in enumerate(jobs.items()):
        comm, whole = min(job["comm_ms"], job["iteration_ms"]), job["iteration_ms"]
        axes.barh(row, comm, height=0.56, color=COLOURS[sync])
        axes.barh(row, whole - comm, left=comm, height=0.56, color=COLOURS[sync], alpha=0.28)
        _inside(axes, row, 0, comm, longest, f"{comm:.0f} ms communication", PAPER)
        _inside(axes, row, comm, whole - comm, longest, f"{whole - comm:.0f} ms computation", INK)
        axes.text(whole + longest * 0.012, row, f"{whole:.0f} ms", va="center", fontweight="bold")
    axes.set_yticks(range(len(jobs)), [NAMES[sync] for sync in jobs])
    axes.tick_params(length=0)
    for label, sync in zip(axes.get_yticklabels(), jobs, strict=True):
        label.set_color(COLOURS[sync])
        label.set_fontweight("bold")
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, longest * 1.09)
    axes.set_xlabel("real milliseconds per iteration, median")
    emulated = axes.secondary_xaxis("top", functions=(lambda ms: ms / scale, lambda ms: ms * scale))
    emulated.set_xlabel(f"on the declared fabric (time scale {scale}), milliseconds", fontsize=9)
    emulated.tick_params(length=0, labelsize=9)
    emulated.spines["top"].set_visible(False)
    axes.grid(True, axis="x")
    _headline(figure, fastest(jobs), "Computation is what no communication overlaps with.")
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.19, right=0.975, top=1 - 1.25 / height, bottom=0.55 / height)
    return figure


def links(report: Report) -> Figure:
    """A row per link that carried anything, a column per job, the shade and the number saying how much."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    syncs = list(report["jobs"])
    used = [link for link in report["links"] if link["bytes"]]
    megabytes = np.array([[link["bytes_by_sync"].get(sync, 0) / 1e6 for sync in syncs] for link in used])
    height = 2.0 + 0.3 * len(used)
    figure, axes = plt.subplots(figsize=(8.2, height))
    top = float(megabytes.max()) if megabytes.size else 1.0
    norm = LogNorm(max(top / 200, 1e-3), top, clip=True)
    for column, sync in enumerate(syncs):
        shades = LinearSegmentedColormap.from_list(sync, [PAPER, COLOURS[sync]])
        for row in range(len(used)):
            value = float(megabytes[row, column])
            weight = float(norm(value)) * 0.9 if value > 0 else 0.0
            axes.barh(row, 0.94, left=column - 0.47, height=0.86, color=shades(weight))
            text = "-" if value < 0.05 else f"{value:,.0f} MB" if value >= 9.95 else f"{value:.1f} MB"
            axes.text(column, row, text, ha="center", va="center", color=PAPER if weight > 0.62 else INK, fontsize=9)
    axes.set_xticks(range(len(syncs)), [NAMES[sync] for sync in syncs])
    axes.set_yticks(range(len(used)), [link_name(link["name"]) for link in used])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9)
    axes.tick_params(axis="x", pad=2)
    for label, sync in zip(axes.get_xticklabels(), syncs, strict=True):
        label.set_color(COLOURS[sync])
        label.set_fontweight("bold")
    axes.set_xlim(-0.5, len(syncs) - 0.5)
    axes.set_ylim(len(used) - 0.5, -0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    idle = len(report["links"]) - len(used)
    also = f" {idle} more links carried nothing." if idle else ""
    drops = sum(link["drops"] for link in used)
    _headline(figure, busiest(used, syncs), f"Both directions, headers included; {drops} frames dropped in all.{also}")
    figure.subplots_adjust(left=0.2, right=0.98, top=1 - 1.2 / height, bottom=0.18 / height)
    return figure


def reconfigurations(report: Report) -> Figure:
    """When ports went dark, and for how long: asked and measured."""
    import matplotlib.pyplot as plt

    events = [event for event in report["ocs"]["events"] if event["measured_ms"] is not None]
    ports = sorted({port for event in events for port in event["ports"]})
    began = min(event["time"] for event in events)
    height = max(4.0, 2.4 + 0.26 * max(len(ports), len(events)))
    figure, (when, how_long) = plt.subplots(1, 2, figsize=(10, height), gridspec_kw={"width_ratios": [1, 1.25]})
    rows = {port: row for row, port in enumerate(ports)}
    span = max(event["time"] for event in events) - began
    for event in events:
        colour = COLOURS.get(event["sync"], INK)
        touched = [rows[port] for port in event["ports"]]
        at = event["time"] - began
        when.plot([at] * len(touched), touched, "s", color=colour, markersize=8)
        when.plot([at, at], [min(touched), max(touched)], color=colour, linewidth=1.2, alpha=0.4, zorder=1)
        when.annotate(
            f"{event['id']} ({event['sync']})", (at, -0.45), ha="center", va="bottom", color=colour,
            fontweight="bold", fontsize=9,
        )  # fmt: skip
    when.set_yticks(range(len(ports)), ports)
    when.set_ylim(len(ports) - 0.5, -1.1)
    when.set_xlim(-0.1 * (span or 1), span + 0.1 * (span or 1))
    when.set_xlabel("seconds since the first")
    when.set_title("which ports, and when")
    when.grid(True, axis="y")
    for row, event in enumerate(events):
        colour = COLOURS.get(event["sync"], INK)
        asked, measured = event["asked_ms"], event["measured_ms"]
        how_long.barh(row, measured, height=0.46, color=colour, alpha=0.28)
        how_long.plot([asked, asked], [row - 0.34, row + 0.34], color=colour, linewidth=2.4, solid_capstyle="butt")
        error_us = (measured - asked) * 1e3
        how_long.annotate(
            f"{measured:.2f} ms ({error_us:+.0f} µs)", (max(asked, measured), row), (7, 0),
            textcoords="offset points", va="center", fontsize=9,
        )  # fmt: skip
    how_long.set_yticks(range(len(events)), [f"{event['id']} ({event['sync']})" for event in events])
    how_long.set_ylim(len(events) - 0.4, -0.6)
    how_long.set_xlim(0, max(max(event["asked_ms"], event["measured_ms"]) for event in events) * 1.42)
    how_long.set_xlabel("milliseconds dark: the bar was measured, the mark asked for")
    how_long.set_title("for how long")
    for axes in (when, how_long):
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
    _headline(figure, *dark_times(events))
    figure.subplots_adjust(left=0.075, right=0.985, top=1 - 1.05 / height, bottom=0.6 / height, wspace=0.2)
    return figure


# ------------------------------------------------------------------ what the pictures show, in words


def loss_agreement(jobs: Mapping[str, Any]) -> str:
    """By how much the losses of the first job ever differ from the ring's, which sums plain floats."""
    if "inc" not in jobs or "ring" not in jobs or len(jobs["inc"]["loss"]) != len(jobs["ring"]["loss"]):
        return "Same seed, same order of the data."
    apart = np.abs(np.subtract(jobs["inc"]["loss"], jobs["ring"]["loss"]))
    return f"Same seed, same data order: the losses of inc and ring never differ by more than {apart.max():.1g}."


def fastest(jobs: Mapping[str, Any]) -> str:
    """Which job has the shortest iteration, and how much longer the slowest's is."""
    ordered = sorted(jobs, key=lambda sync: float(jobs[sync]["iteration_ms"]))
    first, last = ordered[0], ordered[-1]
    share = jobs[first]["comm_ms"] / jobs[first]["iteration_ms"]
    if first == last:
        return f"{first}: communication is {share:.0%} of an iteration"
    ratio = jobs[last]["iteration_ms"] / jobs[first]["iteration_ms"]
    return f"An iteration with {first} is the shortest; with {last} it takes {ratio:.1f} times as long"


def busiest(used: Sequence[Mapping[str, Any]], syncs: Sequence[str]) -> str:
    """How much the busiest link carries, for the job that loads it most and the one that loads its own busiest least."""
    if not used:
        return "No link carried anything"
    peak = {sync: max(link["bytes_by_sync"].get(sync, 0) for link in used) for sync in syncs}
    most, least = max(syncs, key=lambda s: peak[s]), min(syncs, key=lambda s: peak[s])
    where = max(used, key=lambda link: int(link["bytes_by_sync"].get(most, 0)))
    text = f"{most} puts {peak[most] / 1e9:.2g} GB on {where['name']}"
    return text if most == least else f"{text}; the busiest link of {least} carries {peak[least] / 1e9:.2g} GB"


def dark_times(events: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    worst_us = max(abs(event["measured_ms"] - event["asked_ms"]) for event in events) * 1e3
    many = f"{len(events)} reconfigurations" if len(events) > 1 else "The reconfiguration"
    return (
        f"{many} kept ports dark as long as asked, within {worst_us:,.0f} µs",
        "Optical times are real: the time scale does not touch them.",
    )


def spread(texts: Sequence[str]) -> str:
    """`98.1%` or `97.8% to 98.3%`."""
    low, high = min(texts), max(texts)
    return low if low == high else f"{low} to {high}"


def smoothed(values: Sequence[float], width: int = 9) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The mean over `width` iterations around each, fewer at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    low, high = np.maximum(at - width // 2, 0), np.minimum(at + width // 2 + 1, len(values))
    mean: np.ndarray[Any, np.dtype[np.float64]] = (sums[high] - sums[low]) / (high - low)
    return mean


def link_name(name: str) -> str:
    """With the kind of the link: a host's, or an optical port's."""
    return f"{name}  optical" if "o" in name else f"{name}  host"


def _inside(axes: Axes, row: int, left: float, width: float, whole: float, text: str, colour: str) -> None:
    """A label in a bar's part, where it fits; shortened to the number where that fits."""
    for candidate in (text, text.rsplit(" ", 1)[0]):
        if width > whole * 0.0115 * len(candidate):
            axes.text(left + whole * 0.01, row, candidate, va="center", color=colour, fontsize=9)
            return


def _headline(figure: Figure, finding: str, detail: str) -> None:
    height = figure.get_figheight()
    figure.text(0.015, 1 - 0.16 / height, finding, fontsize=13, fontweight="bold", va="top")
    figure.text(0.015, 1 - 0.46 / height, detail, fontsize=9.5, color=MUTED, va="top")
