"""Draw the report's pictures. Imports matplotlib, and needs no display.

Every title states the picture's finding, computed from the report; each job has one colour in all pictures.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.messages.coding import Number
from testbed.messages.report import DemoReport, ReportedEvent, ReportedJob, ReportedLink
from testbed.report import timeline
from testbed.report.files import replacing
from testbed.report.job_rows import MeanTimes, milliseconds
from testbed.report.layout import arrange, beside, headline, named
from testbed.report.style import FAINT, INK, MUTED, PAPER, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Measured = tuple[ReportedEvent, Number]  # the event, and its measured dark time in ms
DPI = 160
LINE_STYLES: Any = ("-", "--", ":", "-.")  # for jobs of the same colour, which represent no system
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


def draw_all(report: DemoReport, folder: Path, series: Mapping[str, Path] | None = None) -> list[Path]:
    """Write the PNG files into the folder, and return their paths. Pictures without data are omitted.
    `series`: by job, the file of its samples.
    """
    pictures: dict[str, Callable[[DemoReport], Figure]] = {
        "loss": loss,
        "iteration_time": iteration_time,
        "links": links,
    }
    if measured(report):
        pictures["reconfigurations"] = reconfigurations
    if series:
        pictures["telemetry"] = lambda report: timeline.telemetry(report, series)
    paths = []
    with drawing() as plt:
        for name, draw in pictures.items():
            figure = draw(report)
            path = folder / f"{name}.png"
            save(plt, figure, path)
            paths.append(path)
    return paths


def save(plt: Any, figure: Figure, path: Path) -> None:
    """Write a PNG, and close the figure. Raises HostError if it cannot be written."""
    with replacing(path) as draft:
        figure.savefig(draft, dpi=DPI, format="png")
    plt.close(figure)


@contextmanager
def drawing() -> Iterator[Any]:
    """Yield matplotlib.pyplot in this report's style. Unless MPLCONFIGDIR is set, its cache is in a temporary
    folder: the user may have no writable home.
    """
    with tempfile.TemporaryDirectory(prefix="matplotlib-") as cache:
        os.environ.setdefault("MPLCONFIGDIR", cache)
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        with plt.rc_context(STYLE):
            yield plt


def loss(report: DemoReport) -> Figure:
    """Draw the training loss by iteration, where all jobs coincide, and by time, where they differ."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    jobs = report.jobs
    figure, (by_iteration, by_time) = plt.subplots(1, 2, figsize=(12, 4.8), sharey=True)
    wider = min(1.9, 8 / len(jobs))
    ends: dict[str, float] = {}
    for order, (name, job) in enumerate(jobs.items()):
        colour, values = look(name).colour, smoothed(job.loss)
        seconds = np.cumsum(job.iteration_ms_list) / 1e3
        ends[name] = float(seconds[-1])
        # curves overlap: the lower ones are wider, so that all remain visible where they coincide
        width = 1.6 + wider * (len(jobs) - 1 - order)
        by_iteration.plot(np.arange(1, len(values) + 1), values, color=colour, linewidth=width)
        by_iteration.plot(len(values), values[-1], "o", color=colour, markersize=width + 3)
        same_colour = sum(look(other).colour == colour for other in ends)
        style = LINE_STYLES[(same_colour - 1) % len(LINE_STYLES)]
        by_time.plot(seconds, values, color=colour, linestyle=style, label=name)
        by_time.plot(seconds[-1], values[-1], "o", color=colour, markersize=6, zorder=5)
    for axes in (by_iteration, by_time):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(True, axis="y")
        axes.set_xlim(0, axes.dataLim.x1 * 1.03)
        axes.tick_params(length=0, which="both")
    by_iteration.set_ylabel("training loss, mean over the workers\n(logarithmic axis)")
    by_iteration.set_title(
        "by iteration" + (" (lines that coincide: the lower ones are wider)" if len(jobs) > 1 else "")
    )
    by_iteration.set_xlabel("iteration")
    by_time.set_title("by time")
    by_time.set_xlabel("real seconds spent in iterations")
    curves = dict(zip(*reversed(by_time.get_legend_handles_labels()), strict=True))
    beside(
        by_time,
        {f"{named(name)}\n{ends[name]:.3g} s": curves[name] for name in sorted(ends, key=ends.__getitem__)},
    )
    top = headline(
        figure,
        accuracy(jobs),
        f"{loss_agreement(jobs)} Curves are medians over 9 iterations.",
    )
    arrange(figure, top)
    return figure


def iteration_time(report: DemoReport) -> Figure:
    """Draw a bar for each job: communication, and the rest of the iteration."""
    import matplotlib.pyplot as plt

    jobs = {name: MeanTimes.of(job) for name, job in report.jobs.items()}
    figure, axes = plt.subplots(figsize=(10, 1.9 + 0.72 * len(jobs)))
    longest = max(max(times.iteration_ms, times.least_ms or 0) for times in jobs.values())
    for row, (name, times) in enumerate(jobs.items()):
        whole, colour = times.iteration_ms, look(name).colour
        comm = min(times.communication_ms, whole)
        axes.barh(row, comm, height=0.56, color=colour)
        axes.barh(row, whole - comm, left=comm, height=0.56, color=paler(colour, 0.3))
        _inside(axes, row, 0, comm, longest, f"{milliseconds(comm)} ms", ink_on(colour))
        _inside(axes, row, comm, whole - comm, longest, f"{milliseconds(whole - comm)} ms", INK)
        least = times.least_ms
        right = max(whole, least or 0) + longest * 0.012
        axes.text(right, row, f"{milliseconds(whole)} ms", va="center", fontweight="bold")
        if least is not None:
            axes.vlines(least, row - 0.36, row + 0.36, color=INK, linewidth=2)
            axes.text(
                right, row + 0.36, f"least {milliseconds(least)} ms", va="center", fontsize=8.5, color=MUTED
            )
    axes.set_yticks(range(len(jobs)), [named(name) for name in jobs])
    axes.tick_params(length=0)
    for label, name in zip(axes.get_yticklabels(), jobs, strict=True):
        label.set_color(look(name).colour)
        label.set_fontweight("bold")
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, longest * 1.17)
    axes.set_xlabel("real milliseconds an iteration, mean")
    axes.grid(True, axis="x")
    top = headline(
        figure,
        fastest(report.jobs),
        "Full colour: communication. Pale: computation that no communication overlaps with. Dark line: the "
        "least by the links.",
    )
    arrange(figure, top)
    return figure


def links(report: DemoReport) -> Figure:
    """Draw a row for each link that carried anything, and a column for each job; shade and number give the
    amount.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    syncs = list(report.jobs)
    used = [link for link in report.links if link.bytes]
    megabytes = np.array([[link.bytes_by_sync.get(sync, 0) / 1e6 for sync in syncs] for link in used])
    figure, axes = plt.subplots(figsize=(9.6, 2.0 + 0.3 * len(used)))
    most = float(megabytes.max()) if megabytes.size else 1.0
    norm = LogNorm(max(most / 200, 1e-3), max(most, 2e-3), clip=True)
    for column, sync in enumerate(syncs):
        for row in range(len(used)):
            value = float(megabytes[row, column])
            shade = paler(look(sync).colour, 0.08 + 0.92 * float(norm(value)))
            if value:
                axes.barh(row, 0.94, left=column - 0.47, height=0.86, color=shade)
            text = f"{value:,.0f} MB" if value >= 9.95 else f"{value:.1f} MB" if value >= 0.05 else "0"
            colour = ink_on(shade) if value else MUTED
            axes.text(column, row, text if value else "-", ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(syncs)), [named(sync, round(76 / len(syncs))) for sync in syncs])
    axes.set_yticks(range(len(used)), [link_name(link.name) for link in used])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=9)
    axes.tick_params(axis="x", pad=2)
    for label, sync in zip(axes.get_xticklabels(), syncs, strict=True):
        label.set_color(look(sync).colour)
        label.set_fontweight("bold")
    axes.set_xlim(-0.5, len(syncs) - 0.5)
    axes.set_ylim(max(1, len(used)) - 0.5, -0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    idle = len(report.links) - len(used)
    also = f" {idle} more link{'s' * (idle > 1)} carried nothing." if idle else ""
    drops = sum(link.drops for link in used)
    top = headline(
        figure,
        busiest(used, syncs),
        f"Both directions, headers included; {drops:,} frames lost in all.{also} The shade goes by the "
        "logarithm of the number.",
    )
    arrange(figure, top)
    return figure


def measured(report: DemoReport) -> list[Measured]:
    """Return the reconfigurations with a measured dark time."""
    return [(event, event.measured_ms) for event in report.ocs.events if event.measured_ms is not None]


def reconfigurations(report: DemoReport) -> Figure:
    """Draw each reconfiguration: its time, job and ports, and its dark time, requested and measured."""
    import matplotlib.pyplot as plt

    events = measured(report)
    began = min(event.time for event, _ in events)
    figure, axes = plt.subplots(figsize=(10, 1.9 + 0.85 * len(events)))
    longest = max(max(event.asked_ms, measured_ms) for event, measured_ms in events)
    for row, (event, measured_ms) in enumerate(events):
        asked, colour = event.asked_ms, look(event.sync).colour
        switch = min(event.switch_ms, asked)
        axes.barh(row - 0.2, switch, height=0.34, color=paler(INK, 0.22))
        axes.barh(row - 0.2, asked - switch, left=switch, height=0.34, color=paler(INK, 0.12))
        axes.barh(row + 0.2, measured_ms, height=0.34, color=colour)
        parts = f"{switch:.1f} ms switching" + (
            f" + {asked - switch:.1f} ms locking" if asked > switch else ""
        )
        axes.text(longest * 0.01, row - 0.2, f"asked: {parts}", va="center", fontsize=9)
        axes.text(longest * 0.01, row + 0.2, "measured", va="center", fontsize=9, color=ink_on(colour))
        axes.text(longest * 1.015, row - 0.2, f"{asked:.2f} ms", va="center", fontsize=9)
        lasted = f"{measured_ms:.2f} ms ({(measured_ms - asked) * 1e3:+,.0f} µs)"
        axes.text(longest * 1.015, row + 0.2, lasted, va="center", fontsize=9, fontweight="bold")
    labels = [
        f"{event.id}, {event.sync}, at {event.time - began:.1f} s\n{ports_named(event.ports)}"
        for event, _ in events
    ]
    axes.set_yticks(range(len(events)), labels, fontsize=9)
    axes.set_ylim(len(events) - 0.5, -0.5)
    axes.set_xlim(0, longest * 1.24)
    axes.set_xlabel("milliseconds without light")
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    arrange(figure, headline(figure, *dark_times(events)))
    return figure


# ------------------------------------------------------------------ the pictures' titles


def loss_agreement(jobs: Mapping[str, ReportedJob]) -> str:
    """Say by how much the losses of the first two jobs ever differ: one is summed in the network, the other
    by its workers in plain floats.
    """
    names = list(jobs)[:2]
    losses = [np.array(jobs[name].loss) for name in names]
    if len(losses) < 2 or len(losses[0]) != len(losses[1]):
        return "Same seed, same order of the data."
    apart = float(np.abs(np.subtract(*losses)).max())
    return (
        f"Same seed, same data order: the losses of {' and '.join(names)} "
        f"never differ by more than {apart:.1g}."
    )


def accuracy(jobs: Mapping[str, ReportedJob]) -> str:
    """Say the jobs' test accuracy, or the jobs with the lowest and highest."""
    ordered = sorted(jobs, key=lambda sync: float(jobs[sync].test_accuracy))
    least, most = ordered[0], ordered[-1]
    low, high = (f"{jobs[sync].test_accuracy:.1%}" for sync in (least, most))
    if low == high:
        return f"Test accuracy is {low}" + (" by all of them" if len(jobs) > 1 else "")
    return f"Test accuracy is from {low} ({least}) to {high} ({most})"


def fastest(jobs: Mapping[str, ReportedJob]) -> str:
    """Say which job has the shortest iteration, and how many times as long the slowest job's is; if a job is
    not trustworthy, say that instead.
    """
    doubtful = [sync for sync in jobs if not jobs[sync].verdict.trustworthy]
    if doubtful:
        return f"Time of an iteration; no headline, for {', '.join(doubtful)} cannot be trusted"
    times = {name: MeanTimes.of(job) for name, job in jobs.items()}
    ordered = sorted(times, key=lambda name: times[name].iteration_ms)
    first, last = ordered[0], ordered[-1]
    if first == last:
        share = times[first].communication_ms / times[first].iteration_ms
        return f"{first}: communication is {share:.0%} of an iteration"
    ratio = times[last].iteration_ms / times[first].iteration_ms
    return f"An iteration is shortest with {first}; with {last} it takes {ratio:.1f} times as long"


def busiest(used: Sequence[ReportedLink], syncs: Sequence[str]) -> str:
    """Say how much the busiest link carries, for the job with the highest such load and the one with the
    lowest.
    """
    if not used:
        return "No link carried anything"
    peak = {sync: max(link.bytes_by_sync.get(sync, 0) for link in used) for sync in syncs}
    most, least = max(syncs, key=lambda s: peak[s]), min(syncs, key=lambda s: peak[s])
    where = max(used, key=lambda link: int(link.bytes_by_sync.get(most, 0)))
    text = f"{most} puts {peak[most] / 1e9:.2g} GB on {where.name}"
    return (
        text if most == least else f"{text}; the busiest link of {least} carries {peak[least] / 1e9:.2g} GB"
    )


def dark_times(events: Sequence[Measured]) -> tuple[str, str]:
    worst_us = max(abs(measured_ms - event.asked_ms) for event, measured_ms in events) * 1e3
    many = f"{len(events)} reconfigurations" if len(events) > 1 else "The reconfiguration"
    return (
        f"{many} kept ports dark as long as asked, within {worst_us:,.0f} µs",
        "Optical times are real: volumes are scaled, not time.",
    )


def smoothed(values: Sequence[float], width: int = 9) -> list[float]:
    """Compute the median of `width` iterations around each, fewer at the ends, so that a single bad batch
    does not show.
    """
    half = width // 2
    return [float(np.median(values[max(0, at - half) : at + half + 1])) for at in range(len(values))]


def paler(colour: str, weight: float) -> str:
    """Mix the colour with the paper's; weight 1 is the pure colour."""
    mixed = [round(int(colour[i : i + 2], 16) * weight + 255 * (1 - weight)) for i in (1, 3, 5)]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def ink_on(colour: str) -> str:
    """Return the dark or light text colour, whichever reads better on this background (relative luminance as
    in WCAG).
    """
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return INK if 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.25 else PAPER


def ports_named(ports: Sequence[str], most: int = 4) -> str:
    return " ".join(ports) if len(ports) <= most else f"{' '.join(ports[:most])} and {len(ports) - most} more"


_KINDS = {"o": "optical", "h": "host", "c": "core"}  # kinds of links, by a letter in their names


def link_name(name: str) -> str:
    """Return a link's name with its kind: optical, host, core, or pod (a ToR's link to its pod switch)."""
    kind = next((kind for letter, kind in _KINDS.items() if letter in name), "pod")
    return f"{name}  {kind}"


def _inside(axes: Axes, row: int, left: float, width: float, whole: float, text: str, colour: str) -> None:
    """Write a label inside a part of a bar, if it fits there."""
    if width > whole * 0.016 * len(text):
        axes.text(left + whole * 0.008, row, text, va="center", color=colour, fontsize=9)
