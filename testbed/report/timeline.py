"""Draw the samples of jobs over time: links above, cores below, lateness at the bottom. Imports matplotlib
only when it draws.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.messages.report import DemoReport
from testbed.messages.verdict import JobVerdict
from testbed.report.layout import arrange, beside, headline, named
from testbed.report.style import FAINT, INK, MUTED, look
from testbed.telemetry.series import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUSY, SOFTIRQ = 0, 1  # columns of `cores` in the file (testbed/telemetry/series.py)
MOST_CORES = 3  # up to so many have a line each
CORE_LOOKS = ((INK, "-"), ("#6B7785", "-"), ("#A9B4C0", "-"))
TRUST = {True: ("trustworthy", INK), False: ("not trustworthy", "#B42318"), None: ("no verdict", INK)}
SMOOTH_S = 0.5  # processor time is counted in ticks of up to 10 ms, a tenth of a sample

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A job's samples over time: shares of each core and of the fullest link's rate (Mb/s if links have
    none), and lateness in ms.
    """

    time_s: Floats
    busy: Floats
    softirq: Floats
    late_ms: Floats
    link_time_s: Floats
    link: Floats
    rated: bool

    @property
    def peak(self) -> float:
        """Return the highest share of a link's rate; 0 if links have none."""
        return float(self.link.max()) if self.rated and len(self.link) else 0.0

    @property
    def end_s(self) -> float:
        """Return when the last sample ended, in s."""
        return float(self.time_s[-1]) if len(self.time_s) else 1.0

    @property
    def lines(self) -> dict[str, Floats]:
        """Return the shares of the cores by label: of each core or, if there are many, of the busiest and the
        mean.
        """
        cores = self.busy.shape[1]
        if cores <= MOST_CORES:
            return {f"core {core}": self.busy[:, core] for core in range(cores)}
        return {"busiest core": self.busy.max(axis=1), f"mean of {cores} cores": self.busy.mean(axis=1)}

    @property
    def packets(self) -> list[Floats]:
        """Return the same cores' shares of time on packets; the mean if there are many."""
        cores = self.softirq.shape[1]
        if cores <= MOST_CORES:
            return [self.softirq[:, core] for core in range(cores)]
        return [self.softirq.mean(axis=1)]

    def heights(self) -> dict[str, float]:
        """Return each line's mean during traffic."""
        times = self._traffic_s()
        judged = (
            (self.time_s >= times[0]) & (self.time_s <= times[1]) if times else np.ones_like(self.time_s) > 0
        )
        return {
            label: float(line[judged].mean()) if judged.any() else 0.0 for label, line in self.lines.items()
        }

    def without_traffic(self) -> list[tuple[float, float]]:
        """Return the periods before the first traffic and after the last."""
        times = self._traffic_s()
        return [(0.0, times[0]), (times[1], self.end_s)] if times else [(0.0, self.end_s)]

    def _traffic_s(self) -> tuple[float, float] | None:
        """Return the times of the first and last traffic above 1 % of the maximum."""
        if not len(self.link) or not self.link.max():
            return None
        sent = self.link_time_s[self.link > 0.01 * self.link.max()]
        return float(sent[0]), float(sent[-1])

    @classmethod
    def read(cls, path: Path) -> Samples:
        """Read the .npz file of a job's samples (testbed/telemetry/series.py)."""
        series = Series.read(path)
        time_s, link_time_s = series.time_s.astype(float), series.link_time_s.astype(float)
        cores = smooth(time_s, series.cores.astype(float))
        rates = series.rates_mbps.astype(float)
        mbps = series.sent.max(axis=2) * 8e-6 / np.diff(link_time_s, prepend=0.0).clip(1e-3)[:, None]
        rated = bool((rates > 0).any())
        shares = mbps[:, rates > 0] / rates[rates > 0] if rated else mbps
        link = shares.max(axis=1) if shares.size else np.zeros(len(link_time_s))
        busy, softirq = cores[:, :, BUSY], cores[:, :, SOFTIRQ]
        return cls(time_s, busy, softirq, series.late_ms, link_time_s, link, rated)


def smooth(time_s: Floats, seconds: Floats) -> Floats:
    """Convert processor seconds by interval to shares of the time, averaged over about SMOOTH_S."""
    lengths = np.diff(time_s, prepend=0.0).clip(1e-3)
    width = max(1, min(len(lengths), round(SMOOTH_S / float(np.median(lengths))))) if len(lengths) else 1
    window = np.ones(width)
    sums = np.apply_along_axis(lambda column: np.convolve(column, window, "same"), 0, seconds)
    return (sums / np.convolve(lengths, window, "same")[:, None, None]).clip(0, 1)


def telemetry(report: DemoReport, series: Mapping[str, Path]) -> Figure:
    """Draw the figure, with a column for each job."""
    import matplotlib.pyplot as plt

    jobs = {name: Samples.read(path) for name, path in series.items() if name in report.jobs}
    figure, rows = plt.subplots(
        3, len(jobs), figsize=(max(6.0, 3.1 * len(jobs)) + 1.9, 6.9), sharex="col", sharey="row",
        squeeze=False, gridspec_kw={"height_ratios": (3, 3, 1.4)},
    )  # fmt: skip
    rated = all(samples.rated for samples in jobs.values())
    peak = max((samples.peak for samples in jobs.values()), default=0.0)
    for column, (name, samples) in enumerate(jobs.items()):
        links, cores, late = rows[:, column]
        colour, verdict = look(name).colour, report.jobs[name].verdict
        scale = 100.0 if samples.rated else 1.0
        links.fill_between(samples.link_time_s, samples.link * scale, color=colour, alpha=0.25, linewidth=0)
        marker = "o" if len(samples.time_s) == 1 else None  # a line of one point is invisible
        links.plot(samples.link_time_s, samples.link * scale, color=colour, linewidth=1.1, marker=marker)
        for label, busy in samples.lines.items():
            cores.plot(
                samples.time_s, busy * 100, label=label, linewidth=1.2, marker=marker, clip_on=marker is None
            )
        for packets in samples.packets:
            cores.fill_between(samples.time_s, packets * 100, color=colour, alpha=0.3, linewidth=0)
        late.vlines(samples.time_s, 0, samples.late_ms, color=MUTED, linewidth=0.8)
        links.set_title(named(name), color=colour, fontweight="bold", pad=20)
        trust, ink = TRUST[verdict.trustworthy]
        links.text(0, 1.03, trust, transform=links.transAxes, color=ink, fontsize=9)
        if samples.rated:
            links.axhline(100, color=INK, linewidth=0.9, linestyle="--")
            if is_above_rate(samples.peak):
                links.text(1, 1.03, f"highest {samples.peak:.0%}", transform=links.transAxes, ha="right",
                           color=MUTED, fontsize=9)  # fmt: skip
        late.set_xlabel("\n".join(("seconds of the job", *company(verdict))))
        for axes in (links, cores, late):
            axes.set_xlim(0, samples.end_s)
            for begin_s, end_s in samples.without_traffic():
                axes.axvspan(begin_s, end_s, color=FAINT, alpha=0.6, linewidth=0, zorder=0)
            _plain(axes)
    rows[0, 0].set_ylabel("fullest link,\n% of its rate" if rated else "fullest link,\nMb/s")
    rows[1, 0].set_ylabel("cores of the machine,\n% busy")
    rows[2, 0].set_ylabel("samples late,\nms")
    rows[1, 0].set_ylim(0, 104)
    if rated:
        rows[0, 0].set_ylim(0, max(112, 105 * peak))
    for axes in (rows[0, 0], rows[2, 0]):
        axes.set_ylim(bottom=0)
    _legends(rows, jobs, rated)
    figure.align_ylabels(rows[:, 0])
    arrange(figure, headline(figure, *finding(report, peak)))
    return figure


def _legends(rows: Any, jobs: Mapping[str, Samples], rated: bool) -> None:
    """Put legends beside the last column, ordered from the highest curve to the lowest."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colours = [look(name).colour for name in jobs]
    fills = tuple(Patch(color=colour, alpha=0.3, linewidth=0) for colour in colours)
    heights: dict[str, list[float]] = {}
    for samples in jobs.values():
        for label, height in samples.heights().items():
            heights.setdefault(label, []).append(height)
    ordered = sorted(heights, key=lambda label: -float(np.mean(heights[label])))
    lines = {label: Line2D([], [], linewidth=1.2) for label in ordered}
    for order, label in enumerate(ordered):
        colour, style = CORE_LOOKS[order % len(CORE_LOOKS)]
        lines[label].set(color=colour, linestyle=style)
        for axes in rows[1]:
            for line in axes.get_lines():
                if line.get_label() == label:
                    line.set(color=colour, linestyle=style)
    beside(rows[1, -1], lines | {"of it, on packets": fills}, "by all programs")
    if rated:
        rate = Line2D([], [], color=INK, linewidth=0.9, linestyle="--")
        beside(
            rows[0, -1],
            {"the link's rate": rate, "sent": fills, "no traffic: not judged": Patch(color=FAINT)},
        )


def is_above_rate(share: float) -> bool:
    """Return whether a link is above its rate by more than rounding hides."""
    return share >= 1.005


def company(verdict: JobVerdict) -> list[str]:
    """Return the verdict's lines on other programs and testbeds on the machine."""
    texts = [each.text for each in (*verdict.reasons, *verdict.notes) if each.name == "company"]
    return [line for text in texts for line in textwrap.wrap(text, 34)]


def finding(report: DemoReport, peak: float = 0.0) -> tuple[str, str]:
    """Make the title and the explanation; `peak` is the highest share of a link's rate."""
    verdicts = {name: job.verdict.trustworthy for name, job in report.jobs.items()}
    doubtful = [name for name, trustworthy in verdicts.items() if trustworthy is False]
    if not any(trustworthy is not None for trustworthy in verdicts.values()):
        title = "Links, cores and samples over time; no job has a verdict"
    elif not doubtful:
        title = "The links, not the machine, set these results"
    elif len(doubtful) == len(verdicts):
        title = "The machine may have set these results"
    else:
        title = f"The machine may have set the results of {', '.join(doubtful)}"
    detail = (
        "Before the first traffic a job starts up, which takes every core: only the time with traffic is "
        "judged. Cores are busy for all programs of the machine, not for the job alone."
    )
    if is_above_rate(peak):
        detail += (
            f" Up to {peak:.0%} of a rate: after a pause a link may send a burst at once, and a sample is "
            "short; over a longer time it keeps its rate."
        )
    return title, detail


def _plain(axes: Axes) -> None:
    axes.grid(True, axis="y", color=FAINT)
    axes.tick_params(length=0)
