"""Figures 14 to 16 as figures of the paper: options, runs, claims. Imports nothing heavy before it is asked
for something.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.aggregation.figure import Report
from testbed.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console

VERSION = 1
TIMEOUTS_MS, QUICK_TIMEOUTS_MS = (1.0, 2.0, 5.0, 10.0, 20.0), (1.0, 20.0)
SIZES, QUICK_SIZES = (64, 128, 256, 512, 1024), (64, 1024)
WINDOWS, QUICK_WINDOWS = (1, 4, 16, 64, 256, 1024, 4096), (1, 256)
PACKETS, QUICK_PACKETS = 10_000, 500


@dataclass(frozen=True, slots=True)
class PacketPlan:
    """The usual number of runs of a figure, and with --quick; its words."""

    runs: int
    quick_runs: int
    about: str


PLANS: Mapping[str, PacketPlan] = {
    "fig14": PacketPlan(10, 2, "packets that age out, by timeout"),
    "fig15": PacketPlan(20, 2, "latency and rate by gradients a packet, one under way"),
    "fig16": PacketPlan(5, 2, "latency and throughput by window"),
}


@dataclass(frozen=True, slots=True)
class PacketsFigure:
    """Runs the paper's experiment on a testbed that the command brings up and ends. What was chosen, and why:
    docs/trio.md.
    """

    name: str

    @property
    def on_testbed(self) -> bool:
        return True

    def options(self, parser: argparse.ArgumentParser) -> None:
        plan = PLANS[self.name]
        parser.add_argument(
            "--quick", action="store_true", help="the smallest experiment that shows something"
        )
        parser.add_argument("--runs", type=int, metavar="N", help=f"of each setting ({plan.runs})")
        if self.name != "fig14":
            parser.add_argument("--packets", type=int, metavar="N", help=f"of a run ({PACKETS})")

    def check(self, options: argparse.Namespace) -> None:
        from reproductions.trio.packets.runs import MOST_AGED_RUNS

        plan = PLANS[self.name]
        options.runs = _or(options.runs, plan.quick_runs if options.quick else plan.runs)
        most = MOST_AGED_RUNS if self.name == "fig14" else 1000
        if not 1 <= options.runs <= most:
            raise RequestError(f"--runs {options.runs}: 1 to {most} are accepted")
        if self.name != "fig14":
            options.packets = _or(options.packets, QUICK_PACKETS if options.quick else PACKETS)
            least = max(QUICK_WINDOWS if options.quick else WINDOWS) if self.name == "fig16" else 1
            if not least <= options.packets <= 100_000:
                raise RequestError(f"--packets {options.packets}: {least} to 100000 are accepted")

    def lasts_s(self, options: argparse.Namespace) -> float:
        """Return about how many seconds it takes, the load around each run included."""
        if self.name == "fig14":
            return 2 * len(QUICK_TIMEOUTS_MS if options.quick else TIMEOUTS_MS) * 5.0
        return len(self._settings(options.quick)) * 8.0

    def run(self, options: argparse.Namespace, out: Path) -> dict[str, Any]:
        from reproductions.live import runs_folder
        from reproductions.progress import progress
        from reproductions.trio.packets import runs

        folder, title = runs_folder(out, self.name), f"figure {self.name.removeprefix('fig')}"
        if self.name == "fig14":
            timeouts_ms = QUICK_TIMEOUTS_MS if options.quick else TIMEOUTS_MS
            with progress(title, 2 * len(timeouts_ms), lines=True) as on_done:
                rows = runs.aged(timeouts_ms, options.runs, folder, on_done)
        else:
            settings = self._settings(options.quick)
            with progress(title, len(settings), lines=True) as on_done:
                rows = runs.streamed(self.name, settings, options.packets, options.runs, folder, on_done)
        return {"version": VERSION, "about": PLANS[self.name].about, "runs": options.runs, "rows": rows}

    def _settings(self, quick: bool) -> list[tuple[int, int]]:
        """Return gradients of a packet and window of each setting."""
        if self.name == "fig15":
            return [(size, 1) for size in (QUICK_SIZES if quick else SIZES)]
        return [(size, window) for size in (512, 1024) for window in (QUICK_WINDOWS if quick else WINDOWS)]

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        from reproductions.trio.packets import claims

        return claims.of(self.name, report["rows"])

    def show(self, report: Report, console: Console) -> None:
        from reproductions.trio.packets import tables

        tables.show(report, console)

    def draw(self, report: Report, path: Path) -> None:
        from reproductions.trio.packets import plots

        plots.draw(report, path)


def _or(asked: int | None, usual: int) -> int:
    return usual if asked is None else asked
