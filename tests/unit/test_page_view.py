"""The view of a testbed's answers, the pictures that are made of it, and what is sent of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.messages.verdict import JobVerdict, Reason
from testbed.webpage import colours, elements, fabric_picture, timeline_picture
from testbed.webpage.page import Part, filled, parts, pause_s
from testbed.webpage.spans import NOT_OVER
from testbed.webpage.timeline_picture import Stretch, choice_of, moment, stamp
from testbed.webpage.view import View, badge, of_look
from tests.unit.page_world import NOW, World, change, ended, fault, link, queue, queued, status


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def view_of(world: World) -> View:
    return of_look(world.source.look())


def traces(view: View, kind: str) -> list[dict[str, Any]]:
    return [trace for trace in fabric_picture.figure(view).data if trace["meta"] == kind]


def test_units_hosts_and_circuits_are_those_of_status(world: World) -> None:
    view = view_of(world)
    assert [(unit.name, len(unit.hosts), unit.racks) for unit in view.units] == [
        ("u1", 2, ()),
        ("u2", 2, ()),
        ("u3", 1, ("u3r1",)),
    ]
    assert {host.name: host.job for unit in view.units for host in unit.hosts}["u2h1"] == 7
    assert [(circuit.name, circuit.is_dark, circuit.jobs) for circuit in view.circuits] == [
        ("u1o1-u2o1", False, (7,)),
        ("u1o2-u3o1", True, ()),
    ]


def test_a_job_has_its_progress_and_what_the_verdict_thinks(world: World) -> None:
    running, over = view_of(world).jobs
    assert (running.number, running.state, running.progress) == (7, "running, 0:01:01", "2.5 MB summed")
    assert running.verdict == "so far trustworthy: within 3 %"
    assert running.trustworthy
    assert (over.number, over.state, over.verdict) == (5, "done after 0:01:00", "trustworthy: within 3 %")
    assert (running.badge, over.badge, over.ratio) == ("so far trustworthy", "trustworthy", 1.034)
    assert over.attention == ("restart 1 of at most 2",)


def test_a_job_that_failed_says_why(world: World) -> None:
    world.entries = [ended(1, 5, "its worker died")]
    job = view_of(world).jobs[1]
    assert (job.state, job.verdict, job.trustworthy) == ("failed after 0:01:00", "its worker died", None)
    assert job.badge == "failed"


def test_stragglers_faults_and_what_is_wrong_are_told(world: World) -> None:
    blocks = {"made": 9, "active": 1, "without": {"1": 3}, "left": []}
    jobs = [{**status()["jobs"][0], "blocks": blocks}]
    links = [link("u1h1", is_up=False)]
    faults = [fault(lost=2, duplicated=2)]
    world.status = status(faults=faults, links=links, jobs=jobs, gone_links={"u9h9": "u9-h9"})
    view = view_of(world)
    lines = "\n".join(view.attention)
    assert "links down: u1h1" in lines
    assert "2 lost" in lines
    assert "u9h9: its device u9-h9 was deleted" in lines
    assert "9 blocks and votes, 1 under way, some without worker 1 3" in view.jobs[0].attention[0]
    world.later(2, circuits=None, dark=None, circuit_jobs=[])
    view = view_of(world)
    assert "circuits are not known while the controller is away" in view.attention
    assert view.circuits == view.spans.circuits == ()


def test_what_a_jobs_workers_wait_for_is_told(world: World) -> None:
    line = "workers 0, 1 wait in barrier (collective 8, val.py:15): they ask for the same"
    world.status = status(jobs=[{**status()["jobs"][0], "waiting": line}])
    view = view_of(world)
    assert f"job 7: {line}" in view.attention
    assert view.jobs[0].attention[0] == line


def test_the_queue_is_that_of_status(world: World) -> None:
    jobs = (queued(8, "b", progress=0.25), queued(9, "b", "ended", progress=0.25, cancelled=True))
    world.status = status(schedule=queue(*jobs, complaints=["slot 2: late"]))
    view = view_of(world)
    assert [(job.number, job.state, job.done) for job in view.queue] == [
        (8, "queued", 0.25),
        (9, "cancelled", 0.25),
    ]
    assert view.queue_lines[0].startswith("policy tw, slot 3 of 2 s; 2 jobs, 1 ended")
    assert "slot 2: late" in view.attention
    assert "queue" in parts(view)
    assert "queue" not in parts(view_of(World(Path("/none"))))


def test_what_happened_is_told_the_newest_first(world: World) -> None:
    lines = view_of(world).happenings
    assert [line.at for line in lines] == sorted((line.at for line in lines), reverse=True)
    assert lines[1].text == (
        "reconfiguration 1: removed u1o1-u3o1, added u1o1-u2o1; dark for 500.000 ms, 499.000 asked"
    )


def test_no_testbed_is_said_and_nothing_else_shown() -> None:
    view = View("testbed x", ("testbed 'x' is not running; none is",), ())
    assert list(parts(view)) == ["head"]
    assert "is not running" in str(elements.head(view))


# ---- pictures ----


def test_links_are_coloured_by_use(world: World) -> None:
    world.source.look()
    full = 12_500_000 * 2  # bytes of two seconds at 100 Mb/s
    links = [link("u1h1", full), link("u1h2", full // 5, full // 4), link("u1o1", is_up=False), link("u2h1")]
    world.later(2, links=links)
    words = {name: trace["name"] for trace in traces(view_of(world), "links") for name in trace["customdata"]}
    assert (words["u1h1"], words["u1h2"], words["u2h1"]) == ("above 90 %", "10 to 50 %", "idle")
    assert (words["u1o1"], words["u3r1"]) == ("down", "not measured")


def test_dark_circuits_and_ports_are_dark(world: World) -> None:
    view = view_of(world)
    lines = {trace["customdata"][0]: trace["line"] for trace in traces(view, "circuit")}
    assert (lines["u1o2-u3o1"]["color"], lines["u1o2-u3o1"]["dash"]) == (colours.DARK, "dot")
    assert lines["u1o1-u2o1"]["color"] != colours.DARK
    (ports,) = traces(view, "ports")
    lit = dict(zip(ports["customdata"], ports["marker"]["color"], strict=True))
    assert [name for name, colour in lit.items() if colour == colours.LIT] == ["u1o1", "u2o1"]


def test_circuits_and_ports_that_are_down_are_red_and_named(world: World) -> None:
    assert isinstance(world.status, dict)
    world.status |= {"down": ["u3o1"]}
    view = view_of(world)
    assert [circuit.light for circuit in view.circuits] == ["lit", "down"]
    (line,) = [each for each in traces(view, "circuit") if each["customdata"][0] == "u1o2-u3o1"]
    assert (line["line"]["color"], line["line"]["dash"]) == (colours.DOWN[0], "dot")
    assert line["hovertext"] == "u1o2-u3o1: down"
    (ports,) = traces(view, "ports")
    text = dict(zip(ports["customdata"], ports["hovertext"], strict=True))
    assert (text["u3o1"].rpartition(", ")[2], text["u1o2"].rpartition(", ")[2]) == ("down", "dark")
    assert "u1o2-u3o1" in str(elements.circuits(view))
    assert "'down'" in str(elements.circuits(view))


def test_everything_has_a_place_of_its_own(world: World) -> None:
    view = view_of(world)
    points = fabric_picture.placed(view.units).points
    assert points.keys() >= {"u1", "u2", "u3", "u3r1", "u3r1h1", "u1h1", "u1o1", "u3o1"}
    assert len(set(points.values())) == len(points)


def test_many_hosts_are_drawn_as_one(world: World) -> None:
    assert isinstance(world.status, dict)
    unit = world.status["units"][0]
    first = world.status["hosts"][0]
    hosts = [{**first, "name": f"u1h{at}", "job": 7 if at < 4 else None} for at in range(1, 49)]
    world.status |= {"units": [unit], "hosts": hosts, "circuits": [], "circuit_jobs": [], "jobs": []}
    world.entries, world.changes = [], []
    (crowd,) = traces(view_of(world), "crowds")
    assert crowd["text"] == ["3/48"]


def test_a_fabric_without_optics_has_no_optical_switch(world: World) -> None:
    assert isinstance(world.status, dict)
    units = [{**world.status["units"][0], "optical_ports": 0}]
    hosts = world.status["hosts"][:2]
    world.status |= {"units": units, "hosts": hosts, "circuits": [], "dark": [], "jobs": []}
    world.entries, world.changes = [], []
    view = view_of(world)
    assert traces(view, "optics") == []
    assert traces(view, "ports")[0]["customdata"] == []


def test_an_electrical_core_is_drawn_where_there_is_one(world: World) -> None:
    view = view_of(world)
    assert traces(view, "core") == []
    world.later(2, links=[*status()["links"], link("u1c"), link("u2c"), link("u3c")])
    view = view_of(world)
    assert len(traces(view, "core")) == 1
    drawn = {name for trace in traces(view, "links") for name in trace["customdata"]}
    assert {"u1c", "u2c", "u3c"} <= drawn


def test_a_timeline_has_jobs_over_circuits(world: World) -> None:
    view = view_of(world)
    assert timeline_picture.rows(view.spans) == [
        "job 5 ring",
        "job 7 inc",
        "u1o1-u2o1",
        "u1o1-u3o1",
        "u1o2-u3o1",
    ]
    bars = [bar for bar in timeline_picture.bars(view.spans) if bar.row == "u1o1-u2o1"]
    assert [(bar.began - NOW, bar.ended - NOW, bar.colour) for bar in bars] == [
        (-119.5, -100, colours.of_job(5)),
        (-100, -61.5, colours.FREE),
        (-61.5, 0, colours.of_job(7)),
        (-120, -119.5, colours.DARK),
    ]
    (last,) = [bar for bar in timeline_picture.bars(view.spans) if bar.row == "job 7 inc"]
    assert last.ended == NOW
    assert view.spans.jobs[1].ended == NOT_OVER


@pytest.mark.parametrize(
    ("core", "users"), [(None, {"u1o1-u2o1", "u1o2-u3o1"}), ({"rate_mbps": 100.0}, set())]
)
def test_a_job_over_the_core_uses_no_circuits_over_time(
    world: World, core: dict[str, Any] | None, users: set[str]
) -> None:
    world.status = status(core=core)
    world.running[0]["pairs"] = [["u2", "u3"]]
    assert {span.name for span in view_of(world).spans.circuits if 7 in span.jobs} == users


def test_a_timetable_s_circuits_are_not_drawn_over_time(world: World) -> None:
    world.status = status(timetable={"period_ms": 4.0, "guard_ms": 1.0, "matchings": []})
    assert view_of(world).spans.circuits == ()


def test_what_was_dragged_back_stays_and_what_was_not_goes_on(world: World) -> None:
    spans = view_of(world).spans
    assert Stretch.chosen(spans, None) == Stretch(NOW - 300, NOW)
    assert Stretch.chosen(spans, choice_of({"xaxis.autorange": True}, NOW)) == Stretch(NOW - 300, NOW)
    back = choice_of({"xaxis.range[0]": stamp(NOW - 90), "xaxis.range[1]": stamp(NOW - 30)}, NOW)
    assert Stretch.chosen(spans, back) == Stretch(NOW - 90, NOW - 30)
    minute = choice_of({"xaxis.range[0]": stamp(NOW - 80), "xaxis.range[1]": stamp(NOW - 20)}, NOW - 20)
    assert Stretch.chosen(spans, minute) == Stretch(NOW - 60, NOW)
    assert choice_of({"autosize": True}, NOW) is None
    assert moment("2026-11-25 09:21:20.225") == moment("2026-11-25 09:21:20.2250")


# ---- what is sent ----


def test_a_browser_asks_more_seldom_where_answers_cost_more() -> None:
    assert [pause_s(cost_s) for cost_s in (0.0, 0.004, 0.03, 0.06, 9.0)] == [2, 2, 8, 15, 30]


def test_only_what_has_changed_is_sent() -> None:
    now = {"head": Part.of("a"), "jobs": Part.of("b")}
    first = filled(now, {}, "/")
    assert {"a", "b"} <= {each for each in first if isinstance(each, str)}
    again = filled({**now, "jobs": Part.of("c")}, first[-1], "/")
    sent = {each for each in again if isinstance(each, str)}
    assert sent == {"c"}
    elsewhere = filled(now, first[-1], "/records")
    assert {"a", "b"} <= {each for each in elsewhere if isinstance(each, str)}, "another page shows all"
    assert elsewhere[-2] is True, "its clock stands still"


def test_an_idle_testbed_s_timeline_is_sent_every_ten_seconds(world: World) -> None:
    def mark() -> str:
        return parts(view_of(world))["timeline"].mark

    first = mark()
    world.later(4)
    assert mark() == first
    world.later(7)
    assert mark() != first
    world.changes.append(change(2, world.now, removed=[("u1o1", "u2o1")]))
    world.later(1.5)
    assert mark() not in (first,)


@pytest.mark.parametrize("colour", [*colours.JOBS, colours.FREE])
def test_names_are_read_on_every_colour(colour: str) -> None:
    """WCAG 2 wants a contrast of at least 4.5."""

    def light(text: str) -> float:
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(colour), light(colours.ink_on(colour))))
    assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (None, "no verdict"),
        (JobVerdict(None, "verdict: none", (), ()), "no verdict"),
        (JobVerdict(True, "verdict: trustworthy", (), (Reason("steal", "x"),)), "trustworthy"),
        (
            JobVerdict(False, "", (Reason("machine_bound", "x"), Reason("lost", "y")), ()),
            "not trustworthy: machine bound",
        ),
    ],
)
def test_a_badge_says_the_verdict_and_its_first_reason(verdict: JobVerdict | None, words: str) -> None:
    assert badge(verdict) == words
    assert badge(verdict, "its worker died") == "failed"
