"""Table 1 and figures 9 to 12 as experiments. Imports nothing heavy before it is asked for something."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from reproductions.experiment import QUICK, Chart, Claims, Experiment, ExperimentOption, words_of
from testbed.aggregation.figure import Report

VERSION = 2
NAMES = ("table1", "fig9", "fig10", "fig11", "fig12")
TRAINING = ("fig9", "fig10", "fig11")
"""These are of the same runs: each prints and draws all of them."""


def _declared(figure: str) -> tuple[ExperimentOption, ...]:
    scale = 200 if figure == "table1" else 400
    usual, quick = (7, 2) if figure == "fig12" else (12, 5)
    mean = " (7): here an epoch of 12 sums" if figure == "fig12" else " (12)"
    least = 3 if figure != "fig12" else 1
    declared = (
        QUICK,
        ExperimentOption("scale", f"links are divided by it ({scale})", usual=scale, accepted=(1, 100_000)),
        ExperimentOption(
            "iterations", "of each job" + mean, usual=usual, quick=quick, accepted=(least, 10_000)
        ),
    )
    if figure not in TRAINING:
        return declared
    computing = "each run once more with computing times declared"
    return (
        *declared,
        ExperimentOption("models", "of resnet50, vgg19, bert", str, "A,B"),
        ExperimentOption("computing", computing, bool),
    )


def _complete(figure: str, options: Namespace) -> None:
    if figure in TRAINING:
        from reproductions.aleph.live.training import MODELS

        if options.models is None:
            options.models = list(MODELS[:1] if options.quick else MODELS)
        else:
            options.models = words_of("models", options.models, MODELS)


def _estimate_s(figure: str, options: Namespace) -> float:
    """Return about how many seconds its runs take: starting workers, and their sums."""
    from reproductions.aleph.live import training

    if figure not in TRAINING:
        return float(3 * (15.0 + options.iterations * (1.0 if figure == "table1" else 5.0)))
    return float(training.count(options.models, options.computing) * (15.0 + options.iterations))


def _rows(figure: str, options: Namespace, out: Path) -> dict[str, Any]:
    from reproductions.live import runs_folder, trust

    rows = _measured(figure, options, runs_folder(out, figure))
    settings = {"scale": options.scale, "iterations": options.iterations}
    return {"version": VERSION, "rows": rows, "trust": trust(rows), **settings}


def _measured(figure: str, options: Namespace, runs: Path) -> list[dict[str, Any]]:
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


def _claims(figure: str, report: Report) -> Claims:
    from reproductions.aleph.live import accuracy, example, training

    of = {"table1": example.claims, "fig12": accuracy.claims}
    return of.get(figure, training.claims)(report["rows"])


def _chart() -> Chart:
    from reproductions.aleph.live import plots, tables

    return Chart(tables.show, plots.draw)


EXPERIMENTS = tuple(
    Experiment(
        name=name,
        on_testbed=True,
        about="Run the paper's experiment on a testbed that the command brings up and ends. Figures 9 to 11 "
        "are of the same runs: each prints and draws all three. What was chosen, and why: docs/aleph.md.",
        declared=_declared(name),
        rows=_rows,
        findings=_claims,
        chart=_chart,
        complete=_complete,
        estimate_s=_estimate_s,
    )
    for name in NAMES
)
