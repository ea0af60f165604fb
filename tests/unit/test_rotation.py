"""A policy's answer that rotates: what is refused, what a timetable it becomes, its share of time in the
simulator, and a session that begins, replaces and ends it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.encoding import to_json
from testbed.errors import RequestError, TestbedError
from testbed.jobs import life
from testbed.ocs.timetable import as_data, parse
from testbed.scheduling import live
from testbed.scheduling.constraints import check_decision
from testbed.scheduling.messages import decision_from_json
from testbed.scheduling.model import Decision, Job, Limits, Progress, Rotation, RotationTurn, State, UnitIndex
from testbed.systems.p4inc.simulator.fluid import simulate
from tests.unit.session_world import TOPOLOGY, NoObservation, World

U0, U1, U2, U3 = (UnitIndex(unit) for unit in range(4))
LIMITS = Limits.uniform(4, 1, 1, 40.0, host_gbps=40.0, reconfiguration_s=0.001)
THIRDS = Rotation(tuple(RotationTurn({link: 1}, 20.0) for link in ((U0, U2), (U1, U2), (U0, U1))), 2.0)
ACROSS = Job(1, ((U0, 1), (U1, 1)), U2, 36.0)


def state_of(*jobs: Job, limits: Limits = LIMITS) -> State:
    return State(limits, 0, tuple(Progress(job, job.gigabits) for job in jobs), {})


@pytest.mark.parametrize(
    ("rotation", "words"),
    [
        (Rotation((RotationTurn({(U0, U2): 1, (U1, U2): 1}, 9.0),)),
         "rotation.turns[0]: unit 2 has 2 circuits, and 1"),
        (Rotation((RotationTurn({(U0, U2): 1}, 2.0),), 2.0),
         "rotation.turns[0].lasts_ms: 2.0; more than guard_ms, 2,"),
        (Rotation((RotationTurn({(U0, U2): 1}, 0.5),)), "rotation.turns[0].lasts_ms: 0.5; at least 1 ms"),
        (Rotation((RotationTurn({(U0, U2): 1}, math.nan),)),
         "rotation.turns[0].lasts_ms: nan; at least 1 ms"),
        (Rotation((RotationTurn({(U0, UnitIndex(9)): 1}, 5.0),)),
         "rotation.turns[0]: circuits between units: (0, 9); two"),
        (Rotation(()), "rotation.turns: 0 of them; a tuple of 1 to 512"),
        (Rotation((RotationTurn({}, 5.0),) * 513), "rotation.turns: 513 of them"),
        (Rotation((RotationTurn({}, 5.0),), -1.0), "rotation.guard_ms: -1.0"),
        (Rotation((RotationTurn({}, 40_000.0),) * 2), "the turns of a rotation: 80000 ms; at most 60000 ms"),
    ],
)  # fmt: skip
def test_a_rotation_that_cannot_be_is_named(rotation: Rotation, words: str) -> None:
    with pytest.raises(TestbedError) as refused:
        check_decision(state_of(), Decision(rotation=rotation), "mine")
    assert f"mine, slot 0: {words}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_circuits_beside_a_rotation_and_rates_over_none_are_refused() -> None:
    with pytest.raises(TestbedError, match=r"circuits beside a rotation: .*; none is accepted"):
        check_decision(state_of(), Decision({}, {}, {(U0, U1): 1}, THIRDS), "mine")
    check_decision(state_of(ACROSS), Decision({1: 20.0}, rotation=THIRDS), "mine")
    with pytest.raises(TestbedError, match=r"the link \(0, 2\) has 60.0 Gb/s, and circuits for 40.0"):
        check_decision(
            state_of(replace(ACROSS, workers=((U0, 3),))), Decision({1: 20.0}, rotation=THIRDS), "mine"
        )


@pytest.mark.parametrize(("turns", "units"), [((0, 2), "1 and 2"), ((0, 1), "0 and 1"), ((), "0 and 1")])
def test_units_of_a_job_that_meet_in_no_turn_are_named(turns: tuple[int, ...], units: str) -> None:
    """Two of workers, too: they speak to each other."""
    lacking = Rotation(tuple(THIRDS.turns[turn] for turn in turns) or (RotationTurn({}, 20.0),), 2.0)
    with pytest.raises(TestbedError) as refused:
        check_decision(state_of(ACROSS), Decision({1: 20.0}, rotation=lacking), "mine")
    assert str(refused.value) == f"mine, slot 0: rotation: units {units} of job 1 meet in no turn"


def test_it_is_the_same_after_its_way_through_json() -> None:
    decision = Decision({1: 20.0}, {}, {}, THIRDS)
    assert decision_from_json(to_json(decision)) == decision
    spoilt: list[Any] = [{"turns": 3, "guard_ms": 0}, {"turns": [{}], "guard_ms": 0}, [], "x"]
    for spoiled in spoilt:
        with pytest.raises(ValueError, match="no decision"):
            decision_from_json({**to_json(decision), "rotation": spoiled})


def test_its_timetable_is_one_that_the_controller_takes_and_keeps_ports() -> None:
    ports = {unit.index: tuple(f"u{unit.index}o{n}" for n in (1, 2)) for unit in TOPOLOGY.units}
    stays = RotationTurn({(U0, U2): 1, (U0, U1): 1}, 5.0)
    table = live.timetable_of(Rotation((RotationTurn({(U0, U2): 1}, 2.5), stays), 1.0), ports)
    assert parse(as_data(table), TOPOLOGY.optical_ports) == table
    assert (table.period_ns, table.guard_ns) == (7_500_000, 1_000_000)
    assert [matching.start_ns for matching in table.matchings] == [0, 2_500_000]
    assert table.matchings[0].circuits < table.matchings[1].circuits, "what stays keeps its ports"


class Fixed:
    name = "fixed"

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    def decide(self, state: State) -> Decision:
        return self._decision


def test_in_the_simulator_each_pair_has_its_share_of_time() -> None:
    policy = Fixed(Decision({1: 20.0}, rotation=THIRDS))
    # 18 of 60 ms are light for each: 6 Gb in a slot of 1 s, and 36 Gb in six
    assert simulate(LIMITS, [ACROSS], policy, {}).finish_s == {1: 6.0}
    for limits, record, words in (
        (replace(LIMITS, slot_s=0.03), False, "its turns last 60 ms; at most a slot, 30 ms"),
        (LIMITS, True, "schedules are recorded, and checked, without rotations only"),
    ):
        with pytest.raises(RequestError, match=words):
            simulate(limits, [ACROSS], policy, {}, record=record)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    monkeypatch.setattr(life, "Observation", NoObservation)
    return lambda *jobs: World(tmp_path, *jobs)


def test_a_session_begins_replaces_and_ends_it(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:1,u2:1", "ps": "u3", "sync": "ps"})
    made.session.rules = replace(made.session.rules, policy="mine")
    said: list[Any] = []
    kept: list[Any] = []
    refuses: list[str] = []
    answer = made.machine.ask

    def ask(operation: str, **arguments: Any) -> Any:
        if operation == "schedule":
            assert not kept, "one at a time"
            if refuses:
                raise RequestError(refuses[0])
            kept.append(arguments["schedule"])
            said.append(parse(kept[0], TOPOLOGY.optical_ports))
            return None
        if operation == "unschedule":
            said.append(kept.pop())
            return None
        assert operation != "apply" or not kept, "circuits are not to be had meanwhile"
        more = {"schedule": kept[0]} if operation == "circuits" and kept else {}
        return {**answer(operation, **arguments), **more} if more else answer(operation, **arguments)

    made.session._controller = made.session._turning._controller = ask
    answers = [THIRDS]
    made.policy.spoil = lambda state, decision: Decision({1: 4.0}, rotation=answers[-1])
    before = list(made.machine.circuits)
    made.start().running(1)
    assert len(said) == 1, "what stays is not said again"
    answers.append(Rotation((RotationTurn({(U0, U2): 5}, 20.0), *THIRDS.turns[1:])))
    made.until(lambda: made.session.account.failures > 0, "it is refused")
    assert "rotation.turns[0]: unit 0 has 5 circuits" in made.notes[-1]
    assert len(said) == 1, "the one before goes on"
    answers.append(replace(THIRDS, guard_ms=1.0))
    made.until(lambda: len(said) == 3, "another takes its place")
    refuses.append("schedule: u4 does not forward by the clock")
    answers.append(THIRDS)
    made.until(lambda: any("u4 does not forward" in note for note in made.notes), "the refusal is said")
    assert not kept, "nothing half begun stays"
    refuses.clear()
    made.until(lambda: bool(kept), "it is tried again")
    assert made.machine.circuits == before
    made.end()
    assert not kept, "it ends with the session"
    assert any(slot.rotation and slot.rotation.guard_ms == 1.0 for slot in made.session.account.slots)
