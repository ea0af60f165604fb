"""Timetables of matchings: what is accepted, and what the controller makes of one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.api import Api
from controller.conductor import Conductor
from controller.decide import leaving_turn
from testbed.client.rpc import Peer
from testbed.errors import RequestError, TestbedError
from testbed.ocs.circuits import circuit
from testbed.ocs.glimpses import Turned
from testbed.ocs.timetable import Matching, Timetable, as_data, parse
from testbed.optics.model import DarkTimes
from testbed.topology import catalogue, load
from testbed.wire.places import Frames
from tests.unit.model_switches import ModelPlane, circuits, number
from tests.unit.test_controller import connected

TOPOLOGY = catalogue.ready("default")
PORTS = TOPOLOGY.optical_ports


def described(**changes: Any) -> dict[str, Any]:
    matchings = [
        {"start_ms": 0, "circuits": [["u2o1", "u1o1"], ["u3o1", "u4o1"]]},
        {"start_ms": 2.5, "circuits": [["u1o1", "u3o1"]]},
    ]
    return {"period_ms": 5, "guard_ms": 0.25, "matchings": matchings, **changes}


def test_a_timetable_is_read_and_written() -> None:
    table = parse(described(), PORTS)
    first = frozenset({circuit("u1o1", "u2o1"), circuit("u3o1", "u4o1")})
    second = frozenset({circuit("u1o1", "u3o1")})
    assert table == Timetable(5_000_000, 250_000, (Matching(0, first), Matching(2_500_000, second)))
    assert parse(as_data(table), PORTS) == table


def starting(*starts_ms: Any) -> list[dict[str, Any]]:
    return [{"start_ms": start_ms, "circuits": []} for start_ms in starts_ms]


def meeting(*pairs: list[Any]) -> list[dict[str, Any]]:
    return [{"start_ms": 0, "circuits": list(pairs)}]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "schedule: []; a mapping with the keys period_ms, guard_ms, routing, matchings is accepted"),
        (
            described(gap_ms=1),
            "schedule: gap_ms is no key; period_ms, guard_ms, routing, matchings are accepted",
        ),
        (described(routing=":"), "routing: :; at-once, direct, vlb, hoho, opera, FILE.py:CLASS are accepted"),
        (described(routing=5), "routing: 5; at-once, direct, vlb, hoho, opera, FILE.py:CLASS are accepted"),
        (described(period_ms="5"), "period_ms: 5; 1 to 60000 ms is accepted"),
        (described(period_ms=0.5), "period_ms: 0.5; 1 to 60000 ms is accepted"),
        (described(guard_ms=-1), "guard_ms: -1; 0 to 5 ms is accepted"),
        (described(guard_ms=True), "guard_ms: True; 0 to 5 ms is accepted"),
        (described(guard_ms=float("nan")), "guard_ms: nan; 0 to 5 ms is accepted"),
        (described(matchings=[]), "matchings: 0 of them; a list of 1 to 512 is accepted"),
        (
            described(period_ms=600, matchings=starting(*range(513))),
            "matchings: 513 of them; a list of 1 to 512 is accepted",
        ),
        (described(matchings={}), "matchings: {}; a list of 1 to 512 is accepted"),
        (described(matchings=[5]), "matchings[0]: 5; a mapping with the keys start_ms, circuits is accepted"),
        (described(matchings=starting(1)), "matchings[0].start_ms: 1; 0 is accepted for the first"),
        (described(matchings=starting(0, 6)), "matchings[1].start_ms: 6; 0 to 5 ms is accepted"),
        (described(matchings=starting(None)), "matchings[0].start_ms: None; 0 to 5 ms is accepted"),
        (
            described(matchings=starting(0, 3, 2)),
            "matchings[1].start_ms: 3, -1 ms before the next; at least 1 ms is accepted",
        ),
        (
            described(matchings=starting(0, 4.5)),
            "matchings[1].start_ms: 4.5, 0.5 ms before the next; at least 1 ms is accepted",
        ),
        (
            described(guard_ms=2.5),
            "matchings[0].start_ms: 0; it lasts 2.5 ms, and more than guard_ms, 2.5, is accepted",
        ),
        (
            described(matchings=meeting(["u1o1", "u2o1"], ["u2o1", "u3o1"])),
            "matchings[0].circuits: circuit ['u2o1', 'u3o1']: u2o1 is in another circuit; a port carries one",
        ),
        (
            described(matchings=meeting(["u1o1", "u1o1"])),
            "matchings[0].circuits: circuit ['u1o1', 'u1o1']: two different optical ports are accepted",
        ),
        (
            described(matchings=meeting(["u1o1", "u9o1"])),
            "matchings[0].circuits: circuit ['u1o1', 'u9o1']: no optical port u9o1; there are "
            + ", ".join(PORTS),
        ),
        (
            described(matchings=meeting(["u1o1", 5])),
            "matchings[0].circuits: [[u1o1, 5]]; a list of pairs of optical ports like [u1o1, u2o1] is "
            "accepted",
        ),
    ],
)
def test_what_is_not_accepted_is_named_in_one_line(data: Any, said: str) -> None:
    with pytest.raises(RequestError) as error:
        parse(data, PORTS)
    assert str(error.value) == said


def asked(conductor: Conductor, op: str, **arguments: Any) -> Any:
    peer = Peer(0, 0, ())
    answer = Api(conductor, "model")({"op": op, **arguments}, peer, lambda event, fd=None: None, None)  # type: ignore[arg-type]
    return json.loads(json.dumps(answer))


def test_the_controller_has_it_kept_and_changes_no_circuit_meanwhile(tmp_path: Path) -> None:
    plane = ModelPlane()
    conductor, _ = connected(tmp_path, plane)
    before = dict(plane.peers)
    assert asked(conductor, "schedule", schedule=described())["period_ms"] == 5
    assert plane.table is not None
    _, peers, routes = plane.table
    a, b, c, d = (number(port) for port in ("u1o1", "u2o1", "u3o1", "u4o1"))
    assert peers == [{a: b, b: a, c: d, d: c}, {a: c, c: a}]
    assert [set(by_unit[1]) & {("10.0.2.0", 24), ("10.0.3.0", 24)} for by_unit in routes[Frames.OWN]] == [  # type: ignore[attr-defined]
        {("10.0.2.0", 24)},
        {("10.0.3.0", 24)},
    ], "each matching's routes are over its own circuits"
    for change in (lambda: conductor.request([(1, 3)]), lambda: conductor.apply([])):  # type: ignore[list-item]
        with pytest.raises(RequestError, match="keeps a schedule; circuits unschedule ends it"):
            change()
    assert asked(conductor, "circuits")["schedule"] == as_data(parse(described(), PORTS))
    assert asked(conductor, "crossings") == {
        "u1o1": {"lit": 5, "dark": 3, "unlit": 1},
        "u1": {"lit": 0, "dark": 0, "unlit": 2},
    }
    asked(conductor, "unschedule")
    assert plane.table is None
    assert plane.peers == before
    assert "schedule" not in asked(conductor, "circuits")
    with pytest.raises(RequestError, match="schedule: none is kept"):
        asked(conductor, "unschedule")


def test_who_waits_for_ports_to_turn_is_told_while_they_are_dark(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path, ModelPlane())
    turns = asked(conductor, "turned", other_than=-1)
    assert conductor.apply([("u1o1", "u3o2")])
    assert asked(conductor, "turned", other_than=turns) == turns + 1
    with pytest.raises(RequestError, match="other_than: None; a whole number is accepted"):
        asked(conductor, "turned")


class Meanwhile:
    """A lock for which a request waits: when it is free something else has been done."""

    def __init__(self, done: Callable[[], object]) -> None:
        self._done = done

    def __enter__(self) -> None:
        self._done()

    def __exit__(self, *_: object) -> None: ...


def test_a_request_that_waited_while_a_schedule_began_is_refused(tmp_path: Path) -> None:
    plane = ModelPlane()
    conductor, _ = connected(tmp_path, plane)
    before, table = dict(plane.peers), parse(described(), PORTS)
    conductor._busy = Meanwhile(lambda: plane.keep(table, [], [], lambda: 1))  # type: ignore[assignment]
    for change in (lambda: conductor.request([(1, 3)]), lambda: conductor.apply([])):  # type: ignore[list-item]
        plane.table = None
        with pytest.raises(RequestError, match="keeps a schedule"):
            change()
    assert plane.peers == before


def test_a_schedule_is_refused_while_one_is_kept(tmp_path: Path) -> None:
    plane = ModelPlane()
    conductor, _ = connected(tmp_path, plane)
    asked(conductor, "schedule", schedule=described())
    kept = plane.table
    with pytest.raises(RequestError, match="schedule: one is kept; circuits unschedule ends it"):
        asked(conductor, "schedule", schedule=described())
    assert plane.table is kept


def test_an_end_darkens_all_circuits_until_they_are_lit_and_is_in_the_history(tmp_path: Path) -> None:
    plane = DarkPlane()
    topology = load.parse(
        {**catalogue.READY["default"], "ocs": {"switch_ms": {"uniform": [10, 20]}, "lock_ms": 0}}, "slow"
    )
    conductor, _ = connected(tmp_path, plane, topology=topology)
    plane.watch(conductor)
    asked(conductor, "schedule", schedule=described())
    asked(conductor, "unschedule")
    assert plane.darkness
    assert plane.darkness[0] == plane.peers
    assert set(plane.shown) == {port for c in conductor.state.current for port in c.ports}
    assert time.monotonic_ns() >= plane.lit_at_ns, "they are lit when it returns"
    (record,) = asked(conductor, "history")
    assert (record["id"], record["removed"], record["added"]) == (1, [], [])
    lit = tuple(c.ports for c in sorted(conductor.state.current))
    assert [past.added for past in conductor.state.past] == [lit], "the model is told which were lit anew"
    assert 10 <= record["asked_ms"] == plane.darkness[1] / 1e6 <= 20
    assert asked(conductor, "circuits")["dark"] == []
    again, _ = connected(tmp_path, plane, topology=topology)
    assert (again.state.history, again.state.past) == (conductor.state.history, conductor.state.past)
    assert next_times(again) == next_times(conductor), "the model's sequence goes on"
    assert circuits(again) == circuits(conductor)


def next_times(conductor: Conductor) -> DarkTimes:
    """The answer of the conductor's model to one more end of a timetable."""
    return conductor._model.dark_times(leaving_turn(conductor.state))


class DarkPlane(ModelPlane):
    """Writes down which ports are said to be dark while a timetable ends."""

    def watch(self, conductor: Conductor) -> None:
        self.conductor = conductor

    def leave(self, peers: Mapping[int, int | None], dark_ns: int) -> Turned:
        turned = super().leave(peers, dark_ns)
        self.shown, self.lit_at_ns = asked(self.conductor, "circuits")["dark"], turned.lit_at_ns
        return turned


def test_an_end_that_fails_leaves_no_errand_and_does_not_trust_the_light(tmp_path: Path) -> None:
    plane = FailingPlane()
    conductor, _ = connected(tmp_path, plane)
    asked(conductor, "schedule", schedule=described())
    with pytest.raises(TestbedError, match="no answer"):
        asked(conductor, "unschedule")
    assert asked(conductor, "circuits")["dark"] == []
    assert "schedule" not in asked(conductor, "circuits"), "it ended before that failed"
    assert not conductor.state.is_ready


class FailingPlane(ModelPlane):
    def leave(self, peers: Mapping[int, int | None], dark_ns: int) -> Turned:
        self.table = None
        raise TestbedError("turn optical ports: no answer")


def test_a_controller_that_is_started_again_shows_what_is_kept(tmp_path: Path) -> None:
    plane = ModelPlane()
    asked(connected(tmp_path, plane)[0], "schedule", schedule=described())
    again, _ = connected(tmp_path, plane)
    assert asked(again, "circuits")["schedule"] == as_data(parse(described(), PORTS))


def test_units_that_do_not_forward_by_the_clock_are_named(tmp_path: Path) -> None:
    conductor, _ = connected(tmp_path, None)
    with pytest.raises(RequestError) as error:
        asked(conductor, "schedule", schedule=described())
    assert str(error.value) == (
        "schedule: no unit forwards by the clock; accepted are units with engine: xdp"
    )
