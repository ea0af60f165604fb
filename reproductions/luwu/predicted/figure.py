"""Figures 10 to 15 as experiments: predictions by the model of testbed/systems/luwu. Heavy modules are
imported only when a figure is used.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reproductions.experiment import Chart, Experiment, ExperimentOption
from testbed.errors import RequestError

if TYPE_CHECKING:
    from reproductions.claims import Finding
    from reproductions.luwu.predicted.rows import LargestReport, LargestRow, PredictedReport
    from testbed.systems.luwu.hardware import Hardware
    from testbed.systems.luwu.prediction import Prediction

VERSION = 1
PLANS: Mapping[str, str] = {
    "fig10": "the largest model by the number of workers",
    "fig11": "throughput by micro-batch, OPT-175B and OPT-1.3B",
    "fig12": "throughput by model, each with its largest micro-batch",
    "fig13": "throughput beside ZeRO-Infinity with SHARP, OPT-30B on 4 workers",
    "fig14": "throughput of all workers by their number, OPT-30B",
    "fig15": "iteration time by the optimizer's disks, OPT-175B",
}
WORKERS = (1, 2, 4, 8)
DISKS = (4, 8, 12)


def _complete(_: str, options: Namespace) -> None:
    for key in ("link_gbps", "disk_gb_s"):
        value = getattr(options, key)
        if not 0 < value < 1e6:
            option = "--" + key.replace("_", "-")
            raise RequestError(f"{option} {value:g}: more than 0 and less than 1e6 is accepted")


def _hardware(options: Namespace) -> Hardware:
    from testbed.systems.luwu.hardware import Hardware

    return Hardware(
        link_bytes_s=options.link_gbps * 1e9 / 8,
        disk_bytes_s=options.disk_gb_s * 1e9,
        worker_disks_bytes_s=options.disk_gb_s * 1e9 * 12 / 8,
    )


def _largest_rows(figure: str, options: Namespace, _: Path) -> LargestReport:
    from reproductions.luwu.predicted.rows import LargestReport

    hardware = _hardware(options)
    return LargestReport(VERSION, PLANS[figure], hardware, _largest(hardware))


def _rows(figure: str, options: Namespace, _: Path) -> PredictedReport:
    from reproductions.luwu.predicted.rows import PredictedReport

    hardware = _hardware(options)
    return PredictedReport(VERSION, PLANS[figure], hardware, _RUNS[figure](hardware))


def _largest_claims(_: str, report: LargestReport) -> list[Finding]:
    from reproductions.luwu.predicted.claims import of_largest

    return of_largest(report.rows)


def _claims(figure: str, report: PredictedReport) -> list[Finding]:
    from reproductions.luwu.predicted.claims import findings

    return findings(figure, report.rows)


def _largest_chart() -> Chart[LargestReport]:
    from reproductions.luwu.predicted import plots, rows, tables

    return Chart(rows.LargestReport, tables.show_largest, plots.draw_largest)


def _chart() -> Chart[PredictedReport]:
    from reproductions.luwu.predicted import plots, rows, tables

    return Chart(rows.PredictedReport, tables.show, plots.draw)


def _largest(hardware: Hardware) -> list[LargestRow]:
    from reproductions.luwu.predicted.rows import LargestRow
    from testbed.systems.luwu import memory
    from testbed.systems.luwu.prediction import with_workers

    rows = []
    for system in (memory.LUWU, memory.INFINITY, memory.ZERO3, memory.SWITCHML):
        for workers in WORKERS:
            shape = memory.largest_model(system, with_workers(hardware, workers))
            rows.append(
                LargestRow(
                    system,
                    workers,
                    model=shape.name if shape else None,
                    parameters=shape.parameters if shape else 0,
                    disks_hold=memory.most_parameters(hardware) if system == memory.LUWU else None,
                )
            )
    return rows


def _by_micro_batch(hardware: Hardware) -> list[Prediction]:
    from testbed.systems.luwu.memory import INFINITY, LUWU, SWITCHML, ZERO3
    from testbed.systems.luwu.prediction import by_micro_batch
    from testbed.systems.luwu.shapes import SHAPES

    return [
        prediction
        for model in ("175B", "1.3B")
        for system in (LUWU, INFINITY, ZERO3, SWITCHML)
        for prediction in by_micro_batch(system, SHAPES[model], hardware)
    ]


def _by_model(hardware: Hardware) -> list[Prediction]:
    from testbed.systems.luwu.memory import INFINITY, LUWU, SWITCHML, ZERO3
    from testbed.systems.luwu.prediction import at_largest
    from testbed.systems.luwu.shapes import SHAPES

    predictions = [
        at_largest(system, shape, hardware)
        for system in (LUWU, INFINITY, ZERO3, SWITCHML)
        for shape in SHAPES.values()
    ]
    return [prediction for prediction in predictions if prediction is not None]


def _beside_sharp(hardware: Hardware) -> list[Prediction]:
    from dataclasses import replace

    from testbed.systems.luwu.memory import LUWU, SHARP
    from testbed.systems.luwu.prediction import by_micro_batch
    from testbed.systems.luwu.shapes import SHAPES

    # four workers with four disks each have together the rate of the optimizer's disks (section 4.4)
    four = replace(hardware, workers=4, worker_disks_bytes_s=hardware.worker_disks_bytes_s * 2)
    return [
        prediction for system in (LUWU, SHARP) for prediction in by_micro_batch(system, SHAPES["30B"], four)
    ]


def _by_workers(hardware: Hardware) -> list[Prediction]:
    from testbed.systems.luwu.memory import INFINITY, LUWU
    from testbed.systems.luwu.prediction import BOUND, predict, with_workers
    from testbed.systems.luwu.shapes import SHAPES

    return [
        predict(system, SHAPES["30B"], with_workers(hardware, workers), micro_batch)
        for micro_batch in (8, 32)
        for system in (LUWU, INFINITY, BOUND)
        for workers in WORKERS
    ]


def _by_disks(hardware: Hardware) -> list[Prediction]:
    from dataclasses import replace

    from testbed.systems.luwu.memory import LUWU
    from testbed.systems.luwu.prediction import predict
    from testbed.systems.luwu.shapes import SHAPES

    return [
        predict(LUWU, SHAPES["175B"], replace(hardware, disks=disks), micro_batch)
        for disks in DISKS
        for micro_batch in (4, 8, 16, 24, 32)
    ]


_RUNS: Mapping[str, Callable[[Hardware], list[Prediction]]] = {
    "fig11": _by_micro_batch,
    "fig12": _by_model,
    "fig13": _beside_sharp,
    "fig14": _by_workers,
    "fig15": _by_disks,
}
_ABOUT = (
    "Predicts one of figures 10 to 15 by the model of testbed/systems/luwu: no testbed, no GPU. What was "
    "declared, and where our ratios are not the paper's: docs/luwu.md."
)
_DECLARED = (
    ExperimentOption("link-gbps", "of every link, each way (100)", float, "R", usual=100.0),
    ExperimentOption("disk-gb-s", "GB/s of a disk, each way (2.167)", float, "R", usual=26 / 12),
)
EXPERIMENTS = (
    Experiment(
        name="fig10",
        on_testbed=False,
        about=_ABOUT,
        declared=_DECLARED,
        rows=_largest_rows,
        findings=_largest_claims,
        chart=_largest_chart,
        complete=_complete,
    ),
    *(
        Experiment(
            name=name,
            on_testbed=False,
            about=_ABOUT,
            declared=_DECLARED,
            rows=_rows,
            findings=_claims,
            chart=_chart,
            complete=_complete,
        )
        for name in _RUNS
    ),
)
