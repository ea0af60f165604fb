"""Figure 13: the time of an iteration with stragglers, with tensors and computing times of the paper's
models. Owns the runs.

Ideal is the baseline's own job without stragglers. The mean of its iterations is the typical iteration time
of every job of the model. Delays are fractions of it, so that all ways have the same delays.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.claims import Finding, timed
from reproductions.example_jobs import LAYERS, LayersResult
from reproductions.reports import ByVerdict, FigureReport, NumberedRow, Trust
from reproductions.trio.slow.setting import (
    AGE_OUT_MS,
    BATCHES,
    PAPER,
    PAPER_P,
    ROUNDS,
    SWITCHML,
    SWITCHML_64,
    TOP,
    TRIO,
    WAYS,
    WORKERS,
    ComparedWay,
    network,
)
from reproductions.verdicts import AGREES, BAND, DIFFERS, FLAT, TIE, of_ratio
from testbed.client.caller import Caller
from testbed.figures import finished_runs
from testbed.messages.coding import Number, decode
from testbed.messages.verdict import JobVerdict
from testbed.systems.trio.counts import blocks_of
from testbed.systems.trio.expected import Ages, aged, replay, waiting
from testbed.wire.stragglers import SlowWorkers

PREDICTED = 0.10
"""The model's prediction is to be within this share of the measurement."""


@dataclass(frozen=True, slots=True)
class SlowRow(ByVerdict, NumberedRow):
    """A run of a model by a way, with a probability `p` of a delay at each point. `expected_ms`: the model's
    iteration time over all seeds; `replayed_ms`: the same with this seed's draws. `blocks` and `without` (by
    worker) are set for Trio-ML alone.
    """

    model: str
    way: str
    p: float
    iteration_ms: float
    by_worker_ms: Sequence[Number]
    compute_ms: Number
    expected_ms: float
    replayed_ms: float
    delays: int
    blocks: int | None
    without: Mapping[str, int] | None
    error_over_bound: Number
    retransmits: int
    verdict: JobVerdict


@dataclass(frozen=True, slots=True)
class Resent:
    """The packets that a worker sent again, from its statistics."""

    retransmits: int


Rows = Sequence[SlowRow]


@dataclass(frozen=True, slots=True)
class SlowReport(FigureReport):
    """The report of figure 13."""

    version: int
    rows: Rows
    trust: Trust
    scale: int
    iterations: int
    seed: int


def measure(
    models: Sequence[str],
    probabilities: Sequence[float],
    iterations: int,
    seed: int,
    scale: int,
    folder: Path,
    on_done: Callable[[str], None],
) -> list[SlowRow]:
    """Run each model by each way at each probability, and return a row for each. Probability 0 is always run,
    and first: its time is Ideal's.
    """
    rows: list[SlowRow] = []
    with live.testbed("trio-6-1", network(scale), folder) as testbed:
        for model in models:
            typical_ms: float | None = None
            for p, way in _points(probabilities):
                measure_one = partial(_row, testbed, model, way, p, typical_ms, iterations, seed, folder)
                row = finished_runs.row(folder, f"{model}.{way.key}.{p}", SlowRow, measure_one)
                typical_ms = typical_ms or row.iteration_ms
                rows.append(row)
                on_done(f"{model}, {way.title}, p = {p:.0%}")
    return rows


def count(models: Sequence[str], probabilities: Sequence[float]) -> int:
    """Count the runs that `measure` makes."""
    return len(models) * len(_points(probabilities))


def _points(probabilities: Sequence[float]) -> list[tuple[float, ComparedWay]]:
    """Return a model's runs: both ways at every probability, SwitchML-64 at the highest."""
    every = sorted({0.0, *probabilities})
    return [*((p, way) for p in every for way in WAYS), (every[-1], SWITCHML_64)]


def _row(
    testbed: live.TestbedOfFigures,
    model: str,
    way: ComparedWay,
    p: float,
    typical_ms: float | None,
    iterations: int,
    seed: int,
    folder: Path,
) -> SlowRow:
    stem = f"{model}.{way.key}.{p * 100:g}"
    result_file, script_file = folder / f"{stem}.run.json", folder / f"{stem}.json"
    pattern = SlowWorkers(p, seed, iteration_s=typical_ms and typical_ms / 1e3)
    words = ["run", "--place", f"u1:{WORKERS}", "--sync", way.sync, *way.options]
    words += ["--stragglers", str(pattern)] if p else []
    words += ["--json", str(result_file), str(LAYERS)]
    words += ["--profile", "a100", "--model", model, "--batch", str(BATCHES[model])]
    words += ["--scale", str(testbed.topology.scale), "--iterations", str(iterations), "--warm-up", "0"]
    words += ["--out", str(script_file), *(["--degraded"] if way is TRIO else [])]
    testbed.command(*words)
    with Caller.of_this_process().acting():
        result = live.run_result(result_file)
        script = decode(LayersResult, json.loads(script_file.read_text()), script_file.name)
    typical_ms = typical_ms or statistics.fmean(script.mean_ms_list)
    expected, replayed = predicted(way, pattern, iterations, typical_ms)
    blocks = blocks_of(result)
    return SlowRow(
        model=model,
        way=way.key,
        p=p,
        iteration_ms=statistics.fmean(script.mean_ms_list),
        by_worker_ms=script.mean_ms_list,
        compute_ms=script.compute_ms,
        expected_ms=expected * typical_ms,
        replayed_ms=replayed * typical_ms,
        delays=result.stragglers.delays if result.stragglers else 0,
        blocks=blocks.made if blocks else None,
        without=blocks.without if blocks else None,
        error_over_bound=script.error_over_bound,
        retransmits=sum(worker.retransmits for worker in live.statistics_of(result, Resent)),
        verdict=result.verdict,
    )


def predicted(
    way: ComparedWay, pattern: SlowWorkers, iterations: int, typical_ms: float
) -> tuple[float, float]:
    """Predict an iteration's time in typical iterations: the expectation over all seeds, and the value with
    this pattern's own draws.
    """
    if way is not TRIO:
        return waiting(pattern.p, WORKERS), replay(pattern, WORKERS, iterations, None)
    ages = Ages(AGE_OUT_MS / typical_ms, ROUNDS * TOP * AGE_OUT_MS / typical_ms)
    return aged(pattern.p, WORKERS, iterations, ages), replay(pattern, WORKERS, iterations, ages)


def picked(rows: Rows, model: str, way: ComparedWay, p: float) -> SlowRow:
    """Return the row of a model, way and probability."""
    return next(row for row in rows if (row.model, row.way, row.p) == (model, way.key, p))


def ideal_ms(rows: Rows, model: str) -> float:
    """Return an iteration's time without slow workers."""
    return picked(rows, model, SWITCHML, 0.0).iteration_ms


def models_of(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row.model for row in rows))


def claims(rows: Rows) -> list[Finding]:
    """Compare the paper's ratios with ours; judge how near Trio-ML is to Ideal, and how accurate the
    model is.
    """
    findings: list[Finding] = []
    most = max(row.p for row in rows)
    for model in models_of(rows):
        slow, ours = (picked(rows, model, way, most) for way in WAYS)
        times = slow.iteration_ms / ours.iteration_ms
        if most == PAPER_P:
            findings.append(
                timed(
                    f"{model}: SwitchML's iteration over Trio-ML's at p = {most:.0%}",
                    f"{PAPER[model]:.2f}",
                    f"{times:.2f} (expected {slow.expected_ms / ours.expected_ms:.2f})",
                    _of_times(times, PAPER[model]),
                    (slow, ours),
                )
            )
        over = ours.iteration_ms / ideal_ms(rows, model)
        waits = slow.iteration_ms / ideal_ms(rows, model)
        findings.append(
            timed(
                f"{model}: Trio-ML's iteration over Ideal's at p = {most:.0%}",
                "close to 1",
                f"{over:.2f} (SwitchML {waits:.2f})",
                AGREES if over <= 1 + BAND else DIFFERS,
                (ours, picked(rows, model, SWITCHML, 0.0)),
            )
        )
        small = [row for row in rows if (row.model, row.way) == (model, SWITCHML_64.key)]
        for row in small:
            times = row.iteration_ms / slow.iteration_ms
            findings.append(
                timed(
                    f"{model}: SwitchML-64's iteration over SwitchML-256's at p = {most:.0%}",
                    "more than 1",
                    f"{times:.2f}",
                    TIE if abs(times - 1) <= FLAT else AGREES if times > 1 else DIFFERS,
                    (row, slow),
                )
            )
    slowed = [row for row in rows if row.p]
    forecasts = (
        ("over all seeds", [row.expected_ms / row.iteration_ms - 1 for row in slowed]),
        ("with the seed's own draws", [row.replayed_ms / row.iteration_ms - 1 for row in slowed]),
    )
    for text, off in forecasts:
        worst = max(off, key=abs)
        findings.append(
            timed(
                f"the model of iteration times, {text}, is off by at most",
                f"{PREDICTED:.0%} asked for",
                f"{worst:+.1%}",
                AGREES if abs(worst) <= PREDICTED else DIFFERS,
            )
        )
    return findings


def _of_times(ours: float, paper: float) -> str:
    """Return the verdict word for a ratio: AGREES at the paper's ratio or more, or at a gain within
    BAND below it.
    """
    return AGREES if ours - 1 >= (1 - BAND) * (paper - 1) else of_ratio(ours, paper)
