"""The picture of the fabric, as a Plotly figure: hosts above their switches, the optical switch below, and
its circuits as arcs. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.topology.addresses import core_link_name
from testbed.topology.units import unit_named
from testbed.webpage import colours
from testbed.webpage.view import ShownCircuit, ShownHost, ShownLink, ShownUnit, View

Point = tuple[float, float]
Trace = dict[str, Any]

COLUMN_PX = 44  # wide enough for a host's name
MOST_HOSTS = 16  # of a switch that are drawn individually
_BESIDE = 4  # hosts
_GAP = 0.8  # between units
_CORE_Y = 0.75  # of the electrical core, if there is one
_OPTICS_Y, _SWITCH_Y, _RACK_Y, _HOST_Y, _ROW = 0.0, 1.5, 2.7, 2.7, 0.85
_RACKS_HOST_Y = 3.9


@dataclass(frozen=True, slots=True)
class Spots:
    """The layout: points by the names of hosts, switches and optical ports; the individually drawn hosts, and
    the switches whose hosts are drawn as one; the width in columns, and the height.
    """

    points: Mapping[str, Point]
    hosts: tuple[ShownHost, ...]
    crowds: Mapping[str, tuple[ShownHost, ...]]
    switches: Mapping[str, str]  # each switch's hover text
    columns: float
    top: float


def placed(units: Sequence[ShownUnit]) -> Spots:
    """Lay out these units, the first leftmost."""
    points: dict[str, Point] = {}
    single: list[ShownHost] = []
    crowds: dict[str, tuple[ShownHost, ...]] = {}
    switches: dict[str, str] = {}
    left, top = 0.0, _HOST_Y
    for unit in units:
        begin = left
        for switch in unit.racks or (unit.name,):
            hosts = tuple(host for host in unit.hosts if host.switch == switch)
            width = max(1, min(_BESIDE, len(hosts) if len(hosts) <= MOST_HOSTS else 2))
            base = _RACKS_HOST_Y if unit.racks else _HOST_Y
            if len(hosts) > MOST_HOSTS:
                crowds[switch] = hosts
                points[_crowd(switch)] = (left + (width - 1) / 2, base)
            for at, host in enumerate(hosts if switch not in crowds else ()):
                row, column = divmod(at, width)
                points[host.name] = (left + column, base + row * _ROW)
                top = max(top, base + row * _ROW)
                single.append(host)
            if unit.racks:
                points[switch] = (left + (width - 1) / 2, _RACK_Y)
                switches[switch] = f"{switch}, a ToR"
                top = max(top, base)
            left += width
        left = max(left, begin + max(1, len(unit.ports)))
        middle = (begin + left - 1) / 2
        points[unit.name] = (middle, _SWITCH_Y)
        switches[unit.name] = f"{unit.name}: {unit.what}, {len(unit.hosts)} hosts"
        for at, port in enumerate(unit.ports):
            points[port] = (middle + at - (len(unit.ports) - 1) / 2, _OPTICS_Y)
        left += _GAP
    return Spots(points, tuple(single), crowds, switches, max(1.0, left - _GAP), top)


def _crowd(switch: str) -> str:
    return f"{switch} hosts"


@dataclass(frozen=True, slots=True)
class FabricPicture:
    """Plotly's traces and layout, the picture's height, and its least width for readable names."""

    data: list[Trace]
    layout: Any
    height_px: int
    width_px: int


def figure(view: View) -> FabricPicture:
    """Return the picture. Each trace lists the names of its objects in `customdata`."""
    places = placed(view.units)
    depth = _deepest(view, places)
    traces = [
        *_optics(view, places),
        *_core(view, places),
        *_lines(view, places),
        *_circuits(view, places),
        _ports(view, places),
        _switches(places),
        _hosts(places),
        *_crowds(places),
    ]
    height_px = round(30 + 62 * (places.top - _OPTICS_Y + depth + 1.0))
    layout = {
        "height": height_px,
        "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {"visible": False, "range": [-0.9, places.columns - 0.1], "fixedrange": True},
        "yaxis": {
            "visible": False,
            "range": [_OPTICS_Y - depth - 0.35, places.top + 0.75],
            "fixedrange": True,
        },
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#222", "font": {"color": "#fff"}},
        "uirevision": "fabric",
    }
    return FabricPicture(traces, layout, height_px, round((places.columns + 0.8) * COLUMN_PX))


# ---- links ----


def _lines(view: View, places: Spots) -> Iterator[Trace]:
    """Yield a trace for each colour of links."""
    kinds: dict[tuple[str, float, str], list[tuple[str, Point, Point]]] = {}
    for name, start, end in _ends(view, places):
        link = view.links.get(name)
        kind = colours.of_use(link.share, link.is_up) if link else colours.UNKNOWN
        kinds.setdefault(kind, []).append((name, start, end))
    for (colour, width, words), lines in kinds.items():
        dash = "dot" if (colour, width, words) == colours.DOWN else "solid"
        yield {
            **_segments([(start, end) for _, start, end in lines]),
            "type": "scatter",
            "mode": "lines",
            "line": {"color": colour, "width": width, "dash": dash},
            "name": words,
            "showlegend": False,
            "hoverinfo": "skip",
            "meta": "links",
            "customdata": [name for name, _, _ in lines for _ in range(3)],
        }


def _segments(lines: Sequence[tuple[Point, Point]]) -> Trace:
    x = [value for start, end in lines for value in (start[0], end[0], None)]
    y = [value for start, end in lines for value in (start[1], end[1], None)]
    return {"x": x, "y": y}


def _ends(view: View, places: Spots) -> Iterator[tuple[str, Point, Point]]:
    """Yield each drawn link with its ends; for hosts drawn as one, the fullest link."""
    points = places.points
    for host in places.hosts:
        yield host.name, points[host.switch], points[host.name]
    for switch, hosts in places.crowds.items():
        fullest = max(hosts, key=lambda host: _share(view.links.get(host.name)))
        yield fullest.name, points[switch], points[_crowd(switch)]
    for unit in view.units:
        for rack in unit.racks:
            yield rack, points[unit.name], points[rack]
        if (link := core_link_name(unit_named(unit.name))) in view.links:
            yield link, points[unit.name], (points[unit.name][0], _CORE_Y)
        for port in unit.ports:
            yield port, points[unit.name], points[port]


def _share(link: ShownLink | None) -> float:
    return -1.0 if link is None or link.share is None else link.share


# ---- optics ----


def _optics(view: View, places: Spots) -> Iterator[Trace]:
    """Yield the bar of the optical switch; nothing if no unit has an optical port."""
    ports = [places.points[port][0] for unit in view.units for port in unit.ports]
    if not ports:
        return
    yield {
        "type": "scatter",
        "mode": "lines",
        "x": [min(ports) - 0.5, max(ports) + 0.5],
        "y": [_OPTICS_Y, _OPTICS_Y],
        "line": {"color": "rgba(128,128,128,0.25)", "width": 26},
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": "optics",
    }


def _core(view: View, places: Spots) -> Iterator[Trace]:
    """Yield the bar of the electrical core, to which all units have links, if there is one."""
    joined = [
        places.points[unit.name][0]
        for unit in view.units
        if core_link_name(unit_named(unit.name)) in view.links
    ]
    if not joined:
        return
    yield {
        "type": "scatter",
        "mode": "lines+text",
        "x": [min(joined) - 0.5, max(joined) + 0.5],
        "y": [_CORE_Y, _CORE_Y],
        "line": {"color": "rgba(91,107,127,0.5)", "width": 8},
        "text": ["", "electrical core"],
        "textposition": "bottom left",
        "textfont": {"size": 10},
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": "core",
        "customdata": ["core", "core"],
    }


def _circuits(view: View, places: Spots) -> Iterator[Trace]:
    for circuit in view.circuits:
        ends = [places.points[port][0] for port in (circuit.a, circuit.b) if port in places.points]
        if len(ends) != 2:
            continue
        start, end = ends
        colour, width = colours.DARK, 1.5
        if circuit.is_down:
            colour, width, _ = colours.DOWN
        elif not circuit.is_dark:
            colour, width, _ = colours.of_use(max(_share(view.links.get(port)) for port in circuit.ports))
        steps = [at / 24 for at in range(25)]
        yield {
            "type": "scatter",
            "mode": "lines+text",
            "x": [start + (end - start) * at for at in steps],
            "y": [_OPTICS_Y - _depth(start, end) * 4 * at * (1 - at) for at in steps],
            "line": {"color": colour, "width": width, "dash": "solid" if circuit.light == "lit" else "dot"},
            "text": [f"<br>{jobs_text(circuit)}" if at == 0.5 else "" for at in steps],  # below the line
            "textposition": "bottom center",
            "textfont": {"size": 10},
            "hovertext": circuit_text(circuit),
            "hoverinfo": "text",
            "showlegend": False,
            "meta": "circuit",
            "customdata": [circuit.name] * len(steps),
        }


def jobs_text(circuit: ShownCircuit) -> str:
    """Describe the jobs that use a circuit; "" if none does."""
    return f"job{'s' * (len(circuit.jobs) > 1)} {' '.join(map(str, circuit.jobs))}" if circuit.jobs else ""


def circuit_text(circuit: ShownCircuit) -> str:
    """Describe a circuit."""
    parts = [f"{circuit.name}: {circuit.light}", jobs_text(circuit)]
    return ", ".join(part for part in parts if part)


def _depth(start: float, end: float) -> float:
    """Return the depth of the arc between two ports: it grows with their distance, ever more slowly."""
    return 0.35 + 0.4 * math.sqrt(abs(end - start))


def _deepest(view: View, places: Spots) -> float:
    """Return the depth of the longest possible arc, so that the picture keeps its height."""
    ports = [places.points[port][0] for unit in view.units for port in unit.ports]
    return _depth(min(ports), max(ports)) if ports else 0.0


def _ports(view: View, places: Spots) -> Trace:
    names = [port for unit in view.units for port in unit.ports]
    lit = {port for circuit in view.circuits for port in (circuit.a, circuit.b)} - view.dark
    state = dict.fromkeys(names, "no circuit") | dict.fromkeys(lit, "lit")
    state |= dict.fromkeys(view.dark, "dark") | dict.fromkeys(view.down, "down")
    return {
        **_markers(names, places),
        "marker": {
            "symbol": "square",
            "size": 20,
            "color": [colours.LIT if state[port] == "lit" else colours.DARK for port in names],
        },
        "text": [port[port.rindex("o") :] for port in names],
        "textfont": {
            "size": 10,
            "color": ["#000000" if state[port] == "lit" else "#ffffff" for port in names],
        },
        "hovertext": [f"{_link_text(view, port)}, {state[port]}" for port in names],
        "meta": "ports",
    }


# ---- switches and hosts ----


def _switches(places: Spots) -> Trace:
    names = list(places.switches)
    return {
        **_markers(names, places),
        "marker": {"symbol": "square", "size": 34, "color": "#5b6b7f"},
        "text": names,
        "textfont": {"size": 12, "color": "#ffffff"},
        "hovertext": list(places.switches.values()),
        "meta": "switches",
    }


def _hosts(places: Spots) -> Trace:
    names = [host.name for host in places.hosts]
    return {
        **_markers(names, places),
        "marker": {
            "symbol": "circle",
            "size": 26,
            "color": [colours.of_job(host.job) for host in places.hosts],
        },
        "text": [host.short for host in places.hosts],
        "textfont": {
            "size": 10,
            "color": [colours.ink_on(colours.of_job(host.job)) for host in places.hosts],
        },
        "hovertext": [
            f"{host.name}: {'free' if host.job is None else f'job {host.job}'}" for host in places.hosts
        ],
        "meta": "hosts",
    }


def _crowds(places: Spots) -> Iterator[Trace]:
    """Yield the hosts that are drawn as one, with the number in use."""
    if not places.crowds:
        return
    names = [_crowd(switch) for switch in places.crowds]
    used = [sum(host.job is not None for host in hosts) for hosts in places.crowds.values()]
    yield {
        **_markers(names, places),
        "marker": {
            "symbol": "circle",
            "size": 40,
            "color": [colours.JOBS[0] if count else colours.FREE for count in used],
        },
        "text": [f"{count}/{len(hosts)}" for count, hosts in zip(used, places.crowds.values(), strict=True)],
        "textfont": {"size": 10, "color": "#ffffff"},
        "hovertext": [
            f"{name}: {count} of {len(hosts)} in use"
            for name, count, hosts in zip(names, used, places.crowds.values(), strict=True)
        ],
        "meta": "crowds",
    }


def _markers(names: Sequence[str], places: Spots) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [places.points[name][0] for name in names],
        "y": [places.points[name][1] for name in names],
        "textposition": "middle center",
        "hoverinfo": "text",
        "showlegend": False,
        "customdata": list(names),
    }


def _link_text(view: View, name: str) -> str:
    link = view.links.get(name)
    if link is None or link.up_mbps is None or link.down_mbps is None:
        return name
    rate = "no limit" if link.rate_mbps is None else f"{link.rate_mbps:g} Mb/s"
    return f"{name}: {link.up_mbps:.1f} Mb/s out, {link.down_mbps:.1f} in, of {rate}"
