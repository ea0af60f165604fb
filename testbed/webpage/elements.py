"""The parts of the page that are no pictures, as Dash's components, made from a view."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from dash import html
from dash.development.base_component import Component

from testbed.client.terminal_text import line
from testbed.records.record import Record
from testbed.webpage import colours
from testbed.webpage.view import Happening, JobLine, ShownQueued, View

RECORDS_SHOWN = 100
OF_TIMELINE = (
    "Circuits have the colour of the job that uses them, and a dark edge where they were dark. Drag the "
    "picture to go back, turn the wheel to zoom, click twice for all of it."
)
END, CLEAR, PORT = "end", "clear", "port"  # what buttons do, to a job, a circuit and a port
Parts = list[str | Component]
Content = str | Component | Parts


def head(view: View) -> list[Component]:
    """Return the title, warnings and general facts."""
    return [
        html.H1(view.title),
        html.Ul([html.Li(line) for line in view.attention], className="attention"),
        html.Dl([part for name, text in view.facts for part in (html.Dt(name), html.Dd(text))]),
    ]


def legend() -> Component:
    """Return the legend of the fabric's picture."""
    lines = [
        html.Li([html.Span(className="line", style={"background": colour, "height": f"{width:g}px"}), words])
        for _, colour, width, words in reversed(colours.USES)
    ]
    lit = html.Span(className="square", style={"background": colours.LIT})
    dark = html.Span(className="square", style={"background": colours.DARK})
    return html.Ul(
        [
            html.Li("of a link's rate, in its busier direction:"),
            *lines,
            html.Li([lit, "optical port with light"]),
            html.Li([dark, "without"]),
            html.Li("hosts have their jobs' colours"),
        ],
        className="legend",
    )


def button(what: str, of: str, label: str) -> Component:
    """Return a button that the stylesheet shows to whoever may act."""
    return html.Button(label, id={"act": what, "of": of}, className="act")


def ports(view: View) -> list[Component]:
    """Return a button for each optical port, by unit. It is the same for as long as the units are."""
    rows = [
        html.Div([html.Span(unit.name, className="unit"), *(button(PORT, port, port) for port in unit.ports)])
        for unit in view.units
        if unit.ports
    ]
    return [html.Div(rows, className="ports")]


def jobs(view: View) -> list[Component]:
    """Return the table of jobs: running ones, then ended ones."""
    if not view.jobs:
        return [html.P("no jobs", className="empty")]
    names = ("job", "state", "summed by", "script", "hosts", "progress", "circuits", "verdict", "")
    return [_table("jobs", names, [_job_row(job) for job in view.jobs])]


def _job_row(job: JobLine) -> list[Content]:
    dot = html.Span(className="dot", style={"background": colours.of_job(job.number)})
    trust = {True: "good", False: "bad", None: ""}[job.trustworthy]
    verdict: Parts = [html.Span(job.badge, className=f"badge {trust}")]
    if job.ratio is not None:
        verdict.append(html.Span(f" {job.ratio:.2f} times the bound", className="ratio"))
    lines = [html.Span(job.verdict, className="verdict"), html.Ul([html.Li(line) for line in job.attention])]
    verdict.append(html.Details([html.Summary(_notes_in_words(len(job.attention))), *lines]))
    number: Parts = [dot, f" {job.number}"]
    end = _end(job.number, job.is_over)
    return [number, job.state, job.sync, job.script, job.hosts, job.progress, job.uses, verdict, end]


def _end(number: int, is_over: bool) -> Content:
    return "" if is_over else [button(END, str(number), "end")]


def _notes_in_words(count: int) -> str:
    return f"why, and {count} note{'s' * (count != 1)}" if count else "why"


def queue(view: View) -> list[Component]:
    """Return the policy's report, and the table of its jobs."""
    if not view.queue_lines:
        return [html.P("nothing is queued", className="empty")]
    names = ("job", "name", "state", "mode", "Gb/s", "done", "hosts", "")
    return [
        *(html.P(line) for line in view.queue_lines),
        _table("queue", names, [_queue_row(job) for job in view.queue]),
    ]


def _queue_row(job: ShownQueued) -> list[Content]:
    done: Parts = [html.Progress(value=str(round(job.done, 3)), max="1"), f" {job.done:.0%}"]
    end = _end(job.number, job.is_over)
    return [str(job.number), job.name, job.state, job.mode, job.rate, done, job.hosts, end]


def circuits(view: View) -> list[Component]:
    """Return the table of circuits; dark ones are styled dark."""
    if not view.circuits:
        return [html.P("no circuits", className="empty")]
    rows = [
        html.Tr(
            [
                html.Td(circuit.name),
                html.Td(circuit.light),
                html.Td(" ".join(map(str, circuit.jobs))),
                html.Td(button(CLEAR, circuit.name, "clear")),
            ],
            className="lit" if circuit.light == "lit" else "dark",
        )
        for circuit in view.circuits
    ]
    return [_framed("circuits", ("circuit", "light", "jobs", ""), rows)]


def cores(view: View) -> list[Component]:
    """Return each core's busy share."""
    if not view.cores:
        return [html.P("not sampled while no job runs", className="empty")]
    return [
        html.Div(
            [
                html.Span(f"core {core}"),
                html.Progress(value=f"{share:.2f}", max="1"),
                html.Span(f"{share:.0%}", className="share"),
            ],
            className="core",
        )
        for core, share in enumerate(view.cores)
    ]


def happenings(lines: Iterable[Happening]) -> list[Component]:
    """Return the list of events, one per line."""
    items = [
        html.Li([html.Time(time.strftime("%H:%M:%S", time.localtime(line.at))), f" {line.text}"])
        for line in lines
    ]
    return [html.Ul(items, className="happenings")] if items else [html.P("nothing yet", className="empty")]


def records(known: Sequence[Record]) -> list[Component]:
    """Return the table of records, newest first, with links to their pages."""
    if not known:
        return [html.P("no records yet", className="empty")]
    names = ("record", "command", "state", "verdict")
    rows: list[list[Content]] = [
        [
            html.A(line(record.name), href=f"/record/{quote(record.name)}"),
            " ".join(record.words),
            record.state,
            "; ".join(run.verdict.removeprefix("verdict: ") for run in record.runs if run.verdict),
        ]
        for record in reversed(known[-RECORDS_SHOWN:])
    ]
    return [_table("records", names, rows)]


def _table(name: str, names: Sequence[str], rows: Iterable[Sequence[Content]]) -> Component:
    """Return a table. Each cell has its column's name, which a narrow page shows."""
    cells = [[_cell(each, cell) for each, cell in zip(names, row, strict=True)] for row in rows]
    return _framed(name, names, [html.Tr(row) for row in cells])


def _cell(name: str, content: Content) -> Component:
    named: dict[str, Any] = {"data-name": name}
    return html.Td(html.Div(content) if isinstance(content, list) else content, **named)


def _framed(name: str, names: Sequence[str], rows: Sequence[Component]) -> Component:
    """Return a table in a frame that scrolls if the table is wider than the page."""
    header = html.Thead(html.Tr([html.Th(each) for each in names]))
    return html.Div(html.Table([header, html.Tbody(rows)], id=f"table-{name}"), className="frame")
