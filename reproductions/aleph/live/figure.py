"""Table 1 and figures 9 to 12 as figures of the paper: options, runs, claims. Imports nothing heavy before
it is asked for something.
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

VERSION = 2
TRAINING = ("fig9", "fig10", "fig11")
"""These are of the same runs: each prints and draws all of them."""


@dataclass(frozen=True, slots=True)
class OnTestbed:
    """Run the paper's experiment on a testbed that the command brings up and ends. Figures 9 to 11 are of the
    same runs: each prints and draws all three. What was chosen, and why: docs/aleph.md.
    """

    name: str

    @property
    def on_testbed(self) -> bool:
        return True

    def options(self, parser: argparse.ArgumentParser) -> None:
        usual = _usual_scale(self.name)
        parser.add_argument(
            "--quick", action="store_true", help="the smallest experiment that shows something"
        )
        parser.add_argument(
            "--scale", type=int, default=usual, metavar="N", help=f"links are divided by it ({usual})"
        )
        parser.add_argument(
            "--iterations", type=int, metavar="N", help="of each job" + _iterations_mean(self.name)
        )
        if self.name in TRAINING:
            parser.add_argument("--models", metavar="A,B", help="of resnet50, vgg19, bert")
            parser.add_argument(
                "--computing", action="store_true", help="each run once more with computing times declared"
            )

    def check(self, options: argparse.Namespace) -> None:
        if options.iterations is None:
            options.iterations = _usual_iterations(self.name, options.quick)
        least = 3 if self.name != "fig12" else 1
        for name, (low, high) in {"iterations": (least, 10_000), "scale": (1, 100_000)}.items():
            value = getattr(options, name)
            if not low <= value <= high:
                raise RequestError(f"--{name} {value}: {low} to {high} are accepted")
        if self.name in TRAINING:
            options.models = _models(options.models, options.quick)

    def lasts_s(self, options: argparse.Namespace) -> float:
        """Return about how many seconds its runs take: starting workers, and their sums."""
        from reproductions.aleph.live import training

        if self.name not in TRAINING:
            return float(3 * (15.0 + options.iterations * (1.0 if self.name == "table1" else 5.0)))
        return float(training.count(options.models, options.computing) * (15.0 + options.iterations))

    def run(self, options: argparse.Namespace, out: Path) -> dict[str, Any]:
        from reproductions.live import runs_folder, trust

        runs = runs_folder(out, self.name)
        rows = _rows(self.name, options, runs)
        settings = {"scale": options.scale, "iterations": options.iterations}
        return {"version": VERSION, "rows": rows, "trust": trust(rows), **settings}

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        from reproductions.aleph.live import accuracy, example, training

        of = {"table1": example.claims, "fig12": accuracy.claims}
        return of.get(self.name, training.claims)(report["rows"])

    def show(self, report: Report, console: Console) -> None:
        from reproductions.aleph.live import tables

        tables.show(report, console)

    def draw(self, report: Report, path: Path) -> None:
        from reproductions.aleph.live import plots

        plots.draw(report, path)


def _usual_scale(figure: str) -> int:
    return 200 if figure == "table1" else 400


def _usual_iterations(figure: str, quick: bool) -> int:
    if figure == "fig12":
        return 2 if quick else 7
    return 5 if quick else 12


def _iterations_mean(figure: str) -> str:
    return " (7): here an epoch of 12 sums" if figure == "fig12" else " (12)"


def _models(asked: str | None, quick: bool) -> list[str]:
    """Return the models asked for. RequestError for one that there is not."""
    from reproductions.aleph.live.training import MODELS

    if asked is None:
        return list(MODELS[:1] if quick else MODELS)
    chosen = list(dict.fromkeys(word.strip() for word in asked.split(",") if word.strip()))
    for model in chosen or [asked]:
        if model not in MODELS:
            raise RequestError(f"--models {model}: accepted are {', '.join(MODELS)}")
    return chosen


def _rows(figure: str, options: argparse.Namespace, runs: Path) -> list[dict[str, Any]]:
    from reproductions.aleph.live import accuracy, example, training
    from reproductions.progress import progress

    if figure == "table1":
        with progress("table 1", 3, lines=True) as on_done:
            return example.measure(options.scale, options.iterations, runs, on_done)
    if figure == "fig12":
        with progress("figure 12", 3, lines=True) as on_done:
            return accuracy.measure(options.iterations, options.scale, runs, on_done)
    models, computing = options.models, options.computing
    with progress("figures 9 to 11", training.count(models, computing), lines=True) as on_done:
        return training.measure(models, options.iterations, options.scale, computing, runs, on_done)
