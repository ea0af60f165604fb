"""The picture of a comparison: each run as a dot, each mean with its interval, a panel for each
measure that is not the same in all.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.records.comparison import Comparison, NumberRow
from testbed.records.statistics import Said
from testbed.records.tables import LETTERS
from testbed.report.style import FAINT, INK, MUTED, PALETTE

MOST_PANELS = 9
_COLUMNS = 3
_SPREAD = 0.24  # of the dots of a side, from its middle


def draw(compared: Comparison, path: Path) -> None:
    """Write the picture as a PNG."""
    differing = [
        row for row in compared.rows if any(each and each.said != Said.SAME for each in row.differences)
    ]
    rows = (differing or list(compared.rows))[:MOST_PANELS]
    columns = min(_COLUMNS, len(rows))
    lines = math.ceil(len(rows) / columns)
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK}):
        figure = Figure(figsize=(3.4 * columns, 2.8 * lines + 0.5), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).flat
        for row, panel in zip(rows, panels, strict=False):
            _panel(panel, row)
        for panel in list(panels):
            panel.set_axis_off()
        names = zip(LETTERS, compared.sides, strict=False)
        figure.suptitle(
            "\n".join(f"{letter}: {side.name}" for letter, side in names), fontsize=9, x=0.01, ha="left"
        )
        figure.savefig(path, dpi=150)


def _panel(panel: Axes, row: NumberRow) -> None:
    unit = f", {row.measure.unit}" if row.measure.unit else ""
    panel.set_title(f"{row.measure.title}{unit}", fontsize=9, loc="left")
    for at, mean in enumerate(row.means):
        if mean is None:
            continue
        colour = PALETTE[at % len(PALETTE)]
        count = len(mean.values)
        places = [
            at + (_SPREAD * (2 * each / (count - 1) - 1) if count > 1 else 0.0) for each in range(count)
        ]
        panel.plot(places, mean.values, "o", color=colour, alpha=0.45, markersize=4, markeredgewidth=0)
        panel.errorbar([at], [mean.mean], yerr=mean.half_width, fmt="_", color=INK, markersize=14, capsize=5)
    ticks = [letter + _mark(row, at) for at, letter in enumerate(LETTERS[: len(row.means)])]
    panel.set_xticks(range(len(ticks)), ticks)
    panel.set_xlim(-0.6, len(ticks) - 0.4)
    panel.grid(axis="y", color=FAINT)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _mark(row: NumberRow, at: int) -> str:
    """Return what stands below a side: its difference from the first, where that is more than the noise."""
    difference = row.differences[at - 1] if at else None
    if difference is None or difference.said != Said.MORE:
        return ""
    return (
        f"\n{difference.relative:+.1%}"
        if difference.relative is not None
        else f"\n{difference.absolute:+.3g}"
    )
