"""The page itself: its layout and its contents. One request of the browser fetches everything that changed;
between requests nothing runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote

import dash
from dash import ALL, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from testbed.client.terminal_text import line, lines
from testbed.errors import RequestError, TestbedError
from testbed.records.store import Store
from testbed.webpage import elements, fabric_picture, timeline_picture
from testbed.webpage.access import Access
from testbed.webpage.actions import PageActions
from testbed.webpage.fabric_picture import FabricPicture
from testbed.webpage.recorded import of_record
from testbed.webpage.source import PageSource
from testbed.webpage.timeline_picture import ChosenStretch
from testbed.webpage.view import View, of_look

LEAST_S, MOST_S = 2, 30  # between two requests of a browser
SHARE = 0.01  # of a core: determines the time between two requests
_IN_ALL = 2.5  # total cost relative to the cost here: 2.1 with the testbed's part, 2.6 with 384 links
OF_RECORD, RECORDS = "/record/", "/records"
REDRAWN_S = 10  # interval of redrawing the timeline without events
SECTIONS = {
    "head": "",
    "fabric": "Units, links and circuits",
    "timeline": "Jobs over circuits",
    "ports": "Join two ports by a circuit",
    "jobs": "Jobs",
    "queue": "Queue",
    "circuits": "Circuits",
    "cores": "Processors",
    "happenings": "What happened",
    "records": "Records",
}
_CONFIG: Any = {
    "displayModeBar": False,
    "responsive": True,
    "scrollZoom": True,
    "doubleClick": "autosize",
}


@dataclass(frozen=True, slots=True)
class Part:
    """The content of a section of the page. Parts with the same mark look the same."""

    content: Any
    mark: str

    @classmethod
    def of(cls, content: Any) -> Self:
        """Make a part whose mark depends on all of its content."""
        return cls(content, _digest(json.dumps(content, default=lambda each: each.to_plotly_json())))


Parts = dict[str, Part]
Clicks = list[int | None]


def made(
    source: PageSource, store: Store | None, access: Access, actions: PageActions, assets: str
) -> dash.Dash:
    """Make the application. Everything that the browser needs comes from the packages' own folders."""
    app = dash.Dash(
        "testbed",
        assets_folder=assets,
        serve_locally=True,
        include_pages_meta=False,
        title="testbed",
        update_title="",
        enable_mcp=False,
        add_log_handler=False,
    )
    app.layout = _layout()
    _fill(app, lambda path, choice: shown(path, choice, source, store))
    _act(app, access, actions)
    return app


def shown(path: str, choice: ChosenStretch | None, source: PageSource, store: Store | None) -> Parts:
    """Return the parts of the page at a path: the testbed's at "/", else the records, or one of them."""
    path = unquote(path)
    if path == RECORDS:
        records = store.records() if store else []
        view = View("records", () if store else ("records are switched off",), ())
        return {"head": Part.of(elements.head(view)), "records": Part.of(elements.records(lines(records)))}
    try:
        if path.startswith(OF_RECORD):
            if store is None:
                raise RequestError("records are switched off")
            view = lines(of_record(store.find(path.removeprefix(OF_RECORD).replace("/", ""))))
        elif path == "/":
            view = of_look(source.look())
        else:
            raise RequestError(f"no page {path}; accepted are /, {RECORDS} and {OF_RECORD}NAME")
    except TestbedError as error:
        return {"head": Part.of(elements.head(View("testbed", (line(str(error)),), ())))}
    return parts(view, choice)


def parts(view: View, choice: ChosenStretch | None = None) -> Parts:
    """Return the parts that show a view, and the chosen stretch of its timeline; parts without content are
    left out.
    """
    shown_parts = {"head": Part.of(elements.head(view))}
    if not view.units:
        return shown_parts
    # the end of running spans moves continuously
    stretch = timeline_picture.Stretch.chosen(view.spans, choice)
    of = (view.spans.jobs, view.spans.circuits, view.spans.now // REDRAWN_S, choice)
    drawn = timeline_picture.figure(view.spans, stretch)
    shown_parts |= {
        "fabric": Part.of([elements.legend(), _graph(fabric_picture.figure(view))]),
        "timeline": Part(drawn, _digest(repr(of))),
        "ports": Part.of(elements.ports(view)),
        "jobs": Part.of(elements.jobs(view)),
        "circuits": Part.of(elements.circuits(view)),
        "cores": Part.of(elements.cores(view)),
        "happenings": Part.of(elements.happenings(view.happenings)),
    }
    if view.queue_lines:
        shown_parts["queue"] = Part.of(elements.queue(view))
    return shown_parts


def _graph(picture: FabricPicture) -> Component:
    """Return the picture in a frame that scrolls if the page is narrower."""
    style = {"height": f"{picture.height_px}px", "minWidth": f"{picture.width_px}px"}
    figure = {"data": picture.data, "layout": picture.layout}
    graph = dcc.Graph(id="picture-fabric", figure=figure, config=_CONFIG, responsive=True, style=style)
    return html.Div(graph, className="frame")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


# ---- layout ----


def _layout() -> Component:
    return html.Div(
        [
            dcc.Location(id="location", refresh=False),
            dcc.Interval(id="clock", interval=LEAST_S * 1000),
            dcc.Store(id="marks", data={}),
            html.Nav([dcc.Link("live", href="/"), dcc.Link("records", href=RECORDS)]),
            html.Div(id="head"),
            _action_panel(),
            *(_section(name, title) for name, title in SECTIONS.items() if name != "head"),
        ],
        className="page",
        id="page",
    )


def _section(name: str, title: str) -> Component:
    inner: list[Component] = [html.Div(id=name)]
    if name == "timeline":
        graph = dcc.Graph(id=name, config=_CONFIG, responsive=True)
        inner = [html.P(elements.OF_TIMELINE, className="caption"), graph, dcc.Store(id="choice")]
    return html.Section([html.H2(title), *inner], id=f"section-{name}", className=f"of-{name}", hidden=True)


def _action_panel() -> Component:
    """Return the choices and the answers of actions, shown to users with the token."""
    return html.Div(
        [
            dcc.Checklist(["also circuits that a running job uses"], [], id="force"),
            html.Output("Press two ports to join them by a circuit.", id="done"),
            dcc.Store(id="picked"),
        ],
        id="actions",
        className="act",
    )


# ---- callbacks ----


def _fill(app: dash.Dash, parts_at: Callable[[str, ChosenStretch | None], Parts]) -> None:
    """Fill the page at every tick of its clock, which stops on pages that no longer change."""
    names = tuple(SECTIONS)
    outputs = [Output(name, "figure" if name == "timeline" else "children") for name in names]
    outputs += [Output(f"section-{name}", "hidden") for name in names if name != "head"]
    outputs += [Output("timeline", "style"), Output("clock", "disabled"), Output("marks", "data")]
    outputs += [Output("clock", "interval")]
    inputs = [Input("clock", "n_intervals"), Input("location", "pathname"), Input("choice", "data")]

    @app.callback(outputs, *inputs, State("marks", "data"))
    def fill(_ticks: int | None, path: str | None, choice: Any, marks: Mapping[str, str] | None) -> list[Any]:
        began_s, path = time.thread_time(), path or "/"
        values = filled(parts_at(path, ChosenStretch.read(choice)), marks or {}, path)
        return [*values, pause_s(time.thread_time() - began_s) * 1000]

    @app.callback(Output("choice", "data"), Input("timeline", "relayoutData"), State("timeline", "figure"))
    def choose(event: Any, drawn: Any) -> Any:
        if not event or not drawn:
            return no_update
        choice = timeline_picture.choice_of(event, drawn["layout"]["meta"])
        return no_update if choice is None else choice.as_data()


def pause_s(cost_s: float) -> int:
    """Return the seconds until a browser's next request, from the processor time of the last answer."""
    return max(LEAST_S, min(MOST_S, math.ceil(cost_s * _IN_ALL / SHARE)))


def filled(now: Parts, marks: Mapping[str, str], path: str) -> list[Any]:
    """Return a value for each output; content that the browser already has, by its mark, is not
    sent again.
    """
    known = {name: part.mark for name, part in now.items()} | {"path": path}
    seen = marks if marks.get("path") == path else {}
    values: list[Any] = [
        now[name].content if name in now and seen.get(name) != known[name] else no_update for name in SECTIONS
    ]
    values += [name not in now for name in SECTIONS if name != "head"]
    drawn = values[list(SECTIONS).index("timeline")]
    style: Any = no_update if drawn is no_update else {"height": f"{drawn['layout']['height']}px"}
    return [*values, style, path != "/", no_update if dict(seen) == known else known]


def _act(app: dash.Dash, access: Access, actions: PageActions) -> None:
    """Register the actions of the buttons, for users with the token."""

    def token_of(fragment: str | None) -> str:
        return (fragment or "").removeprefix("#token=")

    @app.callback(Output("page", "className"), Input("location", "hash"), Input("location", "pathname"))
    def show(fragment: str | None, path: str | None) -> str:
        return "page acting" if path == "/" and access.may_act(token_of(fragment)) else "page"

    def done(fragment: str | None, act: Callable[[], str]) -> str:
        if not access.may_act(token_of(fragment)):
            return "refused: the page's address has no token, or another's; `testbed web` printed it"
        try:
            return line(act())
        except TestbedError as error:
            return line(f"refused: {error}")

    presses = [Input({"act": what, "of": ALL}, "n_clicks") for what in (elements.END, elements.CLEAR)]

    @app.callback(
        Output("done", "children"),
        *presses,
        State("location", "hash"),
        State("force", "value"),
        prevent_initial_call=True,
    )
    def press(_ends: Clicks, _clears: Clicks, fragment: str | None, force: list[str] | None) -> Any:
        pressed = ctx.triggered_id
        if not ctx.triggered[0]["value"] or not isinstance(pressed, dict):  # a table that was made anew
            return no_update
        of = str(pressed["of"])
        if pressed["act"] == elements.END:
            return done(fragment, lambda: actions.end_job(of))
        return done(fragment, lambda: actions.clear(of, bool(force)))

    every_port = {"act": elements.PORT, "of": ALL}

    @app.callback(
        Output("done", "children", allow_duplicate=True),
        Output("picked", "data"),
        Output(every_port, "className"),
        Input(every_port, "n_clicks"),
        State(every_port, "id"),
        State("picked", "data"),
        State("location", "hash"),
        State("force", "value"),
        prevent_initial_call=True,
    )
    def join(
        _clicks: Clicks,
        ports: list[Mapping[str, str]],
        first: str | None,
        fragment: str | None,
        force: list[str] | None,
    ) -> tuple[Any, Any, Any]:
        pressed = ctx.triggered_id
        if not ctx.triggered[0]["value"] or not isinstance(pressed, dict):
            return no_update, no_update, [no_update] * len(ports)
        second = str(pressed["of"])
        if first in (None, second):
            picked, text = (second, f"{second} and ...") if first is None else (None, "")
        else:
            picked, text = None, done(fragment, lambda: actions.light(str(first), second, bool(force)))
        names = ["act picked" if port["of"] == picked else "act" for port in ports]
        return text, picked, names
