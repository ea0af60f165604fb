"""Pictures of table 2 and figures 5 to 8 in the style of the paper's. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproductions.aleph.micro.claims import cores_for
from reproductions.aleph.micro.tables import Row, medians, title_of
from reproductions.claims import Finding, tally
from reproductions.reports import FigureReport
from testbed.figures.verdict_gate import JudgedRow, headline
from testbed.messages.coding import decode
from testbed.report.plots import drawing, save
from testbed.report.style import MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Report = Mapping[str, Any]
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


def draw(report: Report, path: Path) -> None:
    """Write a figure's report as a PNG."""
    draws = {"table2": _table2, "fig5": _fig5, "fig6": _fig6, "fig7": _fig7, "fig8": _fig8}
    with drawing() as plt:
        figure, axes = plt.subplots(figsize=(10, 5))
        draws[report["figure"]](axes, medians(report["rows"]), report)
        stamp = FigureReport(figure=report["figure"], live=report.get("live", False))
        headline(figure, stamp, *_words(report), [JudgedRow.of(row) for row in report["rows"]])
        axes.grid(True, axis="y")
        figure.legend(loc="outside right center", frameon=False, fontsize=8.5)
        figure.subplots_adjust(left=0.095, right=0.68, top=0.84, bottom=0.12)
        save(plt, figure, path)


def _words(report: Report) -> tuple[str, str]:
    finding = {
        "table2": "CPU cores that a rate of aggregation takes",
        "fig5": "Aggregation throughput by cores of the head",
        "fig6": "Loss by the load of the head's core",
        "fig7": "Time of one packet, there and back",
        "fig8": "Copies by the load of the head's core",
    }[report["figure"]]
    trusted = report["trust"]
    claims = decode(tuple[Finding, ...], report["claims"], "claims")
    detail = f"{report['cores']} cores, veth, medians of {report['rounds']}; {tally(claims)}"
    detail += "; crosses: the paper's"
    if trusted["of"]:
        detail += f"; trustworthy: {trusted['trustworthy']} of {trusted['of']} measurements"
    return finding, detail


def _style(row: Row, report: Report) -> dict[str, Any]:
    long = row.get("lanes") and row["lanes"] != report["gradients"]
    return {"color": COLOURS[row["case"]], "linestyle": "--" if long else "-", "marker": "s" if long else "o"}


def _series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    by: dict[str, list[Row]] = {}
    for row in rows:
        by.setdefault(title_of(row), []).append(row)
    return by


def _fig5(axes: Axes, rows: Sequence[Row], report: Report) -> None:
    for title, series in _series([row for row in rows if row.get("program") != "take_only"]).items():
        cores = [row["cores"] for row in series]
        axes.plot(
            cores,
            [row["gbps_per_core"] * row["cores"] for row in series],
            label=title,
            **_style(series[0], report),
        )
    for case, points in PAPER_FIG5.items():
        axes.plot(list(points), list(points.values()), "x", color=COLOURS[case], markersize=9)
    axes.set_yscale("log")
    axes.set_yticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.minorticks_off()
    axes.set_xlabel("cores (ours as if they did nothing else)")
    axes.set_ylabel("Gb/s of gradients")


def _table2(axes: Axes, rows: Sequence[Row], report: Report) -> None:
    bars = [row for row in rows if row.get("target_gbps") is None]
    for at, row in enumerate(bars):
        for side, target in ((-0.2, 5.0), (0.2, 10.0)):
            cores = cores_for(rows, target, row["case"], row.get("lanes"))
            paper = PAPER_TABLE2.get(row["case"], {}).get(target)
            alpha = 1.0 if target > 5 else 0.55
            if cores:
                label = title_of(row) if target > 5 else None
                axes.bar(at + side, cores[0], 0.36, color=COLOURS[row["case"]], alpha=alpha, label=label)
            if paper:
                axes.plot(at + side, paper, "x", color=MUTED, markersize=9)
    axes.set_xticks(range(len(bars)), ["5 | 10\nGb/s"] * len(bars))
    axes.set_ylabel("CPU cores")


def _fig6(axes: Axes, rows: Sequence[Row], report: Report) -> None:
    for title, series in _series([row for row in rows if row["offered"] is not None]).items():
        ordered = sorted(series, key=lambda row: float(row["load"]))
        loads = [100 * row["load"] for row in ordered]
        axes.plot(loads, [100 * row["loss"] for row in ordered], label=title, **_style(series[0], report))
    for case, loss in (("xdp-native", 0.1), ("xdp-generic", 0.2)):
        axes.plot(95, loss, "x", color=COLOURS[case], markersize=9)
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("load of the head's core, %")
    axes.set_ylabel("packets lost, %")


def _fig7(axes: Axes, rows: Sequence[Row], report: Report) -> None:
    for title, series in _series([row for row in rows if row["median_us"]]).items():
        rates = [row["per_s"] for row in series]
        axes.plot(rates, [row["median_us"] for row in series], label=title, **_style(series[0], report))
    for case, points in PAPER_FIG7.items():
        axes.plot(*zip(*points, strict=True), "x", color=COLOURS[case], markersize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("packets a second")
    axes.set_ylabel("us, median")


def _fig8(axes: Axes, rows: Sequence[Row], report: Report) -> None:
    for title, series in _series(rows).items():
        ordered = sorted(series, key=lambda row: float(row["gbps"]))
        rates = [row["gbps"] for row in ordered]
        axes.plot(rates, [100 * row["load"] for row in ordered], label=title, **_style(series[0], report))
    for case, rate in PAPER_FIG8.items():
        axes.plot(rate, 100, "x", color=COLOURS[case], markersize=9)
    axes.set_ylim(0, 108)
    axes.set_xlabel("Gb/s of gradients, all copies (the paper's: of one of its 8 cores)")
    axes.set_ylabel("load of the head's core, %")
