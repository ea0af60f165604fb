"""The live figures' runs: a job of compared.py, and what its workers and the links say of it. Owns no
claim.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from reproductions import live
from reproductions.example_jobs import COMPARED
from reproductions.luwu.live import setting
from reproductions.luwu.live.setting import DDP, FSDP, LUWU, ON_DISKS, TUNED, WAYS, TrainingWay
from testbed.client.caller import Caller
from testbed.figures import finished_runs
from testbed.messages.coding import as_json
from testbed.messages.result import RunResult
from testbed.systems.luwu import scaled

Row = dict[str, Any]
SHARDED = {FSDP.name: scaled.fsdp, TUNED.name: scaled.fsdp_tuned}
WARM_UP = 2


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run. A micro-batch of 0 declares no computing; None of `disk_mb_s` declares no disk."""

    way: str
    workers: int = 4
    micro_batch: int = setting.MICRO_BATCH
    disks: int = 1
    disk_mb_s: float | None = None
    layers: int = setting.LAYERS
    width: int = setting.WIDTH
    batch: int = 1
    length: int = setting.LENGTH
    seed: int = 0
    steps: int = 5

    def __str__(self) -> str:
        words = [WAYS[self.way].title, f"{self.workers} workers", f"micro-batch {self.micro_batch}"]
        words += [f"{self.disks} disks"] if self.disk_mb_s else []
        words += [f"{self.layers} layers"] if self.layers != setting.LAYERS else []
        return ", ".join([*words, *([f"seed {self.seed}"] if self.seed else [])])


def measure(
    figure: str, asked: Sequence[LiveRun], scale: int, folder: Path, on_done: Callable[[str], None]
) -> list[Row]:
    """Return a row for each run, in their order."""
    rows = []
    with live.testbed(f"luwu-{figure}", setting.network(scale), folder) as testbed:
        for number, run in enumerate(asked):
            stem = f"{number:02}.{run.way}"
            rows.append(finished_runs.row(folder, stem, partial(_row, testbed, run, scale, stem, folder)))
            on_done(str(run))
    return rows


def _row(testbed: live.TestbedOfFigures, run: LiveRun, scale: int, stem: str, folder: Path) -> Row:
    way = WAYS[run.way]
    out, result_file, states = folder / stem, folder / f"{stem}.run.json", folder / f"{stem}.states"
    disks = [states / f"disk{number}" for number in range(run.disks)]
    caller = Caller.of_this_process()
    with caller.acting():
        shutil.rmtree(states, ignore_errors=True)
        for disk in disks:
            disk.mkdir(parents=True)
    try:
        testbed.command(
            *("run", "--place", f"u1:{run.workers}", "--sync", way.sync, "--json", str(result_file)),
            *(str(COMPARED), *_words(run, way, scale), "--out", str(out)),
            *(word for disk in disks for word in ("--states", str(disk))),
        )
    finally:
        with caller.acting():
            shutil.rmtree(states, ignore_errors=True)
    with caller.acting():
        result = live.run_result(result_file)
        workers = [json.loads(out.with_name(f"{out.name}.{rank}").read_text()) for rank in range(run.workers)]
    return row_of(run, scale, result, workers)


def _words(run: LiveRun, way: TrainingWay, scale: int) -> list[str]:
    forward_ms, backward_ms = setting.computing_ms(run.micro_batch, run.width, scale)
    words = {
        "--scheme": way.scheme,
        "--backend": way.backend,
        "--layers": run.layers,
        "--width": run.width,
        "--length": run.length,
        "--batch": run.batch,
        "--seed": run.seed,
        "--steps": run.steps,
        "--warm-up": WARM_UP,
        "--forward-ms": f"{forward_ms:.3f}",
        "--backward-ms": f"{backward_ms:.3f}",
    }
    if run.disk_mb_s:
        words["--disk-mb-s"] = f"{run.disk_mb_s:g}"
    return [str(word) for pair in words.items() for word in pair]


def row_of(run: LiveRun, scale: int, result: RunResult, workers: Sequence[Mapping[str, Any]]) -> Row:
    """Return what a run came to: seconds of a typical iteration, means over the workers; bytes that links
    carried for each element of the model, in an iteration. Pure.
    """
    keys = workers[0]["iterations"][0]
    iterations = [
        {key: statistics.fmean(worker["iterations"][number][key] for worker in workers) for key in keys}
        for number in range(len(workers[0]["iterations"]))
    ]
    seconds = {key: statistics.median(each[key] for each in iterations) for key in keys}
    elements = workers[0]["elements"]
    row: Row = {
        **asdict(run),
        "title": WAYS[run.way].title,
        "elements": elements,
        **seconds,
        "up_bytes": [worker["up_bytes"] / elements for worker in workers],
        "down_bytes": [worker["down_bytes"] / elements for worker in workers],
        "peak_bytes": max(worker["peak_bytes"] for worker in workers),
        "losses": [statistics.fmean(each) for each in zip(*(w["losses"] for w in workers), strict=True)],
        "verdict": as_json(result.verdict),
    }
    row["node_bytes"] = _node_bytes(run, result, elements) if run.way == LUWU.name else None
    return row


def _node_bytes(run: LiveRun, result: RunResult, elements: int) -> dict[str, float]:
    """Return what the optimizer's link carried for each element in an iteration, up (from it) and down; over
    the whole job, but for the first values, which are what the first worker sent more than the second.
    """
    links = {link.name: link for link in result.links}
    first = links["u1h1"].bytes_up - links["u1h2"].bytes_up if run.workers > 1 else 0
    its = links[result.ps_host or ""]
    share = elements * (run.steps + WARM_UP)
    return {"up": its.bytes_up / share, "down": (its.bytes_down - first) / share}


def predicted(rows: Sequence[Row], scale: int) -> None:
    """Put the model's seconds of an iteration beside those measured, where it has the way; `step_s` without
    declared disks is taken as measured. Pure.
    """
    for row in rows:
        if row["way"] not in (LUWU.name, *SHARDED) or row["workers"] < 2 - (row["way"] == LUWU.name):
            row["predicted_s"] = None
            continue
        free = [each for each in rows if each["disk_mb_s"] is None and each["way"] == row["way"]]
        step_s = row["step_s"]
        disks_bytes_s = None
        if row["disk_mb_s"] is not None:
            step_s = free[0]["step_s"] if free else 0.0
            disks_bytes_s = row["disks"] * row["disk_mb_s"] * 1e6
        run = scaled.Emulated(
            setting.link_bytes_s(scale),
            row["forward_s"] - row["forward_waited_s"],
            row["backward_s"] - row["backward_waited_s"],
            step_s,
            disks_bytes_s,
        )
        model = scaled.elements(row["layers"], row["width"], row["length"])
        row["predicted_s"] = (
            scaled.luwu(model, run)
            if row["way"] == LUWU.name
            else SHARDED[row["way"]](model, run, row["workers"])
        )


def breakdown(quick: bool) -> list[LiveRun]:
    """All ways, and those that have states on disks once more with these declared: the optimizer's, or all
    workers' together, have 2.08 times a link's rate, as in section 4.1.
    """
    if quick:
        return [LiveRun(way.name, 2, layers=2, steps=2) for way in (LUWU, FSDP)]
    workers, steps = 4, 5
    rate = round(26 / 12.5 * setting.link_bytes_s(setting.SCALE) / 1e6, 3)
    free = [LiveRun(way, workers, steps=steps) for way in WAYS if way != TUNED.name]
    return [
        *free,
        LiveRun(LUWU.name, workers, disk_mb_s=rate, steps=steps),
        LiveRun(ON_DISKS.name, workers, disk_mb_s=rate / workers, steps=steps),
    ]


def beside_fsdp(quick: bool) -> list[LiveRun]:
    """LuWu, FSDP as it reduces over gloo, and the tuned one, by blocks."""
    depths = (2,) if quick else (2, 4, 8)
    workers, steps = (2, 2) if quick else (4, 4)
    ways = (LUWU, FSDP, TUNED)
    return [LiveRun(way.name, workers, layers=depth, steps=steps) for depth in depths for way in ways]


def overlap(quick: bool) -> list[LiveRun]:
    sizes = (16,) if quick else (4, 8, 16, 32)
    workers, steps = (2, 2) if quick else (4, 4)
    return [LiveRun(way.name, workers, size, steps=steps) for size in sizes for way in (FSDP, LUWU)]


def switchml(quick: bool) -> list[LiveRun]:
    sizes = (16,) if quick else (4, 16, 32)
    workers, steps = (2, 2) if quick else (4, 4)
    return [LiveRun(DDP.name, workers, size, steps=steps) for size in sizes]


def memory(quick: bool) -> list[LiveRun]:
    """Two depths, from which follows what a parameter takes: texts are short, for activations grow, too."""
    depths = (2, 8) if quick else (4, 24)
    workers = (2,) if quick else (2, 4)
    ways = (LUWU.name, FSDP.name) if quick else (LUWU.name, FSDP.name, DDP.name)
    return [
        LiveRun(way, count, 0, layers=depth, length=4, steps=1)
        for way in ways
        for count in workers
        for depth in depths
    ]


def scaling(quick: bool) -> list[LiveRun]:
    counts = (1, 2) if quick else (1, 2, 4, 8)
    ways = (LUWU,) if quick else (LUWU, FSDP)
    return [LiveRun(way.name, count, steps=2 if quick else 4) for way in ways for count in counts]


def disks(quick: bool) -> list[LiveRun]:
    """The first run declares no disk: what its step takes is the machine's own."""
    counts = (2,) if quick else (1, 2, 4, 8)
    workers, steps = (2, 2) if quick else (2, 4)
    declared = [replace(LiveRun(LUWU.name, workers, steps=steps), disks=n, disk_mb_s=6.0) for n in counts]
    return [LiveRun(LUWU.name, workers, steps=steps), *declared]


def convergence(seeds: int, iterations: int) -> list[LiveRun]:
    return [
        LiveRun(
            way.name,
            2,
            0,
            layers=2,
            width=32,
            batch=8,
            seed=seed,
            steps=iterations - WARM_UP,
        )
        for seed in range(1, seeds + 1)
        for way in (LUWU, FSDP)
    ]


PLANS: Mapping[str, Callable[[bool], list[LiveRun]]] = {
    "fig2": breakdown,
    "fsdp": beside_fsdp,
    "fig3": overlap,
    "fig4": switchml,
    "fig10-live": memory,
    "fig14-live": scaling,
    "fig15-live": disks,
}
"""What each figure runs, `quick` or not."""
