"""Pictures of table 2 and figures 5 to 8 in the style of the paper's. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.aleph.micro.claims import cores_for
from reproductions.aleph.micro.report import MicroReport
from reproductions.aleph.micro.rows import AnyRow, CopyRow, RoundTripRow, SumRow, known
from reproductions.aleph.micro.tables import medians, title_of
from reproductions.claims import tally
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "xdp-native": "#0072B2",
    "xdp": "#0072B2",
    "xdp-generic": "#56B4E9",
    "xdp-socket": "#56B4E9",
    "tcp": "#D55E00",
    "tcp-packet": "#8C3B00",
    "tcp-gro": "#E69F00",
    "ps": "#A34F8A",
}
PAPER_FIG5 = {"xdp-native": {1: 17.0, 8: 80.0}, "xdp-generic": {8: 60.0}, "tcp": {1: 1.6, 8: 10.0}}
PAPER_TABLE2 = {"xdp-native": {5.0: 0.3, 10.0: 0.6}, "tcp": {5.0: 3.5, 10.0: 7.5}}
PAPER_FIG7 = {"xdp": ((1, 233), (1.5e6, 42)), "tcp": ((1, 569), (1.5e6, 94))}
_TICKS = (1, 2, 5, 10, 20, 50, 100)
PAPER_FIG8 = {"xdp-native": 10.0, "tcp": 5.0}
"""Gb/s per core: the paper's 80 and 40 Gb/s of 8 cores."""


def draw_sums(report: MicroReport[SumRow], path: Path) -> None:
    """Write table 2 or figure 5 or 6 as a PNG."""
    _draw(report, {"table2": _table2, "fig5": _fig5, "fig6": _fig6}[report.figure], path)


def draw_copies(report: MicroReport[CopyRow], path: Path) -> None:
    """Write figure 8 as a PNG."""
    _draw(report, _fig8, path)


def draw_round_trips(report: MicroReport[RoundTripRow], path: Path) -> None:
    """Write figure 7 as a PNG."""
    _draw(report, _fig7, path)


def _draw(
    report: MicroReport[AnyRow], draw: Callable[[Axes, Sequence[AnyRow], int], None], path: Path
) -> None:
    with drawing() as plt:
        figure, axes = plt.subplots(figsize=(10, 5))
        draw(axes, medians(report.rows), report.gradients)
        headline(figure, report, *_words(report), report.rows)
        axes.grid(True, axis="y")
        figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
        figure.subplots_adjust(left=0.095, right=0.68, top=0.84, bottom=0.12)
        save(plt, figure, path)


def _words(report: MicroReport[AnyRow]) -> tuple[str, str]:
    finding = {
        "table2": "CPU cores that a rate of aggregation takes",
        "fig5": "Aggregation throughput by cores of the head",
        "fig6": "Loss by the load of the head's core",
        "fig7": "Time of one packet, there and back",
        "fig8": "Copies by the load of the head's core",
    }[report.figure]
    trusted = report.trust
    detail = f"{report.cores} cores, veth, medians of {report.rounds}; {tally(report.claims)}"
    detail += "; crosses: the paper's"
    if trusted.of:
        detail += f"; trustworthy: {trusted.trustworthy} of {trusted.of} measurements"
    return finding, detail


def _lines(
    axes: Axes,
    rows: Sequence[AnyRow],
    gradients: int,
    point: Callable[[AnyRow], tuple[float, float]],
    *,
    by_x: bool = False,
) -> None:
    """Draw a line through the points of each title, in the order of the rows or from left to right. A size of
    packets other than `gradients` has dashes and squares.
    """
    by: dict[str, list[AnyRow]] = {}
    for row in rows:
        by.setdefault(title_of(row), []).append(row)
    for title, series in by.items():
        lanes = None if isinstance(series[0], RoundTripRow) else known(series[0].lanes)
        is_long = bool(lanes) and lanes != gradients
        points = [point(row) for row in series]
        axes.plot(
            *zip(*(sorted(points, key=lambda each: each[0]) if by_x else points), strict=True),
            label=title,
            color=COLOURS[series[0].case],
            linestyle="--" if is_long else "-",
            marker="s" if is_long else "o",
        )


def _fig5(axes: Axes, rows: Sequence[SumRow], gradients: int) -> None:
    summing = [row for row in rows if row.program != "take_only"]
    _lines(axes, summing, gradients, lambda row: (row.cores, row.gbps_per_core * row.cores))
    for case, points in PAPER_FIG5.items():
        axes.plot(list(points), list(points.values()), "x", color=COLOURS[case], markersize=9)
    axes.set_yscale("log")
    axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.minorticks_off()
    axes.set_xlabel("cores (ours as if they did nothing else)")
    axes.set_ylabel("Gb/s of gradients")


def _table2(axes: Axes, rows: Sequence[SumRow], _: int) -> None:
    bars = [row for row in rows if known(row.target_gbps) is None]
    for at, row in enumerate(bars):
        for side, target in ((-0.2, 5.0), (0.2, 10.0)):
            cores = cores_for(rows, target, row.case, known(row.lanes))
            paper = PAPER_TABLE2.get(row.case, {}).get(target)
            alpha = 1.0 if target > 5 else 0.55
            if cores:
                label = title_of(row) if target > 5 else None
                axes.bar(at + side, cores[0], 0.36, color=COLOURS[row.case], alpha=alpha, label=label)
            if paper:
                axes.plot(at + side, paper, "x", color=MUTED, markersize=9)
    axes.set_xticks(range(len(bars)), ["5 | 10\nGb/s"] * len(bars))
    axes.set_ylabel("CPU cores")


def _fig6(axes: Axes, rows: Sequence[SumRow], gradients: int) -> None:
    loaded = [row for row in rows if known(row.offered) is not None]
    _lines(axes, loaded, gradients, lambda row: (100 * row.load, 100 * row.loss), by_x=True)
    for case, loss in (("xdp-native", 0.1), ("xdp-generic", 0.2)):
        axes.plot(95, loss, "x", color=COLOURS[case], markersize=9)
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("load of the head's core, %")
    axes.set_ylabel("packets lost, %")


def _fig7(axes: Axes, rows: Sequence[RoundTripRow], gradients: int) -> None:
    answered = [row for row in rows if row.median_us]
    _lines(axes, answered, gradients, lambda row: (row.per_s, row.median_us or 0.0))
    for case, points in PAPER_FIG7.items():
        axes.plot(*zip(*points, strict=True), "x", color=COLOURS[case], markersize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("packets a second")
    axes.set_ylabel("us, median")


def _fig8(axes: Axes, rows: Sequence[CopyRow], gradients: int) -> None:
    _lines(axes, rows, gradients, lambda row: (row.gbps, 100 * row.load), by_x=True)
    for case, rate in PAPER_FIG8.items():
        axes.plot(rate, 100, "x", color=COLOURS[case], markersize=9)
    axes.set_ylim(0, 108)
    axes.set_xlabel("Gb/s of gradients, all copies (the paper's: of one of its 8 cores)")
    axes.set_ylabel("load of the head's core, %")
