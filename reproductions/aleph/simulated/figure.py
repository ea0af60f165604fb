"""Figures 13 to 16 as figures of the paper: options, runs, claims. Imports nothing heavy before it is asked
for something.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.aggregation.figure import Report

if TYPE_CHECKING:
    from rich.console import Console

    from testbed.systems.aleph.simulator import Scene

VERSION = 1
WORKERS, DEVIATION = "workers", "deviation"


@dataclass(frozen=True, slots=True)
class Range:
    """A figure's sweep: what is swept, its values, how many workers where they are not, and in words."""

    sweep: str
    values: tuple[float, ...]
    workers: int
    about: str
    quick: tuple[float, ...]  # with --quick: those that statements of the paper are about


SEEDS, QUICK_SEEDS = 20, 2
DEVIATIONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
PLANS: Mapping[str, Range] = {
    "fig13": Range(
        DEVIATION, DEVIATIONS, 100, "bandwidth usage by the standard deviation of rates", (0.0, 0.3)
    ),
    "fig14": Range(
        WORKERS, (50, 100, 150, 200, 250), 100, "communication overhead by the number of workers", (50, 150)
    ),
    "fig15": Range(
        WORKERS, (10, 50, 100, 150, 200, 250), 100, "gradient hops by the number of workers", (10, 50)
    ),
    "fig16": Range(DEVIATION, DEVIATIONS, 10, "gradient hops by the standard deviation of rates", (0.0, 0.3)),
}


def _listed(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


@dataclass(frozen=True, slots=True)
class DataCenterFigure:
    """Runs ALEPH's clusterings, a parameter server and a ring with every seed at every value, in the fat tree
    of 320 servers and the leaf and spine of 300 of section 6.4. What was chosen, and why: docs/aleph.md.
    """

    name: str

    @property
    def on_testbed(self) -> bool:
        return False

    def options(self, parser: argparse.ArgumentParser) -> None:
        plan = PLANS[self.name]
        parser.add_argument(
            "--quick", action="store_true", help="the smallest sweep that shows something, with 2 seeds"
        )
        parser.add_argument(
            "--seeds", type=int, metavar="N", help=f"random rates and draws ({SEEDS}, {QUICK_SEEDS} if quick)"
        )
        parser.add_argument(
            "--values",
            metavar="A,B",
            help=f"of the swept {plan.sweep} ({_listed(plan.values)}, {_listed(plan.quick)} if quick)",
        )
        parser.add_argument("--workers", type=int, default=plan.workers, metavar="N", help="(%(default)s)")
        parser.add_argument("--deviation", type=float, default=0.1, metavar="D", help="of ratios (0.1)")
        parser.add_argument(
            "--reach", default="anybody", metavar="WHOM", help="a worker can head: anybody, rack (anybody)"
        )
        parser.add_argument(
            "--place",
            default="packed",
            metavar="HOW",
            help="workers are: packed rack by rack, random (packed)",
        )

    def check(self, options: argparse.Namespace) -> None:
        from testbed.errors import RequestError

        if options.seeds is None:
            options.seeds = QUICK_SEEDS if options.quick else SEEDS
        if options.values is None:
            plan = PLANS[self.name]
            options.values = _listed(plan.quick if options.quick else plan.values)
        if options.seeds < 1:
            raise RequestError(f"--seeds {options.seeds}: at least 1 is accepted")
        for _ in self._settings(options):
            pass

    def run(self, options: argparse.Namespace, out: Path) -> dict[str, Any]:
        from reproductions.progress import progress
        from testbed.systems.aleph import simulator

        plan, runs = PLANS[self.name], []
        settings = self._settings(options)
        seeds = range(1, options.seeds + 1)
        with progress(
            f"{self.name}, {plan.about}", len(simulator.TOPOLOGIES) * len(settings) * len(seeds)
        ) as on_done:
            for topology in simulator.TOPOLOGIES:
                for value, setting in settings:
                    for seed in seeds:
                        world = simulator.World(topology, setting, seed)
                        runs += [world.measured(scheme, value) for scheme in simulator.TITLES]
                        on_done(f"{topology}, {plan.sweep} {value:g}, seed {seed}")
        return {
            "version": VERSION,
            "about": plan.about,
            "sweep": plan.sweep,
            "options": {key: getattr(options, key) for key in ("workers", "deviation", "reach", "place")},
            "seeds": list(seeds),
            "means": self._means(runs),
            "runs": [asdict(run) for run in runs],
        }

    def _settings(self, options: argparse.Namespace) -> list[tuple[float, Scene]]:
        """Return the setting at each value. RequestError for what is none."""
        from testbed.errors import RequestError
        from testbed.systems.aleph import simulator

        plan = PLANS[self.name]
        try:
            values = sorted({float(value) for value in options.values.split(",")})
        except ValueError:
            raise RequestError(f"--values {options.values}: numbers with commas are accepted") from None
        setting = simulator.Scene(options.workers, options.deviation, options.reach, options.place)
        return [(value, simulator.swept(setting, plan.sweep, value)) for value in values]

    def _means(self, runs: Sequence[Any]) -> list[dict[str, Any]]:
        from reproductions.aleph.simulated.claims import METRICS, sweeps

        return [
            {
                "topology": topology,
                "value": value,
                "scheme": scheme,
                **{metric: asdict(sweep.spread(scheme, value, metric)) for metric in METRICS},
            }
            for topology, sweep in sweeps(runs).items()
            for value in sweep.values
            for scheme in sweep.schemes
        ]

    def claims(self, report: Report) -> Sequence[Mapping[str, Any]]:
        from reproductions.aleph.simulated.claims import findings, sweeps
        from testbed.systems.aleph.simulator import Iteration

        runs = [Iteration(**run) for run in report["runs"]]
        return [asdict(finding) for finding in findings(self.name, sweeps(runs))]

    def show(self, report: Report, console: Console) -> None:
        from reproductions.aleph.simulated import tables

        tables.show(report, console)

    def draw(self, report: Report, path: Path) -> None:
        from reproductions.aleph.simulated import plots

        plots.draw(report, path)
