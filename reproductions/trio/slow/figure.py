"""Figure 13 as an experiment. Heavy modules are imported only when the figure is used."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import QUICK, Chart, Experiment, ExperimentOption, words_of
from testbed.errors import RequestError

if TYPE_CHECKING:
    from reproductions.claims import Finding
    from reproductions.trio.slow.iterations import SlowReport

VERSION = 1
SCALE = 1000
USUAL_P, QUICK_P = (0.0, 0.04, 0.08, 0.16), (0.0, 0.16)


def _complete(_: str, options: Namespace) -> None:
    from reproductions.trio.slow.setting import BATCHES

    if options.models is None:
        options.models = list(BATCHES)[: 1 if options.quick else None]
    else:
        options.models = words_of("models", options.models, list(BATCHES))
    if options.p is None:
        options.p = list(QUICK_P if options.quick else USUAL_P)
    else:
        options.p = _probabilities(options.p)


def _probabilities(asked: str) -> list[float]:
    """Parse the probabilities, and add 0. RequestError for a word that is no probability, or where none is
    above 0.
    """
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


def _estimate_s(_: str, options: Namespace) -> float:
    """Estimate how many seconds the runs take; measured: 24 runs of 40 iterations took 14 minutes."""
    from reproductions.trio.slow import iterations

    return float(iterations.count(options.models, options.p) * (10.0 + 0.6 * options.iterations))


def _rows(figure: str, options: Namespace, out: Path) -> SlowReport:
    from reproductions.live import runs_folder, trust
    from reproductions.progress import progress
    from reproductions.trio.slow import iterations

    runs = runs_folder(out, figure)
    with progress("figure 13", iterations.count(options.models, options.p), lines=True) as on_done:
        rows = iterations.measure(
            options.models, options.p, options.iterations, options.seed, options.scale, runs, on_done
        )
    return iterations.SlowReport(
        VERSION,
        rows,
        trust([row.verdict for row in rows]),
        options.scale,
        options.iterations,
        options.seed,
    )


def _claims(_: str, report: SlowReport) -> list[Finding]:
    from reproductions.trio.slow import iterations

    return iterations.claims(report.rows)


def _chart() -> Chart[SlowReport]:
    from reproductions.trio.slow import iterations, plots, tables

    return Chart(iterations.SlowReport, tables.show, plots.draw)


EXPERIMENTS = (
    Experiment(
        name="fig13",
        on_testbed=True,
        about="Run the paper's experiment on a testbed that the command brings up and ends. What was chosen, "
        "and why: docs/trio.md.",
        declared=(
            QUICK,
            ExperimentOption("models", "of resnet50, vgg11, densenet161", str, "A,B"),
            ExperimentOption(
                "p", "probabilities of a delay at each of three points (0,0.04,0.08,0.16)", str, "P,P"
            ),
            ExperimentOption("iterations", "of each job (40)", usual=40, quick=8, accepted=(2, 10_000)),
            ExperimentOption("seed", "of the delays (1)", usual=1, accepted=(0, 2**32 - 1)),
            ExperimentOption(
                "scale", f"links are divided by it ({SCALE})", usual=SCALE, accepted=(1, 100_000)
            ),
        ),
        rows=_rows,
        findings=_claims,
        chart=_chart,
        complete=_complete,
        estimate_s=_estimate_s,
    ),
)
