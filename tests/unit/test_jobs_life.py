"""The life of a job of `testbed run`, with processes that are nothing and a network that is a list. That of a
queued one is the same, and is in test_queue_session.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.packets import Packets
from testbed.aggregation.program import Clock, Findings, Grant
from testbed.aggregation.segments import NoRoomError
from testbed.client.caller import Caller
from testbed.errors import RequestError, TestbedError
from testbed.jobs import life
from testbed.jobs.looks import Looks
from testbed.jobs.manager import Jobs
from testbed.messages.events import Event, JobNote
from testbed.systems.p4inc.system import P4inc
from testbed.systems.switches.system import Switches
from testbed.systems.trio.counts import BlocksStatus
from tests.limits import CALL_S
from tests.unit.session_world import LookingGrant, Machine, NoObservation, jobs_on

ME = Caller.of(os.getuid())


class Run:
    """Jobs whose processes end at once, and what was told of them."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine()
        self.machine.may_end.set()
        self.jobs: Jobs = jobs_on(self.machine, folder)
        self.events: list[Event] = []

    def __call__(self, **asked: Any) -> dict[str, Any]:
        request = {"script": "x.py", "arguments": [], "cwd": "/", "environ": {}, "place": "u1:2", **asked}
        answer = self.jobs.run(request, ME, self.events.append, threading.Event())
        return dict(json.loads(json.dumps(answer)))

    def nothing_is_held(self) -> bool:
        return not (self.jobs.status() or self.jobs.means.holdings.busy() or self.machine.admitted)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(life, "Observation", NoObservation)
    return Run(tmp_path)


def test_a_job_has_its_places_while_its_processes_run_and_nothing_while_its_result_is_made(run: Run) -> None:
    held: list[tuple[set[int], int]] = []
    seen = run.machine.workers

    def attempt(attempt: Any) -> Any:
        held.append((set(run.machine.admitted), len(run.jobs.means.holdings.busy())))
        return Machine.attempt(run.machine, attempt)

    def workers(*arguments: Any) -> Any:
        held.append((set(run.machine.admitted), len(run.jobs.means.holdings.busy())))
        return seen(*arguments)

    run.machine.attempt, run.machine.workers = attempt, workers  # type: ignore[method-assign]
    result = run(sync="inc")
    assert held == [({1}, 2), (set(), 0)]
    assert (result["sync"], result["asked_sync"], result["failure"]) == ("inc", "inc", None)
    assert result["ocs"] == {"events": []}
    assert run.machine.attempts[0].gates is None, "it need not wait to be told how to run"
    assert run.nothing_is_held()


def test_a_job_without_room_is_summed_by_the_system_named_for_that(run: Run) -> None:
    run.machine.is_full = True
    result = run(sync="inc")
    assert (result["sync"], result["asked_sync"]) == ("ps", "inc")
    note = "no room (u1: no room): summed by ps, whose server is on u4h1"
    assert result["notes"] == [note]
    assert JobNote(note) in run.events
    with pytest.raises(RequestError, match=r"^u1: no room$") as refused:
        run(sync="switches")
    assert isinstance(refused.value.__cause__, NoRoomError)
    assert run.nothing_is_held()


def test_a_job_without_room_may_be_summed_at_places_by_the_programs_of_the_other_system(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(P4inc, "instead", "switches")
    monkeypatch.setattr(Switches, "programs", {"xdp": "sum"})
    run.machine.is_full_once = True
    result = run(sync="inc", lanes=64)
    assert (result["sync"], result["notes"]) == ("switches", ["no room (u1: no room): summed by switches"])
    assert (run.machine.programs, run.machine.packets) == ({1: {"xdp": "sum"}}, {1: Packets(64)})
    assert run.nothing_is_held()
    monkeypatch.setattr(Switches, "programs", {"xdp": "of another engine"})
    run.machine.is_full_once = True
    with pytest.raises(
        RequestError, match="--sync switches: u1 has engine: xdp, which has no program 'of an"
    ):
        run(sync="inc")
    assert run.nothing_is_held()


def test_it_starts_again_in_a_new_generation_with_places_of_its_own(run: Run) -> None:
    run.machine.fails, run.machine.fails_once = {1}, True
    result = run(sync="inc", restarts=2)
    first, second = run.machine.attempts
    assert (first.number, second.number) == (0, 1)
    assert first.generation != second.generation
    assert [attempt["generation"] for attempt in result["attempts"]] == [first.generation, second.generation]
    assert run.machine.calls == ["admit 1", "release 1", "admit 1", "release 1"]
    assert result["notes"] == ["worker 0 on u1h1 exited with code 5: restart 1 of at most 2"]
    assert result["failure"] is None


def test_one_that_cannot_have_its_places_again_has_failed(run: Run) -> None:
    run.machine.fails, run.machine.fails_once = {1}, True
    admit = run.machine.admit

    def once(*arguments: Any, **named: Any) -> Any:
        if run.machine.attempts:
            raise TestbedError("u1: its switch is away")
        return admit(*arguments, **named)

    run.machine.admit = once  # type: ignore[method-assign]
    result = run(sync="switches", restarts=1)
    assert result["failure"] == (
        "worker 0 on u1h1 exited with code 5; and no restart: u1: its switch is away"
    )
    assert run.nothing_is_held()


OTHER = "host u1h1: eth0 has the XDP program 'other' (7), and not the testbed's host_port"


def test_one_whose_devices_have_other_programs_is_refused_before_anything_starts(run: Run) -> None:
    run.machine.other_program = OTHER
    with pytest.raises(TestbedError, match="u1h1: eth0 has the XDP program"):
        run(sync="inc", place="u1:1,u2:1")
    assert (run.machine.attempts, run.machine.calls, run.machine.requested) == ([], [], [])
    assert run.nothing_is_held()
    run.machine.other_program, run.machine.attached_again = None, ["host u1h1: eth0 had none any more"]
    assert run(sync="inc")["notes"] == ["host u1h1: eth0 had none any more"]


def test_one_whose_devices_get_other_programs_does_not_start_again(run: Run) -> None:
    run.machine.fails = {1}
    attempt = run.machine.attempt

    def attached_meanwhile(asked: Any) -> Any:
        run.machine.other_program = OTHER
        return attempt(asked)

    run.machine.attempt = attached_meanwhile  # type: ignore[method-assign]
    result = run(sync="inc", restarts=3)
    assert result["failure"] == f"worker 0 on u1h1 exited with code 5; and no restart: {OTHER}"
    assert len(run.machine.attempts) == 1
    assert run.nothing_is_held()


@pytest.mark.parametrize("where", ["folder", "attempt", "workers"])
def test_all_is_given_back_whatever_raises(run: Run, where: str) -> None:
    def fails(*_: Any) -> Any:
        raise OSError(f"no {where}")

    @contextlib.contextmanager
    def fails_in_time(*_: Any) -> Iterator[Path]:
        raise OSError(f"no {where}")
        yield

    raising: Callable[..., Any] = fails_in_time if where == "folder" else fails
    setattr(run.machine, where, raising)
    with pytest.raises(OSError, match=f"no {where}"):
        run(sync="inc")
    assert run.nothing_is_held()
    run.machine = Machine()


def test_what_is_not_taken_back_is_a_note_and_the_hosts_are_free(run: Run) -> None:
    def away(job: int) -> None:
        raise TestbedError("u1: its switch is away")

    run.machine.release = away  # type: ignore[method-assign]
    result = run(sync="inc")
    assert (result["failure"], result["notes"]) == (None, ["u1: its switch is away"])
    assert not run.jobs.means.holdings.busy()


NOT_COUNTS: list[tuple[Any, str]] = [
    (TestbedError("job 1: its program's counts raised KeyError: 'made'"), "raised KeyError: 'made'"),
    ({"made": 1, "slots": 2}, "job 1: its program counts dict, not BlocksStatus"),
    (BlocksStatus("many", 0, {}), r"job 1: its program's counts: .*Expected `int`, got `str` - at `\$.made`"),  # type: ignore[arg-type]
    (BlocksStatus(3, 0, {"1": 0.5}), r"its program's counts: .*Expected `int`, got `float`"),  # type: ignore[dict-item]
    (BlocksStatus(3, 0, {"1": Grant}), r"its program's counts: .* is nothing that JSON has"),  # type: ignore[dict-item]
]


def counting(counts: Any) -> Callable[[int], Any]:
    """Return what asks a program for its counts, which it raises if they are an error."""

    def ask(job: int) -> Any:
        if isinstance(counts, Exception):
            raise counts
        return counts

    return ask


@pytest.mark.parametrize(("counts", "note"), NOT_COUNTS)
def test_a_program_that_cannot_count_costs_a_note_and_no_status(run: Run, counts: Any, note: str) -> None:
    shown: list[Any] = []
    attempt = run.machine.attempt

    def running(asked: Any) -> Any:
        shown.extend(run.jobs.status())
        return attempt(asked)

    run.machine.attempt = running  # type: ignore[method-assign]
    run.machine.counts = counting(counts)  # type: ignore[method-assign]
    result = run(sync="inc")
    assert [(job.id, job.blocks) for job in shown] == [(1, None)]
    (said,) = result["notes"]
    assert re.search(note, said)
    assert ("blocks" in result, result["failure"]) == (False, None)
    assert run.nothing_is_held()


def test_its_places_are_given_back_whatever_its_counts_raise(run: Run) -> None:
    run.machine.counts = counting(ZeroDivisionError())  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        run(sync="inc")
    assert run.machine.calls == ["admit 1", "release 1"]
    assert run.nothing_is_held()


@pytest.mark.parametrize("method", ["look", "every_s"])
def test_a_program_that_raises_when_it_looks_fails_its_job(method: str) -> None:
    ended, reasons = threading.Event(), list[str]()

    def failed(why: str) -> None:
        reasons.append(why)
        ended.set()

    def raising(*_: Any) -> Any:
        raise KeyError("worker")

    asked: dict[str, Any] = {"every_s": lambda: 0.0, "look": lambda clock: Findings(), method: raising}
    with Looks(asked["every_s"], asked["look"], lambda findings: None, failed) as looks:
        looks.start()
        assert ended.wait(CALL_S)
    assert reasons == ["look for stragglers: KeyError: 'worker'"]


def test_what_a_look_finds_is_told_and_nothing_looks_before_it_is_started() -> None:
    reports, looked = list[Findings](), threading.Event()

    def look(clock: Clock) -> Findings:
        assert clock() >= 0.0
        if looked.is_set():
            return Findings()
        looked.set()
        return Findings(["worker 1 left u1"], frozenset({1}))

    with Looks(lambda: 0.0, look, reports.append, pytest.fail) as looks:
        assert not looked.wait(0.05)
        looks.start()
        assert looked.wait(CALL_S)
    assert reports == [Findings(["worker 1 left u1"], frozenset({1}))]


@pytest.mark.parametrize(("grant", "starts"), [(Grant(64), 0), (LookingGrant(64), 2)])
def test_each_attempt_looks_where_its_grant_does(
    run: Run, monkeypatch: pytest.MonkeyPatch, grant: Grant, starts: int
) -> None:
    started, ends, set_looks = list[Looks](), list[str](), life.Job._set_looks

    class CountedLooks(Looks):
        def start(self) -> None:
            started.append(self)
            super().start()

        def __exit__(self, *error: Any) -> None:
            ends.append("ended")
            super().__exit__(*error)

    def noted(job: life.Job, looks: Looks | None) -> None:
        ends.extend(["forgotten"] if looks is None else [])
        set_looks(job, looks)

    monkeypatch.setattr(life, "Looks", CountedLooks)
    monkeypatch.setattr(life.Job, "_set_looks", noted)
    run.machine.grant, run.machine.fails, run.machine.fails_once = grant, {1}, True
    assert run(sync="inc", restarts=1)["failure"] is None
    assert len(run.machine.attempts) == 2
    assert len(set(map(id, started))) == len(started) == starts
    assert ends == ["forgotten", "ended"] * 2, "nobody starts looks that end"


def test_a_grant_that_raises_when_it_is_asked_whether_it_looks_fails_its_job(run: Run) -> None:
    class BrokenGrant(Grant):
        @property
        def looks(self) -> bool:
            raise KeyError("worker")

    run.machine.grant = BrokenGrant(64)
    run.machine.may_end.clear()
    assert run(sync="inc")["failure"] == "look for stragglers: KeyError: 'worker'"
    assert run.nothing_is_held()


def test_looks_may_end_while_they_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is where a queued job is told to start and its worker dies."""
    looks = Looks(lambda: 60.0, lambda clock: pytest.fail("it looked"), pytest.fail, pytest.fail)

    class LateThread(threading.Thread):
        def start(self) -> None:
            looks.__exit__(None, None, None)
            super().start()
            self.join(CALL_S)
            assert not self.is_alive()

    monkeypatch.setattr(threading, "Thread", LateThread)
    looks.start()


def test_the_blocks_of_a_job_are_in_its_result(run: Run) -> None:
    run.machine.counts = counting(BlocksStatus(9, 1, {"1": 3}))  # type: ignore[method-assign]
    result = run(sync="inc")
    assert result["blocks"] == {"made": 9, "active": 1, "without": {"1": 3}, "left": []}


def test_circuits_are_asked_for_unless_a_decision_has_set_them(run: Run) -> None:
    run(sync="ring", place="u1:1,u2:1")
    assert run.machine.requested == [[["u1", "u2"]]]
    with (
        run.jobs.means.supply.left_to_policy(),
        pytest.raises(RequestError, match="the circuits are the scheduler's"),
    ):
        run(sync="ring", place="u1:1,u2:1")
    assert run.nothing_is_held()
    assert run(sync="ring", place="u1:1,u2:1")["failure"] is None
