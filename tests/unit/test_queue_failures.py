"""A session beside what fails: links, a controller or a policy that is away, results that lack something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.jobs import life
from testbed.queue import session
from testbed.queue.policy_process import GoneError, OverrunError, PolicyError
from testbed.queue.result import of_batch
from testbed.scheduling.model import Decision, State
from tests.unit.session_world import TOPOLOGY, NoObservation, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    monkeypatch.setattr(life, "Observation", NoObservation)
    return lambda *jobs: World(tmp_path, *jobs)


def test_a_link_that_does_not_take_its_rate_is_said_and_the_job_waits(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"})
    made.machine.refuses = "link u1h1: 200 Mb/s was set, and u1h1-a reads back no rate"
    made.start().until(lambda: len(made.notes) > 2, "it is said")
    assert made.all[0].state == "ready"
    assert "job 1 (a) was not started: link u1h1: 200 Mb/s was set" in made.notes[0]
    made.machine.refuses = None
    made.running(1)
    made.end()


def test_a_queued_job_starts_over_the_testbeds_programs_alone(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"})
    attempt = made.machine.attempt

    def attached_meanwhile(asked: Any) -> Any:
        made.machine.other_program = "host u1h1: eth0 has the XDP program 'other'"
        return attempt(asked)

    made.machine.attempt = attached_meanwhile  # type: ignore[method-assign]
    made.start().until(lambda: len(made.notes) > 1, "it is said")
    assert made.all[0].state == "ready"
    assert "job 1 (a) was not started: host u1h1: eth0 has the XDP program 'other'" in made.notes[0]
    made.machine.other_program = None
    made.running(1)
    made.end()


def test_a_controller_that_is_away_costs_slots_and_nothing_else(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"}).start()
    made.running(1)
    ask = made.machine.ask

    def away(operation: str, **arguments: Any) -> Any:
        raise TestbedError("the controller is not ready")

    made.session._controller = away
    made.until(lambda: any("the controller is not ready" in note for note in made.notes), "it is said")
    made.session._controller = ask
    made.end()
    assert made.all[0].failure is None


def test_a_controller_that_is_away_when_jobs_are_submitted_is_waited_for(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"})
    ask = made.machine.ask

    def away(operation: str, **arguments: Any) -> Any:
        raise TestbedError("the controller is not ready")

    made.session._controller = away
    made.start().until(
        lambda: any("the controller is not ready" in note for note in made.notes), "it is said"
    )
    made.session._controller = ask
    made.running(1)
    made.end()
    assert made.all[0].failure is None
    assert of_batch(made.all, made.session, TOPOLOGY).model.ports == (
        (0, 1, 1),
        (0, 3, 1),
        (1, 2, 1),
        (2, 3, 1),
    )


def test_a_policy_that_is_gone_for_good_ends_the_jobs_that_wait(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"}, {"name": "b", "place": "u2:2"}).start(1)
    made.running(1)

    def spoil(state: State, decision: Decision) -> Decision:
        raise GoneError("policy x ended 6 times, and is not started again")

    made.policy.spoil = spoil
    made.join()
    made.until(lambda: made.all[1].state == "ended", "the job that waits is ended")
    assert made.all[1].failure == "policy x ended 6 times, and is not started again"
    assert made.all[0].state == "running", "the last decision stays in force"
    made.end()
    assert made.all[0].failure is None


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (PolicyError("policy x raised KeyError: 'u9'"), "policy x raised KeyError: 'u9'"),
        (TestbedError("job 1: 9 Gb/s of 8"), "the decision breaks a constraint: job 1: 9 Gb/s of 8"),
    ],
)
def test_a_policy_that_fails_while_no_job_runs_fails_the_jobs_that_wait(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, spoil: Exception, why: str
) -> None:
    monkeypatch.setattr(session, "_LEAST_FAILING_S", 0.0)
    made = world({"name": "a", "place": "u1:2"}, {"name": "b", "place": "u2:2", "at_s": 0.5})

    def fail(state: State, decision: Decision) -> Decision:
        raise spoil

    made.policy.spoil = fail
    made.start()
    made.until(lambda: all(queued.state == "ended" for queued in made.all), "the jobs that wait are ended")
    reason = f"the policy failed for {session._MOST_FAILING_SLOTS} slots or longer and no job ran: {why}"
    assert [queued.failure for queued in made.all] == [reason, reason]
    assert any(f"{reason}; jobs that wait are ended" in note for note in made.notes)
    made.end()


def test_a_job_that_comes_later_has_its_own_slots_under_a_failing_policy(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_LEAST_FAILING_S", 0.0)
    monkeypatch.setattr(session, "_MOST_FAILING_SLOTS", 5)
    made = world({"name": "a", "place": "u1:2"}, {"name": "b", "place": "u2:2", "at_s": 0.7})
    slots: dict[frozenset[int], int] = {}

    def fail(state: State, decision: Decision) -> Decision:
        visible = frozenset(progress.job.id for progress in state.jobs)
        slots[visible] = slots.get(visible, 0) + 1
        raise PolicyError("policy x raised")

    made.policy.spoil = fail
    made.start()
    made.until(lambda: all(queued.state == "ended" for queued in made.all), "the jobs that wait are ended")
    last = max(slots, key=max)
    assert slots[last] >= 5, slots
    assert sum("jobs that wait are ended" in note for note in made.notes) == 1
    made.end()


def test_a_policy_that_fails_now_and_then_ends_no_job(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_LEAST_FAILING_S", 0.0)
    monkeypatch.setattr(session, "_MOST_FAILING_SLOTS", 3)
    made = world({"name": "a", "place": "u1:2"})
    asked = 0

    def moody(state: State, decision: Decision) -> Decision:
        nonlocal asked
        asked += 1
        if asked % 3:
            raise PolicyError("policy x raised")
        return Decision() if asked < 12 else decision

    made.policy.spoil = moody
    made.start().running(1)
    made.end()
    assert made.all[0].failure is None
    assert made.session.account.failures >= 8


@pytest.mark.parametrize("what", ["links", "switch"])
def test_what_one_part_refuses_to_take_back_the_other_takes(world: Callable[..., World], what: str) -> None:
    made = world({"name": "a", "place": "u1:2"})
    made.policy.spoil = lambda state, decision: Decision(
        {job: 10.0 for job in decision.rates}, decision.inc, decision.ports
    )
    made.start().running(1)
    machine = made.machine
    assert machine.rates == {"u1h1": 50.0, "u1h2": 50.0}

    def away(job: int) -> None:
        raise TestbedError("u1: its switch is away")

    if what == "links":
        machine.refuses = "link u1h1: 200 Mb/s was set, and u1h1-a reads back no rate"
    else:
        machine.release = away  # type: ignore[method-assign]
    machine.may_end.set()
    made.until(lambda: made.all[0].state == "ended", "the job ends")
    assert [note.partition("job 1 (a): ")[2][:8] for note in made.notes] == [
        "link u1h" if what == "links" else "u1: its "
    ]
    assert (machine.rates == {"u1h1": 200.0, "u1h2": 200.0}) == (what == "switch")
    assert (machine.admitted == set()) == (what == "links")
    assert not made.jobs.status(), "hosts are free"


def test_a_policy_that_nobody_waits_for_is_no_overrun(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"}).start()
    made.running(1)

    def spoil(state: State, decision: Decision) -> Decision:
        made.session.cancel({1}, "enough")
        made.until(made.session.is_done, "it has ended")
        raise OverrunError("policy x is not needed any longer")

    made.policy.spoil = spoil
    made.until(made.session.is_done, "the policy has been asked")
    made.end()
    assert (made.session.account.overruns, made.notes) == (0, [])


def test_what_a_result_lacks_is_told_to_who_waits_for_it(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"})
    made.machine.lacks = ["worker 0's log lacks its end"]
    made.start().running(1)
    made.machine.may_end.set()
    made.until(lambda: made.all[0].state == "ended", "the job ends")
    assert made.notes == ["scheduler: job 1 (a): worker 0's log lacks its end"]
