"""The runs of figure 12: the network and the ways to sum of figure 13, a real model, and several seeds. Owns
no claim.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reproductions import live
from reproductions.example_jobs import TIMED_DIGITS
from reproductions.trio.slow.setting import BATCHES, SWITCHML, TRIO, WORKERS, ComparedWay, network
from testbed.client.caller import Caller
from testbed.errors import TestbedError
from testbed.figures import finished_runs
from testbed.messages.coding import UnsetType, as_json
from testbed.wire.stragglers import SlowWorkers
from workloads import models

P = 0.16
PROFILE, MODEL = "a100", "resnet50"
"""Whose declared computing and batch an iteration has."""
SCALE = 1000
"""Of links: 14,074 gradients are near ResNet50's 25.6 million over it."""
IDEAL = "ideal"
Row = dict[str, Any]


def titles() -> dict[str, str]:
    """Return what runs are called, by way."""
    return {IDEAL: "Ideal", SWITCHML.sync: SWITCHML.title, TRIO.sync: TRIO.title}


def compute_ms() -> float:
    """Return an iteration's declared computing."""
    return models.profile(PROFILE, MODEL).for_batch(BATCHES[MODEL]).total_ms


def measure(
    seeds: Sequence[int], iterations: int, folder: Path, on_done: Callable[[str], None]
) -> tuple[list[Row], float]:
    """Return a row for each seed and way, and the typical iteration in milliseconds, of which delays are
    parts: that of the first seed's Ideal.
    """
    rows: list[Row] = []
    typical_ms: float | None = None
    with live.testbed("trio-fig12", network(SCALE), folder) as testbed:
        for seed in seeds:
            for name, way in ((IDEAL, SWITCHML), (SWITCHML.sync, SWITCHML), (TRIO.sync, TRIO)):
                pattern = None if name == IDEAL else SlowWorkers(P, seed, iteration_s=(typical_ms or 0) / 1e3)
                measure_one = partial(_row, testbed, name, way, seed, pattern, iterations, folder)
                rows.append(finished_runs.row(folder, f"{name}.{seed}", measure_one))
                typical_ms = typical_ms or rows[-1]["ended_s"][-1] * 1e3 / iterations
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
) -> Row:
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
        workers = [json.loads(stem.with_name(f"{stem.name}.{rank}").read_text()) for rank in range(WORKERS)]
    if len({worker["digest"] for worker in workers}) != 1:
        raise TestbedError(f"{stem.name}: the workers' models differ, see {stem}.*")
    blocks = None if isinstance(result.blocks, UnsetType) else result.blocks
    return {
        "way": name,
        "seed": seed,
        "accuracy": workers[0]["accuracy"],
        "ended_s": [statistics.fmean(ends) for ends in zip(*(w["ended_s"] for w in workers), strict=True)],
        "delays": result.stragglers.delays if result.stragglers else 0,
        "blocks": blocks and blocks.made,
        "without": blocks and blocks.without,
        "verdict": as_json(result.verdict),
    }


def picked(rows: Sequence[Mapping[str, Any]], way: str) -> list[Mapping[str, Any]]:
    """Return the rows of a way, by seed."""
    return [row for row in rows if row["way"] == way]


def reached(row: Mapping[str, Any], target: float) -> int | None:
    """Return after how many iterations a run was that accurate for the first time; None: never."""
    return next((number for number, each in enumerate(row["accuracy"], 1) if each >= target), None)


def reached_s(row: Mapping[str, Any], target: float) -> float | None:
    """Return after how many seconds, the mean over the workers."""
    number = reached(row, target)
    return None if number is None else float(row["ended_s"][number - 1])


def final(row: Mapping[str, Any], last: int = 10) -> float:
    """Return the mean accuracy after the last iterations."""
    return float(statistics.fmean(row["accuracy"][-last:]))
