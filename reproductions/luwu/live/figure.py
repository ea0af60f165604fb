"""Figures 2 to 4 and 16, and live runs beside the predictions of figures 10, 14 and 15: options, runs,
claims. Imports nothing heavy before it is asked for something.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.aggregation.figure import Report
from testbed.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from reproductions.luwu.live.runs import LiveRun

VERSION = 1
PLANS: Mapping[str, str] = {
    "fig2": "an iteration by phase, and bytes on links",
    "fig3": "communication that is serialised with computing, by micro-batch",
    "fig4": "an iteration of DDP that sums in the switch",
    "fig10-live": "a worker's memory by the model's size",
    "fig14-live": "throughput by the number of workers",
    "fig15-live": "an iteration by the number of disks",
    "fig16": "loss curves of LuWu and FSDP",
    "fsdp": "an iteration by blocks, beside FSDP as it is over gloo, and tuned",
}
SEEDS, QUICK_SEEDS = 3, 1
ITERATIONS, QUICK_ITERATIONS = 1000, 20
FAST_SCALE = 100
"""Links that two cores cannot fill, where nothing is timed."""
UNTIMED = ("fig10-live", "fig16")


@dataclass(frozen=True, slots=True)
class TrainingFigure:
    """Train a byte-level model of OPT's shape on a testbed that the command brings up and ends, by LuWu and
    by what it is compared with. What was chosen, and why: docs/studies/luwu.md.
    """

    name: str

    @property
    def on_testbed(self) -> bool:
        return True

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--quick", action="store_true", help="the smallest experiment that shows something"
        )
        if self.name == "fig16":
            parser.add_argument("--seeds", type=int, metavar="N", help=f"of models and batches ({SEEDS})")
            parser.add_argument("--iterations", type=int, metavar="N", help=f"of each job ({ITERATIONS})")

    def check(self, options: argparse.Namespace) -> None:
        if self.name != "fig16":
            return
        usual = (QUICK_SEEDS, QUICK_ITERATIONS) if options.quick else (SEEDS, ITERATIONS)
        for key, value in zip(("seeds", "iterations"), usual, strict=True):
            if getattr(options, key) is None:
                setattr(options, key, value)
        for key, low, high in (("seeds", 1, 100), ("iterations", 5, 100_000)):
            value = getattr(options, key)
            if not low <= value <= high:
                raise RequestError(f"--{key} {value}: {low} to {high} are accepted")

    def lasts_s(self, options: argparse.Namespace) -> float:
        """Return about how many seconds its runs take."""
        a_run_s = 0.1 * options.iterations if self.name == "fig16" else 20.0
        return len(self._asked(options)) * (15.0 + a_run_s)

    def run(self, options: argparse.Namespace, out: Path) -> dict[str, Any]:
        from reproductions.live import runs_folder, trust
        from reproductions.luwu.live import runs, setting
        from reproductions.progress import progress

        asked = self._asked(options)
        scale = FAST_SCALE if self.name in UNTIMED else setting.SCALE
        folder = runs_folder(out, self.name)
        with progress(f"luwu {self.name}", len(asked), lines=True) as on_done:
            rows = runs.measure(self.name, asked, scale, folder, on_done)
        if self.name not in UNTIMED:
            runs.predicted(rows, scale)
        about = {"version": VERSION, "about": PLANS[self.name], "quick": options.quick, "scale": scale}
        return {**about, "rows": rows, "trust": trust(rows)}

    def _asked(self, options: argparse.Namespace) -> list[LiveRun]:
        from reproductions.luwu.live import runs

        if self.name == "fig16":
            return runs.convergence(options.seeds, options.iterations)
        return runs.PLANS[self.name](options.quick)

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        from reproductions.luwu.live.claims import findings

        return [asdict(finding) for finding in findings(self.name, report["rows"])]

    def show(self, report: Report, console: Console) -> None:
        from reproductions.luwu.live import tables

        tables.show(report, console)

    def draw(self, report: Report, path: Path) -> None:
        from reproductions.luwu.live import plots

        plots.draw(report, path)
