"""Figure 12 as a figure of the paper: options, runs, claims. Imports nothing heavy before it is asked for
something.
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
SEEDS, QUICK_SEEDS = 5, 1
ITERATIONS, QUICK_ITERATIONS = 60, 20
TARGET, QUICK_TARGET = 0.90, 0.50


@dataclass(frozen=True, slots=True)
class AccuracyFigure:
    """Train a model to a stated accuracy on a testbed that the command brings up and ends. What was chosen,
    and why: docs/trio.md.
    """

    name: str = "fig12"

    @property
    def on_testbed(self) -> bool:
        return True

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--quick", action="store_true", help="the smallest experiment that shows something"
        )
        parser.add_argument("--seeds", type=int, metavar="N", help=f"of models and delays ({SEEDS})")
        parser.add_argument("--iterations", type=int, metavar="N", help=f"of each job ({ITERATIONS})")
        parser.add_argument("--target", type=float, metavar="SHARE", help=f"the accuracy ({TARGET:g})")

    def check(self, options: argparse.Namespace) -> None:
        usual = (
            (QUICK_SEEDS, QUICK_ITERATIONS, QUICK_TARGET) if options.quick else (SEEDS, ITERATIONS, TARGET)
        )
        for key, value in zip(("seeds", "iterations", "target"), usual, strict=True):
            if getattr(options, key) is None:
                setattr(options, key, value)
        for key, low, high in (("seeds", 1, 100), ("iterations", 10, 10_000), ("target", 0.2, 1)):
            value = getattr(options, key)
            if not low <= value <= high:
                raise RequestError(f"--{key} {value}: {low} to {high} are accepted")

    def lasts_s(self, options: argparse.Namespace) -> float:
        """Return about how many seconds its runs take: 15 of 60 iterations took eleven minutes."""
        return float(3 * options.seeds * (20.0 + 0.4 * options.iterations))

    def run(self, options: argparse.Namespace, out: Path) -> dict[str, Any]:
        from reproductions.live import runs_folder, trust
        from reproductions.progress import progress
        from reproductions.trio.accuracy import runs

        folder = runs_folder(out, self.name)
        with progress("figure 12", 3 * options.seeds, lines=True) as on_done:
            rows, typical_ms = runs.measure(range(1, options.seeds + 1), options.iterations, folder, on_done)
        settings = {key: getattr(options, key) for key in ("seeds", "iterations", "target")}
        settings |= {"typical_ms": typical_ms, "compute_ms": runs.compute_ms()}
        return {"version": VERSION, "rows": rows, "trust": trust(rows), **settings}

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        from reproductions.trio.accuracy import claims

        return claims.of(report["rows"], report["target"])

    def show(self, report: Report, console: Console) -> None:
        from reproductions.trio.accuracy import tables

        tables.show(report, console)

    def draw(self, report: Report, path: Path) -> None:
        from reproductions.trio.accuracy import plots

        plots.draw(report, path)
