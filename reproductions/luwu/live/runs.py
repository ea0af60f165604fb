"""The live figures' runs: jobs of compared.py, and the results of their workers and links. Owns no claim."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.example_jobs import COMPARED
from reproductions.luwu.live import setting
from reproductions.luwu.live.setting import DDP, FSDP, LUWU, ON_DISKS, TUNED, WAYS, TrainingWay
from reproductions.reports import ByVerdict, FigureReport, Trust
from testbed.client.caller import Caller
from testbed.figures import finished_runs
from testbed.messages.coding import UNSET, Number, UnsetType, decode
from testbed.messages.result import RunResult
from testbed.messages.verdict import JobVerdict
from testbed.systems.luwu import scaled
from workloads.luwu.intervals import Passes

SHARDED = {FSDP.name: scaled.fsdp, TUNED.name: scaled.fsdp_tuned}
WARM_UP = 2


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The setting of a run. A micro-batch of 0 declares no computing; `disk_mb_s` None declares no disk."""

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


@dataclass(frozen=True, slots=True)
class ComparedResult:
    """The fields that figures read of the result that a worker of compared.py writes. Bytes are those of its
    link in an iteration; `elements` are the model's.
    """

    iterations: Sequence[Passes]
    elements: int
    up_bytes: float
    down_bytes: float
    peak_bytes: Number
    losses: Sequence[float]


@dataclass(frozen=True, slots=True)
class NodeBytes:
    """Bytes on the optimizer's link for each element of the model in an iteration: sent (`up`) and
    received.
    """

    up: float
    down: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRow(ByVerdict, LiveRun):
    """A run and its results: seconds of a typical iteration, averaged over the workers; by worker, bytes on
    its link for each element of the model in an iteration; the largest peak of a worker's memory; the loss of
    each iteration. `predicted_s` is an iteration by the model: UNSET in a figure that times nothing.
    """

    title: str
    elements: int
    forward_s: float
    forward_waited_s: float
    backward_s: float
    backward_waited_s: float
    step_s: float
    step_waited_s: float
    iteration_s: float
    communicated_s: float
    serialised_s: float
    up_bytes: Sequence[float]
    down_bytes: Sequence[float]
    peak_bytes: Number
    losses: Sequence[float]
    verdict: JobVerdict
    node_bytes: NodeBytes | None
    predicted_s: float | UnsetType | None = UNSET
    run: int | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class LiveReport(FigureReport):
    """The report of one of LuWu's live figures. Links have the paper's rates, divided by `scale`."""

    version: int
    about: str
    quick: bool
    scale: int
    rows: Sequence[TrainedRow]
    trust: Trust


def measure(
    figure: str, asked: Sequence[LiveRun], scale: int, folder: Path, on_done: Callable[[str], None]
) -> list[TrainedRow]:
    """Run each of `asked` on one testbed, and return their rows in this order."""
    rows = []
    with live.testbed(f"luwu-{figure}", setting.network(scale), folder) as testbed:
        for number, run in enumerate(asked):
            stem = f"{number:02}.{run.way}"
            measure_one = partial(_row, testbed, run, scale, stem, folder)
            rows.append(finished_runs.row(folder, stem, TrainedRow, measure_one))
            on_done(str(run))
    return rows


def _row(testbed: live.TestbedOfFigures, run: LiveRun, scale: int, stem: str, folder: Path) -> TrainedRow:
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
        files = [out.with_name(f"{out.name}.{rank}") for rank in range(run.workers)]
        workers = [decode(ComparedResult, json.loads(file.read_text()), file.name) for file in files]
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


def row_of(run: LiveRun, scale: int, result: RunResult, workers: Sequence[ComparedResult]) -> TrainedRow:
    """Compute a run's results: of each phase the median over iterations of the mean over workers. Pure."""
    typical = Passes(
        *(
            statistics.median(
                statistics.fmean(getattr(each, phase.name) for each in iteration)
                for iteration in zip(*(worker.iterations for worker in workers), strict=True)
            )
            for phase in fields(Passes)
        )
    )
    elements = workers[0].elements
    return TrainedRow(
        **asdict(run),
        title=WAYS[run.way].title,
        elements=elements,
        **asdict(typical),
        up_bytes=[worker.up_bytes / elements for worker in workers],
        down_bytes=[worker.down_bytes / elements for worker in workers],
        peak_bytes=max(worker.peak_bytes for worker in workers),
        losses=[statistics.fmean(each) for each in zip(*(w.losses for w in workers), strict=True)],
        verdict=result.verdict,
        node_bytes=_node_bytes(run, result, elements) if run.way == LUWU.name else None,
    )


def _node_bytes(run: LiveRun, result: RunResult, elements: int) -> NodeBytes:
    """Compute the bytes on the optimizer's link for each element in an iteration, up (sent by it) and down.
    Counted over the whole job, without the initial values: the first worker sends these, so they are the
    bytes that it sends more than the second.
    """
    links = {link.name: link for link in result.links}
    first = links["u1h1"].bytes_up - links["u1h2"].bytes_up if run.workers > 1 else 0
    optimizer = links[result.ps_host or ""]
    share = elements * (run.steps + WARM_UP)
    return NodeBytes(optimizer.bytes_up / share, (optimizer.bytes_down - first) / share)


def predicted(rows: Sequence[TrainedRow], scale: int) -> list[TrainedRow]:
    """Add the model's seconds of an iteration to each row; None where the model does not cover the way. Where
    no disks are declared, `step_s` is taken from the measurement. Pure.
    """
    return [replace(row, predicted_s=_predicted_s(row, rows, scale)) for row in rows]


def _predicted_s(row: TrainedRow, rows: Sequence[TrainedRow], scale: int) -> float | None:
    if row.way not in (LUWU.name, *SHARDED) or row.workers < 2 - (row.way == LUWU.name):
        return None
    step_s, disks_bytes_s = row.step_s, None
    if row.disk_mb_s is not None:
        free = [each for each in rows if each.disk_mb_s is None and each.way == row.way]
        step_s = free[0].step_s if free else 0.0
        disks_bytes_s = row.disks * row.disk_mb_s * 1e6
    run = scaled.Emulated(
        setting.link_bytes_s(scale),
        row.forward_s - row.forward_waited_s,
        row.backward_s - row.backward_waited_s,
        step_s,
        disks_bytes_s,
    )
    model = scaled.elements(row.layers, row.width, row.length)
    if row.way == LUWU.name:
        return scaled.luwu(model, run)
    return SHARDED[row.way](model, run, row.workers)


def breakdown(quick: bool) -> list[LiveRun]:
    """Return a run of each way, and the ways with states on disks again with declared disks. The optimizer's
    disks, or all workers' together, have 2.08 times a link's rate, as in section 4.1.
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
    """Return runs of LuWu, of FSDP as it reduces over gloo, and of the tuned FSDP, by number of blocks."""
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
    """Return runs at two depths, whose difference gives the memory per parameter. Texts are short because
    activations grow with the depth too.
    """
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
    """Return runs by number of disks. The first declares none: its step takes this machine's own time."""
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
"""The runs of each figure, with or without `quick`."""
