"""The picture of jobs over circuits in time, as a Plotly figure: a row for each job and each circuit, which
can be dragged back in time. Pure.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from testbed.webpage import colours
from testbed.webpage.spans import Spans

MOST_JOBS, MOST_CIRCUITS = 24, 40  # rows
SHOWN_S = 300.0  # by default
_NEAR_S = 1.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a row, with its colour and hover text. Times are seconds since 1970."""

    row: str
    began: float
    ended: float
    colour: str
    text: str


def rows(spans: Spans) -> list[str]:
    """Return the rows from the top: the newest jobs, then the most recent circuits, sorted by name."""
    jobs = [job.name for job in sorted(spans.jobs, key=lambda job: job.number)][-MOST_JOBS:]
    newest = sorted(spans.circuits, key=lambda span: span.ended, reverse=True)
    circuits = list(dict.fromkeys(span.name for span in newest))[:MOST_CIRCUITS]
    return [*jobs, *sorted(circuits)]


def bars(spans: Spans) -> Iterator[Bar]:
    """Yield the bars; those of dark times last, so that they are drawn above the others."""
    known = set(rows(spans))
    for job in spans.jobs:
        if job.name in known:
            ended = min(job.ended, spans.now)
            colour = colours.BAD if job.has_failed else colours.of_job(job.number)
            yield Bar(job.name, job.began, ended, colour, f"{job.name}, {ended - job.began:.1f} s")
    for span in sorted(spans.circuits, key=lambda span: span.is_dark):
        ended = min(span.ended, spans.now)
        if span.name not in known or ended <= span.began:
            continue
        if span.is_dark:
            text, colour = f"{span.name} dark for {(ended - span.began) * 1e3:.3f} ms", colours.DARK
        else:
            users = f", job{'s' * (len(span.jobs) > 1)} {' '.join(map(str, span.jobs))}" if span.jobs else ""
            text = f"{span.name} lit{users}, {ended - span.began:.1f} s"
            colour = colours.of_job(span.jobs[0] if span.jobs else None)
        yield Bar(span.name, span.began, ended, colour, text)


@dataclass(frozen=True, slots=True)
class ChosenStretch:
    """A user's choice with the mouse: everything, or a dragged `range`, which `follows` the time if it ends
    now.
    """

    range: tuple[float, float] | None = None
    follows: bool = False

    @classmethod
    def read(cls, data: Any) -> Self | None:
        """Read what the browser stores; None for nothing."""
        if not data:
            return None
        if "range" not in data:
            return cls()
        began, ended = (float(at) for at in data["range"])
        return cls((began, ended), bool(data["follows"]))

    def as_data(self) -> dict[str, Any]:
        """Return what the browser stores."""
        return {"whole": True} if self.range is None else {"range": list(self.range), "follows": self.follows}


@dataclass(frozen=True, slots=True)
class Stretch:
    """The displayed stretch of time, in seconds since 1970."""

    began: float
    ended: float

    @classmethod
    def chosen(cls, spans: Spans, choice: ChosenStretch | None) -> Self:
        """Return the stretch to display, by the user's choice; without one, the last SHOWN_S seconds."""
        if choice is None:
            return cls(max(spans.began, spans.now - SHOWN_S), spans.now)
        if choice.range is None:
            return cls(spans.began, spans.now)
        began, ended = choice.range
        return cls(spans.now - (ended - began), spans.now) if choice.follows else cls(began, ended)


def choice_of(event: Any, now: float) -> ChosenStretch | None:
    """Return the user's choice with the mouse from Plotly's event; None for an unrelated event. `now` is the
    end of the displayed picture.
    """
    if event.get("xaxis.autorange"):
        return ChosenStretch()
    if "xaxis.range[0]" not in event or "xaxis.range[1]" not in event:
        return None
    began, ended = (moment(event[f"xaxis.range[{end}]"]) for end in (0, 1))
    return ChosenStretch((began, ended), ended >= now - _NEAR_S)


def moment(text: str) -> float:
    """Invert `stamp`."""
    return datetime.fromisoformat(text).timestamp()


def figure(spans: Spans, shown: Stretch) -> dict[str, Any]:
    """Return the figure. Dragging moves it, the wheel zooms, a double click shows everything."""
    names, drawn = rows(spans), list(bars(spans))
    dark = colours.DARK
    edges = [2 if bar.colour == dark else 0 for bar in drawn]  # pixels, so that a millisecond is visible
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "y": [bar.row for bar in drawn],
                "base": [stamp(bar.began) for bar in drawn],
                "x": [max((bar.ended - bar.began) * 1e3, 1.0) for bar in drawn],
                "width": [0.5 if bar.colour == dark else 0.72 for bar in drawn],
                "marker": {"color": [bar.colour for bar in drawn], "line": {"color": dark, "width": edges}},
                "hovertext": [bar.text for bar in drawn],
                "hoverinfo": "text",
                "showlegend": False,
            }
        ],
        "layout": {
            "height": 90 + 24 * max(2, len(names)),
            "margin": {"l": 4, "r": 8, "t": 34, "b": 4},
            "barmode": "overlay",
            "bargap": 0.2,
            "dragmode": "pan",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "hoverlabel": {"bgcolor": "#222", "font": {"color": "#fff"}},
            "uirevision": "timeline",
            "meta": spans.now,
            "xaxis": {
                "type": "date",
                "range": [stamp(shown.began), stamp(shown.ended)],
                "gridcolor": "rgba(128,128,128,0.25)",
                "automargin": True,
                "rangeselector": {
                    "x": 0,
                    "buttons": [
                        _button(1, "1 min"),
                        _button(5, "5 min"),
                        _button(60, "1 h"),
                        {"step": "all", "label": "all"},
                    ],
                },
            },
            "yaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": names[::-1],
                "range": [-0.6, max(2, len(names)) - 0.4],
                "fixedrange": True,
                "automargin": True,
            },
        },
    }


def stamp(at: float) -> str:
    """Format a time by the local clock, for Plotly."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}.{int(at * 1e3) % 1000:03}"


def _button(minutes: int, label: str) -> dict[str, int | str]:
    return {"count": minutes, "step": "minute", "stepmode": "backward", "label": label}
