"""The samples taken while jobs ran, over time: links above, cores below, lateness at the bottom. Imports
matplotlib when it draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from testbed.messages.report import DemoReport
from testbed.report.style import FAINT, INK, MUTED, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUSY, SOFTIRQ = 0, 1  # columns of `cores` in the file (testbed/telemetry/summary.py, series)
CORE_COLOURS = ("#1F2933", "#6B7785", "#A9B4C0")
TRUST = {True: ("trustworthy", INK), False: ("not trustworthy", "#B42318"), None: ("no verdict", INK)}
SMOOTH_S = 0.5  # processor time is counted in ticks of up to 10 ms, a tenth of a sample

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The samples of a job: by time, shares of each core and of the fullest link's rate (Mb/s where links
    have none), and lateness in ms.
    """

    time_s: Floats
    busy: Floats
    softirq: Floats
    late_ms: Floats
    link_time_s: Floats
    link: Floats
    rated: bool

    @classmethod
    def read(cls, path: Path) -> Samples:
        with np.load(path) as file:
            time_s, link_time_s = file["time_s"].astype(float), file["link_time_s"].astype(float)
            cores = smooth(time_s, file["cores"].astype(float))
            rates = file["rates_mbps"].astype(float)
            mbps = file["sent"].max(axis=2) * 8e-6 / np.diff(link_time_s, prepend=0.0).clip(1e-3)[:, None]
            rated = bool((rates > 0).any())
            shares = mbps[:, rates > 0] / rates[rates > 0] if rated else mbps
            link = shares.max(axis=1) if shares.size else np.zeros(len(link_time_s))
            return cls(
                time_s, cores[:, :, BUSY], cores[:, :, SOFTIRQ], file["late_ms"], link_time_s, link, rated
            )


def smooth(time_s: Floats, seconds: Floats) -> Floats:
    """Processor seconds by interval -> shares of the time, over about SMOOTH_S."""
    lengths = np.diff(time_s, prepend=0.0).clip(1e-3)
    width = max(1, round(SMOOTH_S / float(np.median(lengths)))) if len(lengths) else 1
    window = np.ones(width)
    sums = np.apply_along_axis(lambda column: np.convolve(column, window, "same"), 0, seconds)
    return (sums / np.convolve(lengths, window, "same")[:, None, None]).clip(0, 1)


def telemetry(report: DemoReport, series: Mapping[str, Path]) -> Figure:
    """A column per job."""
    import matplotlib.pyplot as plt

    jobs = {name: Samples.read(path) for name, path in series.items() if name in report.jobs}
    figure, rows = plt.subplots(
        3, len(jobs), figsize=(max(6.0, 3.1 * len(jobs)), 6.4), sharex="col", sharey="row", squeeze=False,
        gridspec_kw={"height_ratios": (3, 3, 1.4)},
    )  # fmt: skip
    for column, (name, samples) in enumerate(jobs.items()):
        links, cores, late = rows[:, column]
        colour = look(name).colour
        scale = 100.0 if samples.rated else 1.0
        links.fill_between(samples.link_time_s, samples.link * scale, color=colour, alpha=0.25, linewidth=0)
        links.plot(samples.link_time_s, samples.link * scale, color=colour, linewidth=1.1)
        for core in range(samples.busy.shape[1]):
            shade = CORE_COLOURS[core % len(CORE_COLOURS)]
            cores.plot(
                samples.time_s, samples.busy[:, core] * 100, color=shade, linewidth=1.2, label=f"core {core}"
            )
            label = "of it, packets" if core == 0 else None
            cores.fill_between(
                samples.time_s,
                samples.softirq[:, core] * 100,
                color=colour,
                alpha=0.3,
                linewidth=0,
                label=label,
            )
        late.vlines(samples.time_s, 0, samples.late_ms, color=MUTED, linewidth=0.8)
        links.set_title(look(name).title, color=colour, fontweight="bold", pad=20)
        verdict, ink = TRUST[report.jobs[name].verdict.trustworthy]
        links.text(0, 1.03, verdict, transform=links.transAxes, color=ink, fontsize=9)
        late.set_xlabel("seconds of the job")
        for axes in (links, cores, late):
            axes.set_xlim(0, float(samples.time_s[-1]) if len(samples.time_s) else 1.0)
            _plain(axes)
    rated = all(samples.rated for samples in jobs.values())
    rows[0, 0].set_ylabel("fullest link,\n% of its rate" if rated else "fullest link")
    rows[1, 0].set_ylabel("cores,\n% busy")
    rows[2, 0].set_ylabel("samples late,\nms")
    rows[1, 0].set_ylim(0, 104)
    if rated:
        rows[0, 0].set_ylim(0, 112)  # a sample that catches a burst is above the rate
    rows[2, 0].set_ylim(bottom=0)
    rows[1, 0].legend(
        loc="lower left", frameon=True, framealpha=0.85, edgecolor="none", fontsize=8, borderaxespad=0.2
    )
    figure.align_ylabels(rows[:, 0])
    _headline(figure, finding(report))
    figure.subplots_adjust(
        left=0.75 / figure.get_figwidth(), right=0.985, top=0.79, bottom=0.085, wspace=0.07, hspace=0.1
    )
    return figure


def finding(report: DemoReport) -> tuple[str, str]:
    """Title and explanation."""
    verdicts = {name: job.verdict.trustworthy for name, job in report.jobs.items()}
    doubtful = [name for name, trustworthy in verdicts.items() if trustworthy is False]
    if not doubtful:
        title = "The links, not the machine, set these results"
    elif len(doubtful) == len(verdicts):
        title = "The machine may have set these results"
    else:
        title = f"The machine may have set the results of {', '.join(doubtful)}"
    return (
        title,
        "Before the first traffic a job starts up, which takes every core: only the time with traffic is "
        "judged.",
    )


def _headline(figure: Figure, words: tuple[str, str]) -> None:
    height = figure.get_figheight()
    figure.text(0.012, 1 - 0.16 / height, words[0], fontsize=13, fontweight="bold", va="top")
    figure.text(0.012, 1 - 0.46 / height, words[1], fontsize=9.5, color=MUTED, va="top")


def _plain(axes: Axes) -> None:
    axes.grid(True, axis="y", color=FAINT)
    axes.tick_params(length=0)
