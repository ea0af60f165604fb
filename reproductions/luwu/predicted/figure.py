"""Figures 10 to 15 as experiments: predictions by the model of testbed/systems/luwu. Imports nothing heavy
before it is asked for something.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproductions.experiment import Chart, Claims, Experiment, ExperimentOption
from testbed.aggregation.figure import Report
from testbed.errors import RequestError

if TYPE_CHECKING:
    from testbed.systems.luwu.hardware import Hardware

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
Row = dict[str, Any]


def _complete(_: str, options: Namespace) -> None:
    for key in ("link_gbps", "disk_gb_s"):
        value = getattr(options, key)
        if not 0 < value < 1e6:
            option = "--" + key.replace("_", "-")
            raise RequestError(f"{option} {value:g}: more than 0 and less than 1e6 is accepted")


def _rows(figure: str, options: Namespace, _: Path) -> dict[str, Any]:
    from testbed.systems.luwu.hardware import Hardware

    hardware = Hardware(
        link_bytes_s=options.link_gbps * 1e9 / 8,
        disk_bytes_s=options.disk_gb_s * 1e9,
        worker_disks_bytes_s=options.disk_gb_s * 1e9 * 12 / 8,
    )
    return {
        "version": VERSION,
        "about": PLANS[figure],
        "hardware": asdict(hardware),
        "rows": _RUNS[figure](hardware),
    }


def _claims(figure: str, report: Report) -> Claims:
    from reproductions.luwu.predicted.claims import findings

    return [asdict(finding) for finding in findings(figure, report["rows"])]


def _chart() -> Chart:
    from reproductions.luwu.predicted import plots, tables

    return Chart(tables.show, plots.draw)


def _largest(hardware: Hardware) -> list[Row]:
    from testbed.systems.luwu import memory
    from testbed.systems.luwu.prediction import with_workers

    rows = []
    for system in (memory.LUWU, memory.INFINITY, memory.ZERO3, memory.SWITCHML):
        for workers in WORKERS:
            shape = memory.largest_model(system, with_workers(hardware, workers))
            rows.append(
                {
                    "system": system,
                    "workers": workers,
                    "model": shape.name if shape else None,
                    "parameters": shape.parameters if shape else 0,
                    "disks_hold": memory.most_parameters(hardware) if system == memory.LUWU else None,
                }
            )
    return rows


def _by_micro_batch(hardware: Hardware) -> list[Row]:
    from testbed.systems.luwu.memory import INFINITY, LUWU, SWITCHML, ZERO3
    from testbed.systems.luwu.prediction import by_micro_batch
    from testbed.systems.luwu.shapes import SHAPES

    return [
        _row(prediction)
        for model in ("175B", "1.3B")
        for system in (LUWU, INFINITY, ZERO3, SWITCHML)
        for prediction in by_micro_batch(system, SHAPES[model], hardware)
    ]


def _by_model(hardware: Hardware) -> list[Row]:
    from testbed.systems.luwu.memory import INFINITY, LUWU, SWITCHML, ZERO3
    from testbed.systems.luwu.prediction import at_largest
    from testbed.systems.luwu.shapes import SHAPES

    predictions = [
        at_largest(system, shape, hardware)
        for system in (LUWU, INFINITY, ZERO3, SWITCHML)
        for shape in SHAPES.values()
    ]
    return [_row(prediction) for prediction in predictions if prediction is not None]


def _beside_sharp(hardware: Hardware) -> list[Row]:
    from dataclasses import replace

    from testbed.systems.luwu.memory import LUWU, SHARP
    from testbed.systems.luwu.prediction import by_micro_batch
    from testbed.systems.luwu.shapes import SHAPES

    # four workers of four disks each have the optimizer's rate together (section 4.4)
    four = replace(hardware, workers=4, worker_disks_bytes_s=hardware.worker_disks_bytes_s * 2)
    return [
        _row(prediction)
        for system in (LUWU, SHARP)
        for prediction in by_micro_batch(system, SHAPES["30B"], four)
    ]


def _by_workers(hardware: Hardware) -> list[Row]:
    from testbed.systems.luwu.memory import INFINITY, LUWU
    from testbed.systems.luwu.prediction import BOUND, predict, with_workers
    from testbed.systems.luwu.shapes import SHAPES

    return [
        _row(predict(system, SHAPES["30B"], with_workers(hardware, workers), micro_batch))
        for micro_batch in (8, 32)
        for system in (LUWU, INFINITY, BOUND)
        for workers in WORKERS
    ]


def _by_disks(hardware: Hardware) -> list[Row]:
    from dataclasses import replace

    from testbed.systems.luwu.memory import LUWU
    from testbed.systems.luwu.prediction import predict
    from testbed.systems.luwu.shapes import SHAPES

    return [
        _row(predict(LUWU, SHAPES["175B"], replace(hardware, disks=disks), micro_batch))
        for disks in DISKS
        for micro_batch in (4, 8, 16, 24, 32)
    ]


def _row(prediction: Any) -> Row:
    return {**asdict(prediction), "tflops": prediction.tflops}


_RUNS: Mapping[str, Callable[[Any], list[Row]]] = {
    "fig10": _largest,
    "fig11": _by_micro_batch,
    "fig12": _by_model,
    "fig13": _beside_sharp,
    "fig14": _by_workers,
    "fig15": _by_disks,
}
EXPERIMENTS = tuple(
    Experiment(
        name=name,
        on_testbed=False,
        about="Predicts one of figures 10 to 15 by the model of testbed/systems/luwu: no testbed, no GPU. "
        "What was declared, and where our ratios are not the paper's: docs/luwu.md.",
        declared=(
            ExperimentOption("link-gbps", "of every link, each way (100)", float, "R", usual=100.0),
            ExperimentOption("disk-gb-s", "GB/s of a disk, each way (2.167)", float, "R", usual=26 / 12),
        ),
        rows=_rows,
        findings=_claims,
        chart=_chart,
        complete=_complete,
    )
    for name in PLANS
)
