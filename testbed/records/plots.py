"""Draw a comparison: a panel for each measure that differs, with each run as a dot and each mean with its
interval. A side's name consists of the parts of its set-up that are its own.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from testbed.records.comparison import Comparison, Differing, NumberRow
from testbed.records.statistics import Mean, Said
from testbed.report.layout import arrange, headline
from testbed.report.style import FAINT, INK, MUTED, PALETTE

MOST_PANELS = 9
_COLUMNS = 3
_SPREAD = 0.24  # the largest distance of a side's dots from its middle
_MOST_PARTS = 3  # the most parts of a set-up in a name
_MOST_TRIED = 12  # how many parts of a set-up are tried for names, in the order of the list
_MOST_SHOWN = 32  # the most characters of a part's value in a name
_KINDS = ("option ", "configuration ", "network ")  # prefixes of parts, omitted in names
_HIDDEN_SHARE = 0.07  # if differences take less of an axis that begins at 0, the axis is cut


def draw(compared: Comparison, path: Path) -> None:
    """Write the picture as a PNG."""
    differing = [
        row for row in compared.rows if any(each and each.said != Said.SAME for each in row.differences)
    ]
    rows = (differing or list(compared.rows))[:MOST_PANELS]
    names = side_names(compared)
    columns = min(_COLUMNS, len(rows))
    lines = math.ceil(len(rows) / columns)
    sides = len(names)
    wide = max(3.4, 0.95 * sides + 0.6)
    heads = "; ".join(
        f"{name}: {side.name}" for name, side in zip(names, compared.sides, strict=True) if name != side.name
    )
    dots = (
        "Dots: runs. Dark lines: means with their 95 % intervals. A percentage: the difference from the "
        "first, where it is more than the noise."
    )
    with mpl.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK}):
        figure = Figure(figsize=(max(6.4, wide * columns), 3.2 * lines + 1.2))
        panels = list(figure.subplots(lines, columns, squeeze=False).flat)
        for row, panel in zip(rows, panels, strict=False):
            draw_panel(panel, row, names)
        for panel in panels[len(rows) :]:
            panel.set_axis_off()
        more = len(differing) - len(rows)
        if any(side.is_doubtful() for side in compared.sides):
            dots += " Not judged: a time, for not all runs are trustworthy."
        left_out = f" {more} more numbers that differ are not drawn." if more > 0 else ""
        title = " and ".join(names) if sides == 2 else f"{sides} set-ups, the first one {names[0]}"
        arrange(figure, headline(figure, title, f"{dots}{left_out} {heads}".rstrip()))
        figure.savefig(path, dpi=150)


def side_names(compared: Comparison) -> list[str]:
    """Name each side by the fewest parts of its set-up that tell all sides apart; by its records if none
    do.
    """
    sides = len(compared.sides)
    parts = [part for part in compared.set_up if len(set(part.values)) > 1]
    for count in range(1, _MOST_PARTS + 1):
        for chosen in itertools.combinations(parts[:_MOST_TRIED], count):
            if len(set(zip(*(part.values for part in chosen), strict=True))) == sides:
                return [", ".join(_part(part, at) for part in chosen) for at in range(sides)]
    return [side.name for side in compared.sides]


def _part(part: Differing, at: int) -> str:
    """Format a part of a side's set-up with its value; of a long value the end, which tells paths apart."""
    what, text = part.what, part.values[at]
    for kind in _KINDS:
        what = what.removeprefix(kind)
    if len(text) > _MOST_SHOWN:
        tail = text[3 - _MOST_SHOWN :]
        text = f"...{tail[max(0, tail.find('/')) :]}"
    return f"{what} {text}"


def draw_panel(panel: Axes, row: NumberRow, names: Sequence[str]) -> None:
    """Draw one measure of all sides, with these names."""
    unit = f", {row.measure.unit}" if row.measure.unit else ""
    for at, mean in enumerate(row.means):
        if mean is None:
            panel.text(at, 0.5, "no number", rotation=90, transform=panel.get_xaxis_transform(),
                       ha="center", va="center", color=MUTED)  # fmt: skip
            continue
        colour = PALETTE[at % len(PALETTE)]
        count = len(mean.values)
        places = [
            at + (_SPREAD * (2 * each / (count - 1) - 1) if count > 1 else 0.0) for each in range(count)
        ]
        panel.plot(places, mean.values, "o", color=colour, alpha=0.45, markersize=4, markeredgewidth=0)
        panel.errorbar([at], [mean.mean], yerr=mean.half_width, fmt="_", color=INK, markersize=14, capsize=5)
    is_cut = _limit(panel, [mean for mean in row.means if mean is not None])
    cut = "\n(axis cut: it does not begin at 0)" if is_cut else ""
    panel.set_title(f"{textwrap.fill(row.measure.title + unit, 38)}{cut}", fontsize=9, loc="left")
    ticks = [textwrap.fill(name, 16) + _mark(row, at) for at, name in enumerate(names)]
    panel.set_xticks(range(len(ticks)), ticks)
    panel.set_xlim(-0.6, len(ticks) - 0.4)
    panel.grid(axis="y", color=FAINT)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _limit(panel: Axes, means: Sequence[Mean]) -> bool:
    """Let the axis of values begin at 0. If differences would be too small to see, cut the axis instead, mark
    the cut, and return True.
    """
    ends = [end for mean in means for end in (*mean.values, mean.low, mean.high) if end is not None]
    low, high = min(ends), max(ends)
    if low <= 0 <= high:
        return False
    if high - low >= _HIDDEN_SHARE * max(abs(low), abs(high)) or low == high:
        if low > 0:
            panel.set_ylim(0, high * 1.08)
        else:
            panel.set_ylim(low * 1.08, 0)
        return False
    room = 0.15 * (high - low)
    panel.set_ylim(low - room, high + room)
    panel.ticklabel_format(axis="y", useOffset=False)
    below = 0.0 if low > 0 else 1.0  # the end of the axis that is nearer to 0
    above = below + (0.03 if low > 0 else -0.03)
    panel.plot([0, 0], [below, above], transform=panel.transAxes, clip_on=False, linestyle="none",
               marker=[(-1.0, -0.5), (1.0, 0.5)], color=INK, markersize=9)  # fmt: skip
    return True


def _mark(row: NumberRow, at: int) -> str:
    """Return the text below a side: its difference from the first if that exceeds the noise, or that it is
    not judged.
    """
    difference = row.differences[at - 1] if at else None
    if difference is None or difference.said not in {Said.MORE, Said.UNJUDGED}:
        return ""
    if difference.said == Said.UNJUDGED:
        return f"\n{Said.UNJUDGED}"
    return (
        f"\n{difference.relative:+.1%}"
        if difference.relative is not None
        else f"\n{difference.absolute:+.3g}"
    )
