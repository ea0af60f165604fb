"""Figure 13 as a figure of the paper: options, runs, claims. Imports nothing heavy before it is asked for
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
SCALE = 1000
USUAL_P, QUICK_P = (0.0, 0.04, 0.08, 0.16), (0.0, 0.16)


@dataclass(frozen=True, slots=True)
class SlowWorkersFigure:
    """Run the paper's experiment on a testbed that the command brings up and ends. What was chosen, and why:
    docs/trio.md.
    """

    name: str = "fig13"

    @property
    def on_testbed(self) -> bool:
        return True

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--quick", action="store_true", help="the smallest experiment that shows something"
        )
        parser.add_argument("--models", metavar="A,B", help="of resnet50, vgg11, densenet161")
        parser.add_argument(
            "--p", metavar="P,P", help="probabilities of a delay at each of three points (0,0.04,0.08,0.16)"
        )
        parser.add_argument("--iterations", type=int, metavar="N", help="of each job (40)")
        parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the delays (1)")
        parser.add_argument(
            "--scale", type=int, default=SCALE, metavar="N", help=f"links are divided by it ({SCALE})"
        )

    def check(self, options: argparse.Namespace) -> None:
        if options.iterations is None:
            options.iterations = 8 if options.quick else 40
        _check(options, iterations=(2, 10_000), scale=(1, 100_000), seed=(0, 2**32 - 1))
        options.models = _models(options.models, options.quick)
        options.p = _probabilities(options.p, options.quick)

    def lasts_s(self, options: argparse.Namespace) -> float:
        """Return about how many seconds its runs take: 24 of 40 iterations took 14 minutes."""
        from reproductions.trio.slow import iterations

        return float(iterations.count(options.models, options.p) * (10.0 + 0.6 * options.iterations))

    def run(self, options: argparse.Namespace, out: Path) -> dict[str, Any]:
        from reproductions.live import runs_folder, trust
        from reproductions.progress import progress
        from reproductions.trio.slow import iterations

        runs = runs_folder(out, self.name)
        with progress("figure 13", iterations.count(options.models, options.p), lines=True) as on_done:
            rows = iterations.measure(
                options.models, options.p, options.iterations, options.seed, options.scale, runs, on_done
            )
        settings = {"scale": options.scale, "iterations": options.iterations, "seed": options.seed}
        return {"version": VERSION, "rows": rows, "trust": trust(rows), **settings}

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        from reproductions.trio.slow import iterations

        return iterations.claims(report["rows"])

    def show(self, report: Report, console: Console) -> None:
        from reproductions.trio.slow import tables

        tables.show(report, console)

    def draw(self, report: Report, path: Path) -> None:
        from reproductions.trio.slow import plots

        plots.draw(report, path)


def _check(options: argparse.Namespace, **accepted: tuple[int, int]) -> None:
    for name, (low, high) in accepted.items():
        value = getattr(options, name)
        if not low <= value <= high:
            raise RequestError(f"--{name} {value}: {low} to {high} are accepted")


def _models(asked: str | None, quick: bool) -> list[str]:
    """Return the models asked for. RequestError for one that there is not."""
    from reproductions.trio.slow.setting import BATCHES

    if asked is None:
        return list(BATCHES)[: 1 if quick else None]
    chosen = list(dict.fromkeys(word.strip() for word in asked.split(",") if word.strip()))
    for model in chosen or [asked]:
        if model not in BATCHES:
            raise RequestError(f"--models {model}: accepted are {', '.join(BATCHES)}")
    return chosen


def _probabilities(asked: str | None, quick: bool) -> list[float]:
    """Return the probabilities asked for. RequestError for what is none."""
    if asked is None:
        return list(QUICK_P if quick else USUAL_P)
    chosen = []
    for word in asked.split(","):
        try:
            value = float(word)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise RequestError(f"--p {asked}: {word.strip() or 'nothing'}; numbers from 0 to 1 are accepted")
        chosen.append(value)
    if not any(chosen):
        raise RequestError(f"--p {asked}: one at least is to be more than 0")
    return sorted({0.0, *chosen})
