"""The runs of figure 12: figure 13's network and ways of summing, with a real model and several seeds. Owns
no claim.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.example_jobs import TIMED_DIGITS
from reproductions.reports import ByVerdict, FigureReport, NumberedRow, Trust
from reproductions.trio.slow.setting import BATCHES, SWITCHML, TRIO, WORKERS, ComparedWay, network
from testbed.client.caller import Caller
from testbed.errors import TestbedError
from testbed.figures import finished_runs
from testbed.messages.coding import decode
from testbed.messages.verdict import JobVerdict
from testbed.systems.trio.counts import blocks_of
from testbed.wire.stragglers import SlowWorkers
from workloads import models

P = 0.16
PROFILE, MODEL = "a100", "resnet50"
"""The profile and model whose declared computing time and batch an iteration has."""
SCALE = 1000
"""Scale of the links: the model's 14,074 gradients are near ResNet50's 25.6 million divided by it."""
IDEAL = "ideal"


@dataclass(frozen=True, slots=True)
class AccuracyRow(ByVerdict, NumberedRow):
    """A run of a way with a seed: the test accuracy after each iteration, and the seconds at which the
    iteration ended, averaged over the workers. `blocks` and `without` (by worker) are set for Trio-ML alone.
    """

    way: str
    seed: int
    accuracy: Sequence[float]
    ended_s: Sequence[float]
    delays: int
    blocks: int | None
    without: Mapping[str, int] | None
    verdict: JobVerdict


@dataclass(frozen=True, slots=True)
class AccuracyReport(FigureReport):
    """The report of figure 12. `target` is a share of the test images. `typical_ms`: an iteration without
    slow workers; `compute_ms`: the declared computing in it.
    """

    version: int
    rows: Sequence[AccuracyRow]
    trust: Trust
    seeds: int
    iterations: int
    target: float
    typical_ms: float
    compute_ms: float


@dataclass(frozen=True, slots=True)
class _TrainedWorker:
    """The fields that are read of the result that a worker of timed_digits.py writes. `digest` is its
    model's.
    """

    ended_s: Sequence[float]
    accuracy: Sequence[float]
    digest: str


def titles() -> dict[str, str]:
    """Return the titles of runs, by way."""
    return {IDEAL: "Ideal", SWITCHML.sync: SWITCHML.title, TRIO.sync: TRIO.title}


def compute_ms() -> float:
    """Return an iteration's declared computing time in milliseconds."""
    return models.profile(PROFILE, MODEL).for_batch(BATCHES[MODEL]).total_ms


def measure(
    seeds: Sequence[int], iterations: int, folder: Path, on_done: Callable[[str], None]
) -> tuple[list[AccuracyRow], float]:
    """Run each way with each seed, and return a row for each and the typical iteration in milliseconds. That
    is the mean iteration of the first seed's Ideal run; delays are fractions of it.
    """
    rows: list[AccuracyRow] = []
    typical_ms: float | None = None
    with live.testbed("trio-fig12", network(SCALE), folder) as testbed:
        for seed in seeds:
            for name, way in ((IDEAL, SWITCHML), (SWITCHML.sync, SWITCHML), (TRIO.sync, TRIO)):
                pattern = None if name == IDEAL else SlowWorkers(P, seed, iteration_s=(typical_ms or 0) / 1e3)
                measure_one = partial(_row, testbed, name, way, seed, pattern, iterations, folder)
                rows.append(finished_runs.row(folder, f"{name}.{seed}", AccuracyRow, measure_one))
                typical_ms = typical_ms or rows[-1].ended_s[-1] * 1e3 / iterations
                on_done(f"seed {seed}, {titles()[name]}")
    assert typical_ms is not None
    return rows, typical_ms


def _row(
    testbed: live.TestbedOfFigures,
    name: str,
    way: ComparedWay,
    seed: int,
    pattern: SlowWorkers | None,
    iterations: int,
    folder: Path,
) -> AccuracyRow:
    stem = folder / f"{name}.{seed}"
    result_file = stem.with_name(f"{stem.name}.run.json")
    words = ["run", "--place", f"u1:{WORKERS}", "--sync", way.sync, *way.options]
    words += ["--stragglers", str(pattern)] if pattern else []
    words += [
        "--json",
        str(result_file),
        str(TIMED_DIGITS),
        "--iterations",
        str(iterations),
        "--seed",
        str(seed),
    ]
    words += ["--batch", str(BATCHES[MODEL]), "--compute-ms", f"{compute_ms():g}", "--out", str(stem)]
    testbed.command(*words)
    with Caller.of_this_process().acting():
        result = live.run_result(result_file)
        files = [stem.with_name(f"{stem.name}.{rank}") for rank in range(WORKERS)]
        workers = [decode(_TrainedWorker, json.loads(file.read_text()), file.name) for file in files]
    if len({worker.digest for worker in workers}) != 1:
        raise TestbedError(f"{stem.name}: the workers' models differ, see {stem}.*")
    blocks = blocks_of(result)
    return AccuracyRow(
        way=name,
        seed=seed,
        accuracy=workers[0].accuracy,
        ended_s=[statistics.fmean(ends) for ends in zip(*(w.ended_s for w in workers), strict=True)],
        delays=result.stragglers.delays if result.stragglers else 0,
        blocks=blocks.made if blocks else None,
        without=blocks.without if blocks else None,
        verdict=result.verdict,
    )


def picked(rows: Sequence[AccuracyRow], way: str) -> list[AccuracyRow]:
    """Return the rows of a way, by seed."""
    return [row for row in rows if row.way == way]


def reached(row: AccuracyRow, target: float) -> int | None:
    """Return after how many iterations a run first reached the target accuracy; None: never."""
    return next((number for number, each in enumerate(row.accuracy, 1) if each >= target), None)


def reached_s(row: AccuracyRow, target: float) -> float | None:
    """Return after how many seconds, averaged over the workers, a run first reached the target; None:
    never.
    """
    number = reached(row, target)
    return None if number is None else row.ended_s[number - 1]


def final(row: AccuracyRow, last: int = 10) -> float:
    """Return the mean accuracy over the last iterations."""
    return statistics.fmean(row.accuracy[-last:])
