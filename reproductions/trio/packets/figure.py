"""Figures 14 to 16 as experiments. Heavy modules are imported only when a figure is used."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption
from testbed.errors import RequestError

if TYPE_CHECKING:
    from reproductions.claims import Finding
    from reproductions.trio.packets.runs import AgedReport, StreamReport

VERSION = 1
TIMEOUTS_MS, QUICK_TIMEOUTS_MS = (1.0, 2.0, 5.0, 10.0, 20.0), (1.0, 20.0)
SIZES, QUICK_SIZES = (64, 128, 256, 512, 1024), (64, 1024)
WINDOWS, QUICK_WINDOWS = (1, 4, 16, 64, 256, 1024, 4096), (1, 256)
PACKETS, QUICK_PACKETS = 10_000, 500


@dataclass(frozen=True, slots=True)
class PacketPlan:
    """The number of runs of a figure, usually and with --quick, and its title."""

    runs: int
    quick_runs: int
    about: str


PLANS: Mapping[str, PacketPlan] = {
    "fig14": PacketPlan(10, 2, "packets that age out, by timeout"),
    "fig15": PacketPlan(20, 2, "latency and rate by gradients a packet, one under way"),
    "fig16": PacketPlan(5, 2, "latency and throughput by window"),
}


def _complete(figure: str, options: Namespace) -> None:
    from reproductions.trio.packets.runs import MOST_AGED_RUNS

    most = MOST_AGED_RUNS if figure == "fig14" else 1000
    if not 1 <= options.runs <= most:
        raise RequestError(f"--runs {options.runs}: 1 to {most} are accepted")
    if figure != "fig14":
        least = max(QUICK_WINDOWS if options.quick else WINDOWS) if figure == "fig16" else 1
        if not least <= options.packets <= 100_000:
            raise RequestError(f"--packets {options.packets}: {least} to 100000 are accepted")


def _estimate_s(figure: str, options: Namespace) -> float:
    """Estimate how many seconds a figure takes, including the load samples around each run."""
    if figure == "fig14":
        return 2 * len(QUICK_TIMEOUTS_MS if options.quick else TIMEOUTS_MS) * 5.0
    return len(_settings(figure, options.quick)) * 8.0


def _aged(figure: str, options: Namespace, out: Path) -> AgedReport:
    from reproductions.live import runs_folder
    from reproductions.progress import progress
    from reproductions.trio.packets import runs

    timeouts_ms = QUICK_TIMEOUTS_MS if options.quick else TIMEOUTS_MS
    folder = runs_folder(out, figure)
    with progress("figure 14", 2 * len(timeouts_ms), lines=True) as on_done:
        rows = runs.aged(timeouts_ms, options.runs, folder, on_done)
    return runs.AgedReport(VERSION, PLANS[figure].about, options.runs, rows)


def _streamed(figure: str, options: Namespace, out: Path) -> StreamReport:
    from reproductions.live import runs_folder
    from reproductions.progress import progress
    from reproductions.trio.packets import runs

    folder, settings = runs_folder(out, figure), _settings(figure, options.quick)
    with progress(f"figure {figure.removeprefix('fig')}", len(settings), lines=True) as on_done:
        rows = runs.streamed(figure, settings, options.packets, options.runs, folder, on_done)
    return runs.StreamReport(VERSION, PLANS[figure].about, options.runs, rows)


def _settings(figure: str, quick: bool) -> list[tuple[int, int]]:
    """Return the gradients per packet and the window of each setting."""
    if figure == "fig15":
        return [(size, 1) for size in (QUICK_SIZES if quick else SIZES)]
    return [(size, window) for size in (512, 1024) for window in (QUICK_WINDOWS if quick else WINDOWS)]


def _aged_claims(_: str, report: AgedReport) -> list[Finding]:
    from reproductions.trio.packets import claims

    return claims.of_aged(report.rows)


def _stream_claims(figure: str, report: StreamReport) -> list[Finding]:
    from reproductions.trio.packets import claims

    return claims.of_streams(figure, report.rows)


def _aged_chart() -> Chart[AgedReport]:
    from reproductions.trio.packets import plots, runs, tables

    return Chart(runs.AgedReport, tables.show_aged, plots.draw_aged)


def _stream_chart() -> Chart[StreamReport]:
    from reproductions.trio.packets import plots, runs, tables

    return Chart(runs.StreamReport, tables.show_streams, plots.draw_streams)


def _declared(figure: str) -> tuple[ExperimentOption, ...]:
    plan = PLANS[figure]
    runs = ExperimentOption("runs", f"of each setting ({plan.runs})", usual=plan.runs, quick=plan.quick_runs)
    packets = ExperimentOption("packets", f"of a run ({PACKETS})", usual=PACKETS, quick=QUICK_PACKETS)
    return (QUICK, runs) if figure == "fig14" else (QUICK, runs, packets)


_ABOUT = (
    "Runs the paper's experiment on a testbed that the command brings up and ends. What was chosen, and why: "
    "docs/trio.md."
)
EXPERIMENTS = (
    Experiment(
        name="fig14",
        on_testbed=True,
        about=_ABOUT,
        declared=_declared("fig14"),
        rows=_aged,
        findings=_aged_claims,
        chart=_aged_chart,
        complete=_complete,
        estimate_s=_estimate_s,
    ),
    *(
        Experiment(
            name=name,
            on_testbed=True,
            about=_ABOUT,
            declared=_declared(name),
            rows=_streamed,
            findings=_stream_claims,
            chart=_stream_chart,
            complete=_complete,
            estimate_s=_estimate_s,
        )
        for name in ("fig15", "fig16")
    ),
)
