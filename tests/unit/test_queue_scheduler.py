"""Submissions and their sessions, with jobs that are threads and a policy in the test's own process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.daemon.process import LASTING
from testbed.errors import RequestError, TestbedError
from testbed.jobs import life
from testbed.messages.events import Event, QueueNews
from testbed.queue import scheduler
from testbed.queue.policy_process import Options
from testbed.queue.queued import Queued
from testbed.queue.scheduler import Scheduler
from testbed.queue.session import Session
from testbed.scheduling.model import Decision, State
from tests.unit.session_world import SLOT_S, TOPOLOGY, WAIT_S, Asked, Machine, NoObservation, jobs_on

JOB = {"script": "x.py", "iterations": 10, "megabytes": 5.0, "workers": 2}

ME = Caller.of(os.getuid())


class Place:
    """A scheduler; `policy` is the one that its next session asks, once `may_start`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine, self.policy, self.may_start = Machine(), Asked(), threading.Event()
        self.may_start.set()
        self.logs_before: list[bool] = []
        self.notes: list[str] = []
        self.events: list[Event] = []
        self.jobs = jobs_on(self.machine, folder)
        place = self

        class Process:
            """A stand-in for PolicyProcess."""

            def __init__(self, _s: Any, options: Options, wanted: Any) -> None:
                self.policy, self.wanted = options.policy, wanted
                place.logs_before.append(options.log.exists())
                options.log.touch()

            def __enter__(self) -> Process:
                while not place.may_start.wait(0.01):
                    if not self.wanted():
                        raise RequestError("policy is not needed any longer")
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def ask(
                self, state: State, slot_s: float, deadline: float, wanted: Any
            ) -> tuple[Decision, float]:
                return place.policy.ask(state, slot_s, deadline, wanted)

        monkeypatch.setattr(scheduler, "PolicyProcess", Process)
        monkeypatch.setattr(life, "Observation", NoObservation)
        self.scheduler = Scheduler(TOPOLOGY, self.jobs, folder / "policy", self.notes.append)

    def submit(
        self, *jobs: dict[str, Any], wait: bool = False, gone: threading.Event | None = None, **top: Any
    ) -> dict[str, Any]:
        data = {"slot_s": SLOT_S, "policy": "inc-fcfs", **top, "jobs": [{**JOB, **job} for job in jobs]}
        request = {"submission": data, "cwd": "/", "environ": {}, "wait": wait}
        return self.scheduler.submit(request, ME, self.events.append, gone or threading.Event())

    def in_background(self, *jobs: dict[str, Any], **more: Any) -> tuple[threading.Thread, list[Any]]:
        came: list[Any] = []

        def work() -> None:
            try:
                came.append(self.submit(*jobs, **more))
            except TestbedError as error:
                came.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread, came

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, (
                f"not within {WAIT_S} s: {what}; events {self.events}, notes {self.notes}"
            )
            time.sleep(0.01)

    @property
    def news(self) -> list[QueueNews]:
        return [event for event in self.events if isinstance(event, QueueNews)]

    def states(self) -> list[str]:
        status = self.scheduler.status()
        return [entry.state for entry in status.jobs] if status else []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(tmp_path, monkeypatch)
    yield made
    made.machine.may_end.set()
    made.scheduler.end("the test is over")
    assert not made.jobs.status()


def test_every_end_is_told_and_the_result_comes_once_when_all_end_at_once(place: Place) -> None:
    jobs = [{"name": f"j{at}", "workers": 1} for at in range(7)]
    thread, came = place.in_background(*jobs, wait=True)
    place.until(lambda: place.states().count("running") > 1, "some run")
    place.machine.may_end.set()
    thread.join(WAIT_S)
    assert (came[0]["done"], came[0]["failed"]) == (7, 0)
    assert sum(news.what == "done" for news in place.news) == 7
    place.until(lambda: place.scheduler.status() is None, "the session ends")


def test_each_of_many_cancels_at_once_is_answered_beside_all_that_wait(place: Place, tmp_path: Path) -> None:
    """200 jobs, queued by as many commands that wait for them as are served, and by one that does not."""
    path, submitting = tmp_path / "daemon.sock", rpc.server.MOST_LASTING

    def answer(request: dict[str, Any], peer: rpc.Peer, emit: rpc.Emit, gone: threading.Event) -> Any:
        if request["op"] == "cancel":
            return place.scheduler.cancel(request["jobs"], "cancelled", ME)
        return place.submit(*request["asked"], wait=request["wait"], gone=gone)

    def submit(number: int) -> None:
        rpc.call(path, "submit", timeout_s=None, asked=[{"name": f"waits-{number}"}], wait=True)

    def cancel(number: int) -> None:
        answers[number] = rpc.call(path, "cancel", timeout_s=WAIT_S, jobs=[])

    answers: dict[int, list[int]] = {}
    with rpc.serve(path, answer, lasting=LASTING):
        rest = [{"name": f"rest-{at}"} for at in range(200 - submitting)]
        assert len(rpc.call(path, "submit", asked=rest, wait=False)["jobs"]) == len(rest)
        waiting = threads(submit, submitting)
        place.until(lambda: len(place.states()) == 200, "all are queued")
        with pytest.raises(RequestError, match="requests that last"):
            submit(submitting)
        for thread in threads(cancel, 12):
            thread.join(WAIT_S)
        assert len(answers) == 12
        assert {number for ended in answers.values() for number in ended} == set(range(1, 201))
        place.machine.may_end.set()
        for thread in waiting:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_whoever_is_in_root_s_group_cancels_no_job_of_others(place: Place) -> None:
    (number,) = place.submit({"name": "a"})["jobs"]
    stranger = Caller(ME.uid + 4242, 0, (0,), "stranger", "/")
    assert place.scheduler.cancel([], "cancelled", stranger) == []
    with pytest.raises(RequestError, match=f"job {number} is not among the jobs queued here by this user"):
        place.scheduler.cancel([number], "cancelled", stranger)
    place.until(lambda: place.states() == ["running"], "it runs")
    with pytest.raises(RequestError, match=f"job {number}"):
        place.jobs.stop(number, "asked to end", stranger)
    assert place.scheduler.cancel([], "cancelled", ME) == [number]


def threads(work: Callable[[int], None], count: int) -> list[threading.Thread]:
    made = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in made:
        thread.start()
    return made


def test_one_after_the_other_and_both_at_once(place: Place) -> None:
    place.machine.may_end.set()
    for _ in range(3):
        assert place.submit({"name": "a"}, wait=True)["done"] == 1
    both = [place.in_background({"name": "a"}, wait=True) for _ in range(2)]
    for thread, _ in both:
        thread.join(WAIT_S)
    assert [came[0]["done"] for _, came in both] == [1, 1]


def test_policies_know_the_headers_of_a_job_with_few_lanes(place: Place) -> None:
    place.machine.may_end.set()
    assert place.submit({"name": "full"}, {"name": "narrow", "lanes": 64}, wait=True)["done"] == 2
    volumes = {
        progress.job.id: progress.job.gigabits for state in place.policy.states for progress in state.jobs
    }
    full, narrow = (volumes[number] for number in sorted(volumes))
    assert narrow / full == pytest.approx((74 + 256) / 256 / ((74 + 1440) / 1440))


def test_while_a_policy_starts_others_may_cancel_and_the_testbed_may_end(place: Place) -> None:
    place.may_start.clear()
    thread, came = place.in_background({"name": "a"})
    place.until(lambda: bool(place.logs_before), "it starts")
    with pytest.raises(RequestError, match="job 1 is not among the jobs queued here"):
        place.scheduler.cancel([1], "cancelled", ME)
    place.scheduler.end("down")
    thread.join(WAIT_S)
    assert str(came[0]) == "the testbed is ending"


def test_while_a_policy_starts_no_job_of_run_gets_circuits(place: Place) -> None:
    place.may_start.clear()
    thread, _ = place.in_background({"name": "a"})
    place.until(lambda: bool(place.logs_before), "it starts")
    assert place.jobs.means.supply.is_left_to_policy
    place.may_start.set()
    thread.join(WAIT_S)
    assert place.jobs.means.supply.is_left_to_policy
    place.machine.may_end.set()
    place.until(lambda: place.scheduler.status() is None, "the session ends")
    assert not place.jobs.means.supply.is_left_to_policy


def test_a_command_that_goes_away_while_the_policy_starts_queues_nothing(place: Place) -> None:
    place.may_start.clear()
    gone = threading.Event()
    thread, came = place.in_background({"name": "a"}, gone=gone)
    place.until(lambda: bool(place.logs_before), "it starts")
    gone.set()
    thread.join(WAIT_S)
    assert isinstance(came[0], RequestError)
    assert place.scheduler.status() is None
    assert not place.jobs.means.supply.is_left_to_policy


def test_who_waits_for_jobs_is_told_what_is_wrong_with_their_policy_once(place: Place) -> None:
    def spoil(state: State, decision: Decision) -> Decision:
        return Decision({job: 1000.0 for job in decision.rates}, decision.inc, decision.ports)

    place.policy.spoil = spoil
    thread, came = place.in_background({"name": "a", "place": "u1:2"}, wait=True)

    def failures() -> int:
        status = place.scheduler.status()
        return status.policy_failures if status else 0

    place.until(lambda: failures() > 4, "it is so in every slot")
    place.policy.spoil = lambda state, decision: decision
    place.machine.may_end.set()
    thread.join(WAIT_S)
    complaints = [news.what for news in place.news if "breaks a constraint" in news.what]
    first, counted = complaints
    assert first.startswith("the decision breaks a constraint: inc-fcfs, slot")
    (result,) = came
    assert counted == f"{first}: {result['policy_failures']} times in all"
    assert result["complaints"][-1].endswith(f"({result['policy_failures']} times)")
    assert [note for note in place.notes if "breaks a constraint" in note] == [
        f"scheduler: {first}",
        f"scheduler: {counted}",
    ]


@pytest.mark.parametrize("late_s", [0.0, 4 * SLOT_S])
def test_the_result_is_written_before_the_testbed_ends(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """Also when the thread of the last job is held up for slots as it has ended."""
    changed = Session._changed

    def held_up(session: Session, queued: Queued) -> None:
        time.sleep(late_s if queued.state == "ended" else 0.0)
        changed(session, queued)

    monkeypatch.setattr(Session, "_changed", held_up)
    data = {"slot_s": SLOT_S, "jobs": [{**JOB, "name": "a"}]}
    request = {"submission": data, "cwd": "/", "environ": {}, "wait": False}
    file = tmp_path / "result.json"
    place.scheduler.submit({**request, "json": str(file)}, ME, place.events.append, threading.Event())
    place.scheduler.end("the testbed is ending")
    assert '"failure": "the testbed is ending"' in file.read_text()


def test_a_result_that_cannot_be_written_is_told_to_who_waits_for_it(place: Place, tmp_path: Path) -> None:
    gone = tmp_path / "gone" / "result.json"
    place.machine.may_end.set()
    data = {"slot_s": SLOT_S, "jobs": [{**JOB, "name": "a"}]}
    request = {"submission": data, "cwd": "/", "environ": {}, "wait": True}
    result = place.scheduler.submit(
        {**request, "json": str(gone)}, ME, place.events.append, threading.Event()
    )
    complaint = f"result {gone}: No such file or directory"
    assert (result["done"], result["lost"]) == (1, complaint)
    assert f"scheduler: {complaint}" in place.notes
    assert place.submit({"name": "a"}, wait=True)["lost"] is None
