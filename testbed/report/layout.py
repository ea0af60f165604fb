"""Lay out a picture's texts: its headline, its legends, the names of jobs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from testbed.report.style import MUTED, look

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def named(name: str, width: int = 24) -> str:
    """Wrap a job's title to a width in characters."""
    return textwrap.fill(look(name).title, max(8, width))


def beside(axes: Axes, entries: Mapping[str, Artist | tuple[Artist, ...]], title: str | None = None) -> None:
    """Put a legend to the right of a panel, outside its curves, in the order of the entries. A tuple of
    handles makes one entry.
    """
    from matplotlib.legend_handler import HandlerTuple

    axes.legend(
        list(entries.values()), list(entries), title=title, loc="upper left", bbox_to_anchor=(1.02, 1.0),
        frameon=False, fontsize=9, borderaxespad=0, alignment="left",
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)},
    )  # fmt: skip


def headline(figure: Figure, finding: str, detail: str) -> float:
    """Write a headline and its detail above a picture, wrapped to fit; return their height in inches."""
    height, width = figure.get_figheight(), figure.get_figwidth() - 0.3
    findings = textwrap.wrap(finding, max(20, int(width / 0.115)))
    details = textwrap.wrap(detail, max(20, int(width / 0.078)))
    below = 0.46 + 0.24 * (len(findings) - 1)
    left = 0.15 / figure.get_figwidth()
    figure.text(left, 1 - 0.16 / height, "\n".join(findings), fontsize=13, fontweight="bold", va="top")
    figure.text(left, 1 - below / height, "\n".join(details), fontsize=9.5, color=MUTED, va="top")
    return below + 0.19 * len(details)


def arrange(figure: Figure, top: float) -> None:
    """Lay a picture out below its headline, which is `top` inches high, so that no text is cut off or
    overlaps.
    """
    height, width = figure.get_figheight(), figure.get_figwidth()
    rect = (0.1 / width, 0.08 / height, 1 - 0.25 / width, 1 - (top + 0.22) / height)
    figure.set_layout_engine("constrained", rect=rect)
