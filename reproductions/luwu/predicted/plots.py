"""Pictures of LuWu's predicted figures. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from reproductions.claims import tally
from reproductions.luwu.predicted.claims import PAPER_OVER_BOUND
from reproductions.luwu.predicted.rows import LargestReport, LargestRow, PredictedReport
from testbed.figures.verdict_gate import headline
from testbed.report.plots import drawing, save
from testbed.report.style import INK
from testbed.systems.luwu.memory import INFINITY, LUWU, SHARP, SWITCHML, ZERO3
from testbed.systems.luwu.prediction import BOUND, TITLES, Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Prediction]
AnyRow = TypeVar("AnyRow", LargestRow, Prediction)
# colours of Okabe and Ito
LOOKS: Mapping[str, tuple[str, str]] = {
    LUWU: ("#009E73", "o"),
    INFINITY: ("#D55E00", "s"),
    BOUND: ("#E69F00", "v"),
    SHARP: ("#A34F8A", "D"),
    ZERO3: ("#0072B2", "^"),
    SWITCHML: ("#6B7785", "x"),
}


def draw_largest(report: LargestReport, path: Path) -> None:
    """Write figure 10 as a PNG."""
    with drawing() as plt:
        save(plt, _picture(report, _largest(report.rows)), path)


def draw(report: PredictedReport, path: Path) -> None:
    """Write one of figures 11 to 15 as a PNG."""
    with drawing() as plt:
        save(plt, _picture(report, _PANELS[report.figure](report.rows)), path)


def _picture(report: LargestReport | PredictedReport, panels: list[Panel]) -> Figure:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(10, 4.9), squeeze=False)
    for place, (title, draws) in zip(axes[0], panels, strict=True):
        draws(place)
        place.set_title(title)
        place.grid(True, axis="y")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, bbox_to_anchor=(0.5, 0.0))
    headline(
        figure,
        report,
        f"Predicted: {report.about}",
        f"By a model of the paper's hardware {tally(report.claims)}.",
        (),
    )
    figure.subplots_adjust(left=0.08, right=0.985, top=0.79, bottom=0.235, wspace=0.2)
    return figure


Panel = tuple[str, Callable[["Axes"], None]]


def _lines(
    rows: Sequence[AnyRow],
    of: Callable[[AnyRow], object],
    value: Callable[[AnyRow], float],
    label: str,
    values: str,
) -> Callable[[Axes], None]:
    """Return a function that draws a line for each system."""

    def draws(axes: Axes) -> None:
        for system in dict.fromkeys(row.system for row in rows):
            colour, mark = LOOKS[system]
            group = [row for row in rows if row.system == system]
            heights = [value(row) for row in group]
            axes.plot(
                [str(of(row)) for row in group], heights, mark + "-", color=colour, label=TITLES[system]
            )
        axes.set_xlabel(label)
        axes.set_ylabel(values)
        axes.set_ylim(bottom=0)

    return draws


def _largest(rows: Sequence[LargestRow]) -> list[Panel]:
    def draws(axes: Axes) -> None:
        _lines(rows, lambda row: row.workers, lambda row: row.parameters, "workers", "parameters")(axes)
        axes.set_yscale("log")
        axes.set_ylim(1e9, 2e12)

    return [("largest model that fits", draws)]


def _tflops(row: Prediction) -> float:
    return row.tflops


def _by_micro_batch(rows: Rows) -> list[Panel]:
    return [
        (
            f"OPT-{model}",
            _lines(
                [row for row in rows if row.model == model],
                lambda row: row.micro_batch,
                _tflops,
                "micro-batch",
                "TFLOPS a GPU",
            ),
        )
        for model in ("1.3B", "175B")
    ]


def _by_model(rows: Rows) -> list[Panel]:
    return [
        (
            "each with its largest micro-batch",
            _lines(rows, lambda row: row.model, _tflops, "OPT", "TFLOPS a GPU"),
        )
    ]


def _beside_sharp(rows: Rows) -> list[Panel]:
    return [
        (
            "OPT-30B, 4 workers",
            _lines(rows, lambda row: row.micro_batch, _tflops, "micro-batch", "TFLOPS a GPU"),
        )
    ]


def _by_workers(rows: Rows) -> list[Panel]:
    return [(f"micro-batch {size}", _of_size(rows, size)) for size in (8, 32)]


def _of_size(rows: Rows, size: int) -> Callable[[Axes], None]:
    """Return a function that draws a micro-batch's lines, and marks LuWu at 8 workers by the paper's ratio
    over the bound.
    """
    group = [row for row in rows if row.micro_batch == size]

    def draws(axes: Axes) -> None:
        _lines(group, lambda row: row.workers, _of_all, "workers", "TFLOPS of all")(axes)
        for row in group:
            if (row.system, row.workers) == (BOUND, 8):
                height = PAPER_OVER_BOUND[size] * _of_all(row)
                axes.plot("8", height, "*", color=INK, markersize=10, linestyle="none", zorder=5,
                          label="LuWu by the paper's ratio over the bound")  # fmt: skip
                axes.set_ylim(top=max(axes.get_ylim()[1], 1.06 * height))

    return draws


def _of_all(row: Prediction) -> float:
    return row.tflops * row.workers


def _by_disks(rows: Rows) -> list[Panel]:
    def draws(axes: Axes) -> None:
        sizes = list(dict.fromkeys(row.micro_batch for row in rows))
        for disks, shade in zip(dict.fromkeys(row.disks for row in rows), (0.35, 0.65, 1.0), strict=False):
            group = [row for row in rows if row.disks == disks]
            axes.plot(
                [str(size) for size in sizes],
                [row.iteration_s for row in group],
                "o-",
                color=LOOKS[LUWU][0],
                alpha=shade,
                label=f"{disks} disks",
            )
        computing = [row.computing_s for row in rows[: len(sizes)]]
        axes.plot([str(size) for size in sizes], computing, "--", color="#6B7785", label="computing alone")
        axes.set_xlabel("micro-batch")
        axes.set_ylabel("iteration, s")
        axes.set_ylim(bottom=0)

    return [("OPT-175B, 8 workers", draws)]


_PANELS: Mapping[str, Callable[[Rows], list[Panel]]] = {
    "fig11": _by_micro_batch,
    "fig12": _by_model,
    "fig13": _beside_sharp,
    "fig14": _by_workers,
    "fig15": _by_disks,
}
