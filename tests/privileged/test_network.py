"""A whole network on the real kernel: forwarding, circuits, dark time, the controller's death, exact sums."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.topology import catalogue
from tests.privileged.inside import findings

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]


# dark for so long that what crosses a circuit meets the darkness on a busy machine, too
SLOW = json.dumps({**catalogue.READY["default"], "ocs": {"switch_ms": 700, "lock_ms": 300}})


# frames wait for no slot of a timetable: what no circuit leads to is lost
IMPATIENT = json.dumps({**catalogue.READY["default"], "ocs": {"calendar_packets": 0}})


def all_arrived(ping: dict[str, Any]) -> bool:
    return bool(ping["received"] == ping["sent"])


def test_hosts_reach_each_other_inside_a_unit_and_across_circuits() -> None:
    assert all(all_arrived(ping) for ping in findings("pings"))


def test_a_reconfiguration_darkens_what_it_changes_and_nothing_else() -> None:
    seen = findings("reconfiguration", SLOW)
    event = seen["event"]
    assert all_arrived(seen["untouched"]), "traffic on a circuit that stays loses nothing"
    assert seen["changing"]["longest_gap_ms"] >= event["asked_ms"], "no reply crosses while it is dark"
    assert event["measured_ms"] >= event["asked_ms"]
    assert event["measured_ms"] - event["resolution_ms"] <= event["asked_ms"], (
        "lit as soon as it may be, by the last dark poll"
    )
    assert seen["again"] is None, "circuits that are there need no change"
    assert seen["history"] == [event]
    assert all_arrived(seen["after"])
    assert seen["verdicts"]["dark"] + seen["verdicts"]["unlit"] > 0


def test_dark_times_are_what_was_asked() -> None:
    events = findings("dark_times")
    assert len(events) == 10
    for event in events:
        assert event["measured_ms"] >= event["asked_ms"], "never lit too early"
        last_dark_ms = event["measured_ms"] - event["resolution_ms"]
        assert last_dark_ms <= event["asked_ms"], "nor too late: no poll after that found it dark"


def test_matchings_take_turns_by_the_clock() -> None:
    """Units that no matching joins at once are reached when it is their turn."""
    seen = findings("timetable", IMPATIENT)
    for echoes in seen["echoes"]:
        assert 10 <= echoes["received"] < echoes["sent"], "in its own matching, and in no other"
    for longest_ns, resolution_ns in seen["guards_ns"]:
        assert longest_ns - resolution_ns <= 1_000_000 <= longest_ns
    assert seen["crossings"]["u1o1"]["lit"] >= 20
    assert seen["crossings"]["u1"]["unlit"] > 0, "what no circuit leads to is dropped at its unit"
    assert "circuits unschedule ends it" in seen["refused"]
    assert seen["scheduled"]["period_ms"] == 20
    assert seen["same"]
    assert all_arrived(seen["after"])


def test_a_controller_that_is_killed_comes_back_without_a_cut() -> None:
    seen = findings("controller_dies")
    assert all_arrived(seen["traffic"])
    assert seen["same"]
    assert seen["history"] == [seen["before"]]
    assert seen["next"] == seen["before"] + 1
    assert seen["restarts"] == 1


def judge(workers: list[dict[str, Any]]) -> None:
    assert all(all(worker["exact"]) for worker in workers)
    # three workers, largest magnitude below 8: quantum 2**-25, and sums of magnitude below 16 round by 2**-21
    assert all(worker["worst"] < 2**-20 for worker in workers)


def test_sums_are_exact_in_one_unit_and_across_two() -> None:
    jobs = findings("sums")
    judge(jobs["one"])
    judge(jobs["two"])


def test_sums_are_exact_when_packets_of_every_kind_are_lost() -> None:
    jobs = findings("losses:sums_with_losses")
    judge(jobs["one"])
    judge(jobs["two"])
    assert jobs["lost"] == 27, "every loss that was asked for happened"
    assert sum(worker["retransmitted"] for job in ("one", "two") for worker in jobs[job]) > 0


def test_sums_are_exact_while_the_circuits_under_a_job_change() -> None:
    seen = findings("sums_while_rewired")
    judge(seen["workers"])
    assert seen["events"] == 9


def test_a_push_for_a_slot_that_is_taken_cuts_the_window_of_its_worker_and_changes_no_sum() -> None:
    seen = findings("congestion")
    judge(seen["workers"])
    notified, other = seen["workers"]
    assert seen["verdicts"]["mismatch"] == seen["verdicts"]["notice"] == notified["notices"] == 11
    assert notified["reductions"] >= 1
    assert notified["window_min"] < 120, "which is all that it may be"
    assert other["notices"] == 0


def test_a_job_that_cannot_be_admitted_is_told_why_and_holds_nothing() -> None:
    *said, held, after = findings("refusals")
    assert said == [
        "TestbedError: admit job 1: it is admitted already",
        "TestbedError: admit job 2: u1h1 is in another job",
    ]
    assert held == "u1 1"
    assert after == "{}"


def test_the_controller_s_socket_is_private() -> None:
    assert findings("socket_mode") == 0o600
