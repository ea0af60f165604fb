"""Table 1 and figures 9 to 12 as experiments. Heavy modules are imported only when a figure is used."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption, words_of

if TYPE_CHECKING:
    from reproductions.aleph.live.accuracy import LearningReport
    from reproductions.aleph.live.example import ExampleReport
    from reproductions.aleph.live.training import TrainingReport
    from reproductions.claims import Finding

VERSION = 2
TRAINING = ("fig9", "fig10", "fig11")
"""These figures share the same runs: each prints and draws all of them."""


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
    """Estimate how many seconds a figure's runs take: starting the workers, and their sums."""
    from reproductions.aleph.live import training

    if figure not in TRAINING:
        return float(3 * (15.0 + options.iterations * (1.0 if figure == "table1" else 5.0)))
    return float(training.count(options.models, options.computing) * (15.0 + options.iterations))


def _example(figure: str, options: Namespace, out: Path) -> ExampleReport:
    from reproductions.aleph.live import example
    from reproductions.live import runs_folder, trust
    from reproductions.progress import progress

    folder = runs_folder(out, figure)
    with progress("table 1", 3, lines=True) as on_done:
        rows = example.measure(options.scale, options.iterations, folder, on_done)
    sums = trust([row.verdict for row in rows])
    return example.ExampleReport(VERSION, rows, sums, options.scale, options.iterations)


def _learning(figure: str, options: Namespace, out: Path) -> LearningReport:
    from reproductions.aleph.live import accuracy
    from reproductions.live import runs_folder, trust
    from reproductions.progress import progress

    folder = runs_folder(out, figure)
    with progress("figure 12", 3, lines=True) as on_done:
        rows = accuracy.measure(options.iterations, options.scale, folder, on_done)
    sums = trust([row.verdict for row in rows])
    return accuracy.LearningReport(VERSION, rows, sums, options.scale, options.iterations)


def _training(figure: str, options: Namespace, out: Path) -> TrainingReport:
    from reproductions.aleph.live import training
    from reproductions.live import runs_folder, trust
    from reproductions.progress import progress

    models, computing, folder = options.models, options.computing, runs_folder(out, figure)
    with progress("figures 9 to 11", training.count(models, computing), lines=True) as on_done:
        rows = training.measure(models, options.iterations, options.scale, computing, folder, on_done)
    sums = trust([row.verdict for row in rows])
    return training.TrainingReport(VERSION, rows, sums, options.scale, options.iterations)


def _example_claims(_: str, report: ExampleReport) -> list[Finding]:
    from reproductions.aleph.live import example

    return example.claims(report.rows)


def _learning_claims(_: str, report: LearningReport) -> list[Finding]:
    from reproductions.aleph.live import accuracy

    return accuracy.claims(report.rows)


def _training_claims(_: str, report: TrainingReport) -> list[Finding]:
    from reproductions.aleph.live import training

    return training.claims(report.rows)


def _example_chart() -> Chart[ExampleReport]:
    from reproductions.aleph.live import example, plots, tables

    return Chart(example.ExampleReport, tables.show_example, plots.draw_example)


def _learning_chart() -> Chart[LearningReport]:
    from reproductions.aleph.live import accuracy, plots, tables

    return Chart(accuracy.LearningReport, tables.show_learning, plots.draw_learning)


def _training_chart() -> Chart[TrainingReport]:
    from reproductions.aleph.live import plots, tables, training

    return Chart(training.TrainingReport, tables.show_training, plots.draw_training)


def _experiment(name: str, rows: Any, findings: Any, chart: Any) -> Experiment[Any]:
    return Experiment(
        name=name,
        on_testbed=True,
        about="Run the paper's experiment on a testbed that the command brings up and ends. Figures 9 to 11 "
        "are of the same runs: each prints and draws all three. What was chosen, and why: docs/aleph.md.",
        declared=_declared(name),
        rows=rows,
        findings=findings,
        chart=chart,
        complete=_complete,
        estimate_s=_estimate_s,
    )


EXPERIMENTS = (
    _experiment("table1", _example, _example_claims, _example_chart),
    *(_experiment(name, _training, _training_claims, _training_chart) for name in TRAINING),
    _experiment("fig12", _learning, _learning_claims, _learning_chart),
)
