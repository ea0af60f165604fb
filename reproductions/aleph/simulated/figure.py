"""Figures 13 to 16 as experiments. Heavy modules are imported only when a figure is used."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import Chart, Experiment, ExperimentOption
from testbed.errors import RequestError

if TYPE_CHECKING:
    from reproductions.aleph.simulated.report import IterationMeans, IterationReport
    from reproductions.claims import Finding
    from testbed.systems.aleph.simulator import Iteration, Scene

VERSION = 1
WORKERS, DEVIATION = "workers", "deviation"


@dataclass(frozen=True, slots=True)
class Range:
    """A figure's sweep: the swept field, its values, the number of workers where that is not swept, and
    a title.
    """

    sweep: str
    values: tuple[float, ...]
    workers: int
    about: str
    quick: tuple[float, ...]  # with --quick: the values that the paper's statements concern


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


def _declared(figure: str) -> tuple[ExperimentOption, ...]:
    plan = PLANS[figure]
    usual, quick = _listed(plan.values), _listed(plan.quick)
    return (
        ExperimentOption("quick", "the smallest sweep that shows something, with 2 seeds", bool),
        ExperimentOption(
            "seeds",
            f"random rates and draws ({SEEDS}, {QUICK_SEEDS} if quick)",
            usual=SEEDS,
            quick=QUICK_SEEDS,
            accepted=(1, math.inf),
        ),
        ExperimentOption(
            "values", f"of the swept {plan.sweep} ({usual}, {quick} if quick)", str, "A,B", usual, quick
        ),
        ExperimentOption("workers", f"({plan.workers})", usual=plan.workers),
        ExperimentOption("deviation", "of ratios (0.1)", float, "D", usual=0.1),
        ExperimentOption("reach", "a worker can head: anybody, rack (anybody)", str, "WHOM", "anybody"),
        ExperimentOption("place", "workers are: packed rack by rack, random (packed)", str, "HOW", "packed"),
    )


def _complete(figure: str, options: Namespace) -> None:
    """Raise RequestError for an invalid setting before anything runs."""
    _settings(figure, options)


def _settings(figure: str, options: Namespace) -> list[tuple[float, Scene]]:
    """Return each swept value with its scene. RequestError for a value that is not a number, or not
    accepted.
    """
    from testbed.systems.aleph import simulator

    plan = PLANS[figure]
    try:
        values = sorted({float(value) for value in options.values.split(",")})
    except ValueError:
        raise RequestError(f"--values {options.values}: numbers with commas are accepted") from None
    setting = simulator.Scene(options.workers, options.deviation, options.reach, options.place)
    return [(value, simulator.swept(setting, plan.sweep, value)) for value in values]


def _rows(figure: str, options: Namespace, _: Path) -> IterationReport:
    from reproductions.aleph.simulated.report import IterationReport
    from reproductions.progress import progress
    from testbed.systems.aleph import simulator

    plan, runs = PLANS[figure], []
    settings = _settings(figure, options)
    seeds = range(1, options.seeds + 1)
    with progress(
        f"{figure}, {plan.about}", len(simulator.TOPOLOGIES) * len(settings) * len(seeds)
    ) as on_done:
        for topology in simulator.TOPOLOGIES:
            for value, setting in settings:
                for seed in seeds:
                    world = simulator.World(topology, setting, seed)
                    runs += [world.measured(scheme, value) for scheme in simulator.TITLES]
                    on_done(f"{topology}, {plan.sweep} {value:g}, seed {seed}")
    return IterationReport(
        version=VERSION,
        about=plan.about,
        sweep=plan.sweep,
        options=simulator.Scene(options.workers, options.deviation, options.reach, options.place),
        seeds=list(seeds),
        means=_means(runs),
        runs=runs,
    )


def _means(runs: Sequence[Iteration]) -> list[IterationMeans]:
    from reproductions.aleph.simulated.claims import METRICS, sweeps
    from reproductions.aleph.simulated.report import IterationMeans

    return [
        IterationMeans(
            topology,
            value,
            scheme,
            **{metric: sweep.spread(scheme, value, metric) for metric in METRICS},
        )
        for topology, sweep in sweeps(runs).items()
        for value in sweep.values
        for scheme in sweep.schemes
    ]


def _claims(figure: str, report: IterationReport) -> list[Finding]:
    from reproductions.aleph.simulated.claims import findings, sweeps

    return findings(figure, sweeps(report.runs))


def _chart() -> Chart[IterationReport]:
    from reproductions.aleph.simulated import plots, tables
    from reproductions.aleph.simulated.report import IterationReport

    return Chart(IterationReport, tables.show, plots.draw)


EXPERIMENTS = tuple(
    Experiment(
        name=name,
        on_testbed=False,
        about="Runs ALEPH's clusterings, a parameter server and a ring with every seed at every value, in "
        "the fat tree of 320 servers and the leaf and spine of 300 of section 6.4. What was chosen, and why: "
        "docs/aleph.md.",
        declared=_declared(name),
        rows=_rows,
        findings=_claims,
        chart=_chart,
        complete=_complete,
    )
    for name in PLANS
)
