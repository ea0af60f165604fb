"""Calendar queues in words, and the jobs that may run over a timetable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed import circuits as circuits_command
from testbed.aggregation.system import Layout
from testbed.client.requests import CircuitsRequest
from testbed.daemon import circuits
from testbed.errors import RequestError
from testbed.jobs.supply import hindrance
from testbed.messages.coding import as_json, decode
from testbed.messages.timetable import MatchingStatus, TimetableBegun, TimetableStatus
from testbed.status import calendar_text, page
from testbed.topology.load import parse
from testbed.topology.model import LinkSpec, Topology
from testbed.topology.units import Unit
from testbed.wire.transports import GLOO, PACKETS
from tests.forests import p4inc
from tests.unit import page_world

TOPOLOGY = parse(
    {"units": [{"hosts": 2}] * 4, "optical_ports": 2, "ocs": {"circuits": [["u1o1", "u2o1"]]}}, "four"
)
CORE = replace(TOPOLOGY, core_link=LinkSpec(40_000))
U1, U2, U3, U4 = (Unit(number) for number in (1, 2, 3, 4))
TABLE = TimetableStatus(
    10, 1, (MatchingStatus(0, (("u1o1", "u2o1"),)), MatchingStatus(5, (("u1o1", "u3o1"), ("u3o2", "u4o1"))))
)


def queue(**counts: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(
        ("held", "sent", "dropped", "unlit", "marked", "missed", "waiting", "waiting_bytes"), 0
    )
    return {"unit": "u1", "goal": "u2", **nothing, "longest_ms": 0, **counts}


def test_queues_are_said_by_pair_and_what_did_not_happen_is_not() -> None:
    quiet = queue(held=9, sent=7, waiting=2, longest_ms=4.25)
    busy = queue(goal="u3", sent=1, longest_ms=12, dropped=3, unlit=4, marked=5, missed=6)
    assert circuits_command._lines("queues", [quiet, busy]) == [
        "u1 to u2: 2 wait, 7 were sent after 4.25 ms at most",
        "u1 to u3: 0 wait, 1 were sent after 12 ms at most, 3 found no room, 4 were for a unit that no "
        "matching leads to, 5 were marked, 6 missed a slot and waited again",
    ]
    assert circuits_command._lines("queues", []) == ["no frame waited for a slot"]


def test_status_adds_the_queues_up() -> None:
    rows = [queue(sent=7, waiting=2, longest_ms=4.25), queue(goal="u3", sent=1, dropped=3, unlit=4)]
    said = page_world.read(page_world.status(calendar=rows, calendar_overrun=8))
    assert calendar_text(said) == (
        "2 frames wait for their slot; 8 waited, 4.2 ms at most; 3 found no room; for 4 no circuit ever "
        "came; 8 came faster than this machine took them in"
    )
    assert "  queues      2 frames wait" in page(said)
    assert "  queues " not in page(page_world.read(page_world.status()))


def across(*demands: tuple[Unit, Unit], sums: bool = False) -> Layout:
    workers = tuple((unit, 1) for unit in demands[0]) if sums else ((U1, 1), (U2, 1))
    forest = p4inc(workers) if sums else None
    return Layout("inc" if sums else "ring", workers, GLOO, forest=forest, demands=demands)


def test_a_job_runs_over_a_timetable_that_joins_its_units_in_some_matching() -> None:
    assert hindrance(across((U1, U2), (U1, U3)), TABLE, TOPOLOGY) is None
    assert hindrance(across((U1, U4)), TABLE, TOPOLOGY) is None, "over unit 3, in one matching"
    apart = across((U1, U2), (U2, U3))
    assert hindrance(apart, TABLE, TOPOLOGY) == ("no matching joins u2 and u3, between which the job sends")
    assert hindrance(apart, TABLE, CORE) is None, "over the core"


def test_results_of_places_go_by_direct_circuits_and_over_no_core() -> None:
    within = Layout("inc", ((U1, 1), (U1, 2)), PACKETS, forest=p4inc(((U1, 1), (U1, 2))))
    assert hindrance(within, TABLE, TOPOLOGY) is None
    summed = across((U1, U2), sums=True)
    assert hindrance(summed, TABLE, TOPOLOGY) is None
    assert hindrance(summed, TABLE, CORE) == (
        "places in several units sum it, and over a core results wait for no slot"
    )
    assert hindrance(across((U1, U4), sums=True), TABLE, TOPOLOGY) == (
        "no matching has a direct circuit, as results need it, between u1 and u4, between which the job sends"
    )


def test_a_timetable_that_hinders_a_running_job_wants_force() -> None:
    jobs = {3: across((U1, U3), sums=True), 4: across((U2, U3)), 5: across((U1, U2))}
    described = {"period_ms": 10, "matchings": [{"start_ms": 0, "circuits": [["u1o1", "u2o1"]]}]}
    started: list[Any] = []
    down: list[str] = []

    def controller(operation: str, **arguments: Any) -> Any:
        if operation == "circuits":
            return {"circuits": [], "dark": [], "failed_locks": {}, "down": down}
        started.append((operation, arguments))
        return {**described, "guard_ms": 0}

    request = CircuitsRequest(action="schedule", schedule=described)
    with pytest.raises(
        RequestError,
        match=r"^circuits schedule: job 3: no matching joins u1 and u3, between which the job sends; "
        "job 4: no matching joins u2 and u3, between which the job sends; --force starts it$",
    ):
        circuits.answer(TOPOLOGY, lambda: jobs, controller, request)
    assert started == []
    answer = circuits.answer(TOPOLOGY, lambda: jobs, controller, replace(request, force=True))
    notes = ["no matching joins u1-u3, u1-u4, u2-u3, u2-u4, u3-u4: packets between these units are lost"]
    assert answer == decode(TimetableBegun, {**described, "guard_ms": 0, "notes": notes}, "schedule")
    assert started == [("schedule", {"schedule": described})]
    down.append("u2o1")
    only = {5: jobs[5]}
    with pytest.raises(RequestError, match="job 5: no matching joins u1 and u2, between which the job sends"):
        circuits.answer(TOPOLOGY, lambda: only, controller, request)
    dark: Any = circuits.answer(TOPOLOGY, dict, controller, request)
    assert dark.notes == (
        "no matching joins u1-u2, u1-u3, u1-u4, u2-u3, u2-u4, u3-u4: packets between these units are lost",
        "u2o1 is down: circuits of a port that is down carry nothing",
    )
    wrong = CircuitsRequest(action="schedule", schedule={"period_ms": 9})
    with pytest.raises(RequestError, match="matchings: None; a list of 1 to 512 is accepted"):
        circuits.answer(TOPOLOGY, dict, controller, wrong)


def test_packets_that_wait_for_no_slot_reach_half_of_the_job_alone() -> None:
    impatient = replace(TOPOLOGY, ocs=replace(TOPOLOGY.ocs, calendar_packets=0))
    for other in (impatient, replace(TOPOLOGY, mtu=9000)):
        why = hindrance(across((U1, U2)), TABLE, other)
        assert why == "packets wait for no slot here (ocs.calendar_packets, mtu)"


def test_the_end_of_a_timetable_that_strands_a_running_job_wants_force() -> None:
    jobs = {3: across((U1, U2)), 4: across((U1, U3))}
    asked: list[str] = []

    def controller(operation: str, **_: Any) -> Any:
        asked.append(operation)
        return {
            "circuits": [["u1o1", "u2o1"]],
            "dark": [],
            "failed_locks": {},
            "down": [],
            "schedule": as_json(TABLE),
        }

    request = CircuitsRequest(action="unschedule")
    with pytest.raises(
        RequestError,
        match=r"^circuits unschedule: job 4: the circuits of before do not join u1 and u3, between which the "
        "job sends; --force ends it$",
    ):
        circuits.answer(TOPOLOGY, lambda: jobs, controller, request)
    assert asked == ["circuits"]
    circuits.answer(TOPOLOGY, lambda: jobs, controller, replace(request, force=True))
    del jobs[4]
    circuits.answer(TOPOLOGY, lambda: jobs, controller, request)
    assert asked[1:] == ["circuits", "unschedule", "circuits", "unschedule"]


@pytest.mark.parametrize(
    ("topology", "period_ms", "notes"),
    [
        (CORE, 10, []),
        (
            replace(CORE, scale=1),
            10,
            ["a time slot has time for 16513 full packets, and only 200 wait for it"],
        ),
        (replace(CORE, scale=1, mtu=9000), 10, []),
        (
            replace(CORE, ocs=replace(CORE.ocs, calendar_packets=2000)),
            1000,
            ["for 8256 full packets, and only"],
        ),
    ],
    ids=["enough", "a fast link", "nothing waits", "a long slot"],
)
def test_a_queue_shorter_than_a_slot_is_said(topology: Topology, period_ms: int, notes: list[str]) -> None:
    described = {
        "period_ms": period_ms,
        "matchings": [{"start_ms": 0, "circuits": []}, {"start_ms": period_ms / 2, "circuits": []}],
    }
    request = CircuitsRequest(action="schedule", schedule=described)

    def controller(operation: str, **_: Any) -> Any:
        return (
            {"circuits": [], "dark": [], "failed_locks": {}, "down": []}
            if operation == "circuits"
            else {**described, "guard_ms": 0}
        )

    answer = circuits.answer(topology, dict, controller, request)
    assert isinstance(answer, TimetableBegun)
    assert len(answer.notes) == len(notes)
    assert all(words in note for words, note in zip(notes, answer.notes, strict=True))
