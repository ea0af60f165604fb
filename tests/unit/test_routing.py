"""Routings over timetables (testbed/ocs/routing.py), hop-on hop-off against a search through time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.ocs.routing import RoutingPlan, at_best, planned
from testbed.ocs.timetable import Hop, Timetable, parse, with_hops
from testbed.plugins import routing as asking
from testbed.topology.units import Unit
from testbed.wire.places import ROUTINGS, Frames

CHECKOUT = Path(__file__).resolve().parents[2]
UNITS = tuple(map(Unit, range(1, 5)))
ENDLESS = "for ever; a routing that brings each frame to its goal, or lets it wait, is accepted"
PAIRS = [[(1, 2), (3, 4)], [(1, 3), (2, 4)], [(1, 4), (2, 3)]]


def data(
    matchings: Iterable[Iterable[tuple[int, int]]], routing: str, slot_ms: float = 5.0
) -> dict[str, Any]:
    listed = [[[f"u{a}o1", f"u{b}o1"] for a, b in pairs] for pairs in matchings]
    return {
        "period_ms": slot_ms * len(listed),
        "guard_ms": 0.5,
        "routing": routing,
        "matchings": [
            {"start_ms": slot_ms * place, "circuits": circuits} for place, circuits in enumerate(listed)
        ],
    }


def table(routing: str, matchings: Iterable[Iterable[tuple[int, int]]] = PAIRS) -> Timetable:
    return parse(data(matchings, routing), None)


def goals(plan: RoutingPlan, frames: Frames, matching: int, unit: int) -> set[int]:
    return set(plan.kinds[frames][matching][Unit(unit)])


@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_routing_brings_all_frames_to_their_goals(routing: str) -> None:
    plan = planned(UNITS, table(routing))
    assert plan.reached() == set(itertools.permutations(UNITS, 2))


def test_direct_waits_for_a_circuit_to_the_goal_where_at_once_takes_several() -> None:
    line = [[(1, 2)], [(3, 4)]]
    doubled = parse({**data(line, "direct")}, None)
    assert goals(planned(UNITS, doubled), Frames.OWN, 0, 1) == {2}
    ring = {
        "period_ms": 5,
        "matchings": [{"start_ms": 0, "circuits": [["u1o1", "u2o1"], ["u2o2", "u3o1"], ["u3o2", "u4o1"]]}],
    }
    for routing, reached in (("direct", {2}), ("at-once", {2, 3, 4}), ("hoho", {2, 3, 4})):
        plan = planned(UNITS, parse({**ring, "routing": routing}, None))
        assert goals(plan, Frames.OWN, 0, 1) == reached


def test_valiants_detours_leave_by_every_circuit_and_bulk_by_its_own() -> None:
    vlb, opera = (planned(UNITS, table(routing)) for routing in ("vlb", "opera"))
    assert set(vlb.kinds) == {Frames.OWN, Frames.SPARE}
    assert [goals(vlb, Frames.SPARE, number, 1) for number in range(3)] == [{2}, {3}, {4}]
    assert set(opera.kinds) == {Frames.OWN, Frames.BULK}
    assert vlb.leaving(0, (Unit(1), Unit(4))) == ({"u1o1", "u4o1"}, 1)
    assert opera.leaving(0, (Unit(1), Unit(4))) == (frozenset(), 0)


def through_time(matchings: Any, start: int, unit: int, goal: int) -> int | None:
    """Return in which slot, from `start` on, a frame can arrive: by a search forward through time."""
    at = {unit}
    for slot in range(start, start + len(UNITS) * len(matchings)):
        pairs = matchings[slot % len(matchings)]
        while more := {end for pair in pairs for end in pair if set(pair) & at} - at:
            at |= more
        if goal in at:
            return slot
    return None


def walked(plan: RoutingPlan, matchings: Any, start: int, unit: int, goal: int) -> int | None:
    """Return in which slot a frame arrives that goes as planned."""
    for slot in range(start, start + len(UNITS) * len(matchings)):
        matching = slot % len(matchings)
        steps = 0
        while unit != goal and Unit(goal) in plan.kinds[Frames.OWN][matching][Unit(unit)]:
            [peer] = [a if b == unit else b for a, b in matchings[matching] if unit in (a, b)]
            unit, steps = peer, steps + 1
            assert steps < len(UNITS), "a loop within a matching"
        if unit == goal:
            return slot
    return None


EDGES = [pair for pairs in PAIRS for pair in pairs]
MATCHINGS = [[edge] for edge in EDGES] + PAIRS


@given(st.lists(st.sampled_from(MATCHINGS), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_hop_on_hop_off_arrives_as_early_as_any_way(matchings: Any) -> None:
    plan = planned(UNITS, table("hoho", matchings))
    for start, (unit, goal) in itertools.product(range(len(matchings)), itertools.permutations(UNITS, 2)):
        best = through_time(matchings, start, unit, goal)
        assert walked(plan, matchings, start, unit, goal) == best
        assert ((unit, goal) in plan.reached()) == (best is not None)


def hops(*rows: tuple[int, int, int, int]) -> list[Hop]:
    return [Hop(Frames.OWN, matching, Unit(a), Unit(goal), (Unit(to),)) for matching, a, goal, to in rows]


def given_by(rows: list[Hop], matchings: Any = PAIRS) -> Timetable:
    return parse(with_hops(data(matchings, "mine.py:Mine"), rows), None)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "mine.py:Mine: it lets every frame wait for ever"),
        (
            hops((0, 1, 2, 3)),
            "in matchings[0], own frames of u1 for u2 go to u3, to which no circuit leads; u2 is accepted",
        ),
        (hops((0, 1, 9, 2)), "unit 9; 1 to 4 are accepted"),
        (hops((0, 1, 3, 2), (0, 2, 3, 1)), f"frames for u3 go from u1 to u2 to u1 {ENDLESS}"),
        (
            hops((2, 2, 1, 3), (0, 3, 1, 4), (1, 4, 1, 2)),
            f"frames for u1 go from u2 to u3 to u4 to u2 {ENDLESS}",
        ),
    ],
)
def test_hops_that_lead_nowhere_or_round_are_refused_in_one_line(rows: list[Hop], told: str) -> None:
    with pytest.raises(RequestError) as error:
        planned(UNITS, given_by(rows))
    assert str(error.value) == f"routing: {told}"


def test_frames_that_come_back_to_their_unit_go_round_too() -> None:
    carried = Hop(Frames.CARRIED, 0, Unit(2), Unit(4), (Unit(1),))
    for rows in (
        [*hops((0, 1, 4, 2)), carried],
        [*hops((2, 1, 4, 4)), Hop(Frames.SPARE, 0, Unit(1), Unit(2), (Unit(2),)), carried],
    ):
        with pytest.raises(RequestError, match=r"^routing: frames for u4 go from u1 to u2 to u1 for ever; "):
            planned(UNITS, given_by(rows))


def test_a_users_frames_reach_a_goal_over_several_units_or_not_at_all() -> None:
    line = [[(1, 2)], [(2, 3)], [(3, 4)]]
    through = planned(UNITS, given_by(hops((0, 1, 4, 2), (1, 2, 4, 3), (2, 3, 4, 4)), line))
    assert through.reached() == {(1, 4), (2, 4), (3, 4)}
    assert planned(UNITS, given_by(hops((0, 1, 4, 2), (2, 3, 4, 4)), line)).reached() == {(3, 4)}
    assert at_best(UNITS, table("mine.py:Mine", line)).reached() == set(itertools.permutations(UNITS, 2))


def test_valiants_detours_reach_what_no_circuit_of_ones_own_leads_to() -> None:
    plan = planned(UNITS, table("vlb", [[(1, 2)], [(2, 4)]]))
    assert plan.reached() >= {(1, 4), (4, 1)}
    assert not {pair for pair in plan.reached() if 3 in pair}


def test_hops_come_with_a_routing_of_ones_own_alone_and_each_unit_counts_once() -> None:
    with pytest.raises(
        RequestError, match=r"^hops: routing vlb has its own; FILE\.py:CLASS is accepted with"
    ):
        parse(with_hops(data(PAIRS, "vlb"), hops((0, 1, 2, 2))), None)
    [hop] = parse({**data(PAIRS, "mine.py:Mine"), "hops": [[0, 0, 1, 2, [2, 2]]]}, None).hops
    assert hop.to == (2,)


FORMS: tuple[Any, ...] = (
    5,
    [0, 0, 1],
    [9, 0, 1, 2, [2]],
    [0, 3, 1, 2, [2]],
    [0, 0, 1, 2, ["u2"]],
    [True, False, 1, 2, [2]],
)


@pytest.mark.parametrize("row", FORMS)
def test_hops_of_another_form_are_named(row: Any) -> None:
    with pytest.raises(RequestError, match=r"^hops: .*; \[kind of frames, matching, unit, goal, "):
        parse({**data(PAIRS, "mine.py:Mine"), "hops": [row]}, None)


def test_what_waits_for_another_matching_is_no_loop() -> None:
    plan = planned(UNITS, given_by(hops((0, 1, 4, 2), (1, 2, 4, 4), (2, 1, 4, 4))))
    assert plan.reached() == {(1, 4), (2, 4)}


def test_another_routing_than_at_once_wants_no_core() -> None:
    with pytest.raises(RequestError, match="a core joins these units as well"):
        planned(UNITS, table("vlb"), has_core=True)


def test_the_bound_of_a_users_routing_without_its_hops_is_that_of_any_circuit() -> None:
    assert at_best(UNITS, table("mine.py:Mine")).kinds.keys() == {Frames.OWN, Frames.SPARE}


MINE = """
import itertools
from testbed.ocs.routing import Routing
from testbed.wire.places import Frames

class ByTwo(Routing):
    treats = (Frames.OWN, Frames.CARRIED)

    def towards(self, frames, matching, unit, goal):
        near = self.schedule.neighbours[matching][unit]
        return [each for each in near if each == goal or (each == 2 and frames == Frames.OWN)]

class Broken(Routing):
    def towards(self, frames, matching, unit, goal):
        return goal / 0

class Words(Routing):
    def towards(self, frames, matching, unit, goal):
        return ["u2"]

class Endless(Routing):
    def towards(self, frames, matching, unit, goal):
        return itertools.repeat(goal) if goal in self.schedule.neighbours[matching][unit] else ()

class Leaves(Routing):
    def towards(self, frames, matching, unit, goal):
        raise SystemExit(3)

class Other: pass
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return str(file)


def test_a_class_of_ones_own_is_asked_about_every_frame(mine: str) -> None:
    described = data(PAIRS, f"{mine}:ByTwo")
    found = asking.hops_of(parse(described, None))
    assert Hop(Frames.OWN, 0, Unit(1), Unit(4), (Unit(2),)) in found
    assert not [hop for hop in found if hop.frames == Frames.CARRIED and hop.to != (hop.goal,)]
    plan = planned(UNITS, parse(with_hops(described, found), None))
    assert goals(plan, Frames.OWN, 0, 1) == {2, 3, 4}
    assert goals(plan, Frames.CARRIED, 0, 1) == {2}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Broken", r"^routing: .*:Broken \(line 15\): ZeroDivisionError: division by zero$"),
        (
            "Words",
            r"^routing: .*:Words: TypeError: towards answered 'u2'; units of the schedule are accepted$",
        ),
        ("Leaves", r"^routing: .*:Leaves \(line 27\): SystemExit: 3$"),
        ("Other", r"^routing: .*:Other: a class of testbed.ocs.routing.Routing is accepted$"),
        ("Missing", r"^routing: .*:Missing: AttributeError: "),
    ],
)
def test_a_class_that_fails_is_named_in_one_line(mine: str, name: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        asking.hops_of(parse(data(PAIRS, f"{mine}:{name}"), None))


def test_an_answer_without_an_end_is_each_of_its_units_once(mine: str) -> None:
    found = asking.hops_of(parse(data(PAIRS, f"{mine}:Endless"), None))
    assert len(found) == 12
    assert all(hop.to == (hop.goal,) for hop in found)


def test_the_documents_example_sends_detours_over_its_hub() -> None:
    file = CHECKOUT / "docs" / "examples" / "one_detour.py"
    described = data(PAIRS, f"{file}:OneDetour")
    plan = planned(UNITS, parse(with_hops(described, asking.hops_of(parse(described, None))), None))
    assert [goals(plan, Frames.SPARE, number, 2) for number in range(3)] == [{1}, set(), set()]
    assert [goals(plan, Frames.SPARE, number, 1) for number in range(3)] == [set()] * 3


def test_more_steps_than_a_request_holds_are_refused(mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_HOPS", 5)
    with pytest.raises(RequestError, match="more than 5 steps; so many are accepted"):
        asking.hops_of(parse(data(PAIRS, f"{mine}:ByTwo"), None))


def test_a_routing_that_is_none_is_named() -> None:
    with pytest.raises(
        RequestError, match=r"^routing: fast; at-once, direct, vlb, hoho, opera, FILE\.py:CLASS are"
    ):
        table("fast")
