"""The scheduler's slots, with jobs that are threads, a controller and links that are lists, and policies that misbehave."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import SettingError, TestbedError
from testbed.inc.segments import NoRoomError
from testbed.jobs import scheduled
from testbed.jobs.board import JobBoard
from testbed.jobs.gates import Gates
from testbed.jobs.job import Job, JobRequest
from testbed.jobs.launch import Outcome
from testbed.jobs.manager import Jobs
from testbed.jobs.policy_process import OverrunError, PolicyError
from testbed.jobs.schedule_result import of_batch, of_session
from testbed.jobs.scheduled import Scheduled
from testbed.jobs.session import Session
from testbed.jobs.submission import parse
from testbed.runtime import Caller
from testbed.scheduling import live
from testbed.scheduling.catalogue import make
from testbed.scheduling.model import Plan, State
from testbed.topology import catalogue

SLOT_S = 0.1
TOPOLOGY = catalogue.ready("default")


class Machine:
    """Links, controller and executor in one: everything that a session acts on, and a record of it."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        self.circuits = [list(pair) for pair in TOPOLOGY.ocs.circuits]
        self.applied: list[list[list[str]]] = []
        self.told: dict[int, dict[str, Any]] = {}
        self.may_end = threading.Event()
        self.fails: set[int] = set()
        self.refuses: str | None = None
        self.is_full = False
        self.admitted: set[int] = set()

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        if self.refuses:
            raise SettingError(self.refuses)
        self.rates |= rates_mbps

    def statistics(self, queues_only: bool = False) -> dict[str, Any]:
        return {}

    def popen_in(self, host: str, argv: Any, **options: Any) -> Any:
        raise AssertionError("no process is started in this test")

    def ask(self, operation: str, **arguments: Any) -> Any:
        if operation == "circuits":
            return {"circuits": self.circuits}
        assert operation == "apply"
        self.circuits = arguments["circuits"]
        self.applied.append(self.circuits)
        return {}

    # ---- engine

    def admit(self, job: int, generation: int, members: Any) -> Any:
        if self.is_full:
            raise NoRoomError("u1: no room")
        self.admitted.add(job)
        return SimpleNamespace(worker_env=lambda rank: {"slots": 64, "ring_fd": 0}, worker_fds=lambda rank: [0])

    def release(self, job: int) -> None:
        self.admitted.discard(job)

    def occupancy(self) -> dict[int, int]:
        return {1: len(self.admitted)}

    # ---- executor

    @contextlib.contextmanager
    def folder(self, job: Job) -> Iterator[Path]:
        yield Path("/nowhere")

    def attempt(
        self, job: Job, _a: None, _f: Path, _n: int, _e: Any, stop: Callable[[], str | None], gates: Gates
    ) -> tuple[list[Any], Outcome]:
        """Workers that come to their gates, are told, sum all, and leave when they may."""
        with JobBoard(len(job.hosts)) as board:
            job.board = board
            ends = [socket.socket(fileno=os.dup(gates.fd(rank))) for rank in range(len(job.hosts))]
            gates.are_inherited()
            for end in ends:
                end.sendall(b"here")
                end.settimeout(SLOT_S / 5)
            waiting = list(ends)
            while reason := stop() is None:
                with contextlib.suppress(TimeoutError):
                    while waiting:
                        self.told[job.id] = json.loads(waiting[0].recv(65536))
                        waiting.pop(0)
                if not waiting and (self.may_end.is_set() or job.id in self.fails):
                    break
                time.sleep(SLOT_S / 10)
            for end in ends:
                end.close()
            job.board = None
        why = stop() or ("worker 0 on u1h1 exited with code 5" if job.id in self.fails else None)
        return [], Outcome({}, why, 0.1, not reason)

    def report(self, job: Job, folder: Path, specs: Any, outcome: Outcome) -> dict[str, Any]:
        return {"id": job.id, "sync": job.placement.sync, "workers": []}


class NoObservation(contextlib.nullcontext[Any]):
    def __init__(self, *_: Any) -> None:
        super().__init__(SimpleNamespace(report=lambda *_: {}))


class Asked:
    """A policy of the catalogue, asked in the test's process; `spoil` may raise, wait or change its plan."""

    def __init__(self, name: str = "inc-fcfs") -> None:
        self._policy = make(name, 1)
        self.spoil: Callable[[State, Plan], Plan] = lambda state, plan: plan
        self.states: list[State] = []

    def ask(self, state: State, slot_s: float, deadline: float) -> tuple[Plan, float]:
        self.states.append(state)
        return self.spoil(state, self._policy.plan(state)), 0.001


class World:
    """A session that runs on its thread."""

    def __init__(self, tmp_path: Path, *jobs: dict[str, Any]) -> None:
        self.machine, self.policy = Machine(), Asked()
        caller = Caller.of(os.getuid())
        machine: Any = self.machine
        self.jobs = Jobs("t", TOPOLOGY, machine, machine.ask, None, tmp_path, caller)
        self.jobs.executor = machine
        self.notes: list[str] = []
        self.said: list[tuple[int, str]] = []
        self.session = Session(
            TOPOLOGY, live.fabric_of(TOPOLOGY, SLOT_S, None), 1, self.jobs, machine, machine, machine.ask,
            self.notes.append, lambda one, what: self.said.append((one.id, what)),
        )  # fmt: skip
        self.session.policy_name = "inc-fcfs"
        request = JobRequest("x.py", (), "ps", None, caller, "/", {}, None, None, 0)
        common = {"script": "x.py", "iterations": 10, "megabytes": 5.0, "workers": 2}
        submission = parse({"jobs": [{**common, **job} for job in jobs], "slot_s": SLOT_S})
        self.all = [
            Scheduled(
                self.jobs.number(), spec, request, str(at), spec.arrival_s,
                live.gigabits(TOPOLOGY, spec.megabytes, spec.iterations),
            )
            for at, spec in enumerate(submission.jobs)
        ]  # fmt: skip
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.session.begin()
        self.session.run(self.policy)

    def start(self) -> World:
        self.session.add(self.all)
        self._thread.start()
        return self

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 10.0
        while not condition():
            assert time.monotonic() < deadline, f"not within 10 s: {what}; said {self.said}, notes {self.notes}"
            time.sleep(0.01)

    def running(self, *ids: int) -> None:
        self.until(
            lambda: {one.id for one in self.all if one.state == "running"} & set(self.machine.told) >= set(ids),
            f"{ids} run",
        )

    def end(self) -> None:
        self.machine.may_end.set()
        self._thread.join(10.0)
        assert not self._thread.is_alive()
        assert not self.jobs.status(), "hosts are free"
        assert set(self.machine.rates.values()) <= {200.0}, "links have their rates back"
        assert not self.machine.admitted


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    monkeypatch.setattr(scheduled, "Observation", NoObservation)
    return lambda *jobs: World(tmp_path, *jobs)


def test_a_plan_is_carried_out(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2", "ps": "u3"}).start()
    made.running(1)
    one, machine = made.all[0], made.machine
    assert one.mode == "INC", "the default topology's switches sum"
    assert machine.rates == {"u1h1": 200.0, "u1h2": 200.0}
    assert machine.admitted == {1}
    assert machine.told[1]["sync"] == "inc"
    assert machine.told[1]["engine"] == {"slots": 64, "ring_fd": 0, "rate_mbps": 200.0}
    assert one.job is not None
    assert one.job.ps_host is None, "its parameter server's host is free for others"
    made.end()
    assert (one.failure, one.state) == (None, "ended")
    assert [what for _, what in made.said][:2] == ["arrived", "on u1h1 u1h2"]
    assert made.said[-1] == (1, "done")


def test_jobs_beyond_the_hosts_wait_and_are_not_shown(world: Callable[..., World]) -> None:
    made = world(*({"name": f"j{at}", "place": "u1:2", "ps": "u3"} for at in range(3))).start()
    made.running(1, 2)
    made.until(lambda: made.session.slot > 4, "slots pass")
    assert made.all[2].state == "queued"
    assert {progress.job.id for state in made.policy.states for progress in state.jobs} == {1, 2}
    made.machine.fails.add(1)
    made.running(3)
    assert made.all[2].job is not None
    assert made.all[2].job.hosts == ["u1h1", "u1h2"]
    made.end()
    assert made.all[0].failure == "worker 0 on u1h1 exited with code 5"


def test_one_that_cannot_be_placed_holds_up_those_behind_it(world: Callable[..., World]) -> None:
    made = world(
        {"name": "a", "place": "u1:3", "ps": "u3", "workers": 3},
        {"name": "big", "place": "u1:4", "ps": "u3", "workers": 4},
        {"name": "c", "place": "u2:1", "ps": "u4", "workers": 1},
    ).start()
    made.running(1)
    made.until(lambda: made.session.slot > 3, "slots pass")
    assert [one.state for one in made.all] == ["running", "queued", "queued"]
    made.end()
    assert all(one.failure is None for one in made.all)


def test_a_cancelled_job_frees_its_hosts_whatever_its_state(world: Callable[..., World]) -> None:
    made = world(
        {"name": "a", "place": "u1:4", "ps": "u3", "workers": 4},
        {"name": "b", "place": "u1:4", "ps": "u3", "workers": 4},
        {"name": "c", "place": "u1:4", "ps": "u3", "workers": 4, "at_s": 600},
    ).start()
    made.running(1)
    assert made.session.cancel({2, 3}, "cancelled") == [2, 3]
    assert made.session.cancel({1, 2, 3}, "cancelled") == [1]
    made.end()
    assert [one.failure for one in made.all] == ["cancelled"] * 3


def test_a_job_that_overstays_is_ended(world: Callable[..., World]) -> None:
    made = world({"name": "a", "limit_s": 0.3}).start()
    made.until(lambda: made.all[0].state == "ended", "the job ends")
    made.end()
    assert made.all[0].failure == "not done 0.3 s after its start"


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (OverrunError("policy x had no plan when its time was over"), "overruns"),
        (PolicyError("policy x raised"), "failures"),
    ],
)
def test_without_a_plan_the_last_one_stays_in_force(
    world: Callable[..., World], error: Exception, counted: str
) -> None:
    made = world({"name": "a", "place": "u1:2"}, {"name": "b", "place": "u2:2", "at_s": 0.5}).start()
    made.running(1)

    def spoil(state: State, plan: Plan) -> Plan:
        raise error

    made.policy.spoil = spoil
    made.until(lambda: made.all[1].state == "ready", "the second job is ready")
    before = getattr(made.session.account, counted)
    made.until(lambda: getattr(made.session.account, counted) > before + 2, "it is counted")
    assert [one.state for one in made.all] == ["running", "ready"], "new jobs wait, and running ones go on"
    assert "the last plan stays in force" in made.notes[-1]
    assert of_session(made.session)["complaints"][-1] in made.notes[-1]
    made.policy.spoil = lambda state, plan: plan
    made.running(2)
    made.end()


def test_a_plan_that_breaks_a_constraint_is_not_carried_out(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"}).start()
    made.policy.spoil = lambda state, plan: Plan({job: 1000.0 for job in plan.rates}, plan.inc, plan.ports)
    made.until(lambda: made.session.account.failures > 1, "it is counted")
    assert made.all[0].state == "ready"
    assert "breaks a constraint: inc-fcfs, slot" in made.notes[-1]
    made.policy.spoil = lambda state, plan: plan
    made.running(1)
    made.end()


def test_rates_and_circuits_follow_the_plan(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2", "ps": "u3"})
    made.session.policy_name = "made up"
    rate = [10.0]
    made.policy.spoil = lambda state, plan: Plan({1: rate[0]} if state.jobs else {}, {}, {(0, 2): 2})
    made.start().running(1)
    machine = made.machine
    assert sorted({tuple(sorted(end[:2] for end in pair)) for pair in machine.circuits}) == [("u1", "u3")]
    assert len(machine.circuits) == 2
    assert machine.rates == {"u1h1": 50.0, "u1h2": 50.0}
    assert machine.told[1] == {"sync": "ps", "engine": {}, "ps": ["10.0.3.1", 30501], "ps_host": "u3h1", "fds": []}
    rate[0] = 20.0
    made.until(lambda: machine.rates == {"u1h1": 100.0, "u1h2": 100.0}, "the rate rises")
    rate[0] = 5.0
    made.until(lambda: machine.rates == {"u1h1": 25.0, "u1h2": 25.0}, "the rate falls")
    made.end()
    result = of_batch(made.all, made.session, TOPOLOGY)
    assert [value for _, value in made.all[0].rates] == [10.0, 20.0, 5.0]
    assert (result["done"], result["failed"], result["reconfigurations"]) == (1, 0, 1)
    assert result["reconfigured_connections"] == len(machine.applied[0])
    assert result["model"]["ports"] == [[0, 1, 1], [0, 3, 1], [1, 2, 1], [2, 3, 1]]
    json.dumps(result)


def test_a_link_that_does_not_take_its_rate_is_said_and_the_job_waits(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"})
    made.machine.refuses = "link u1h1: 200 Mb/s was set, and u1h1-a reads back no rate"
    made.start().until(lambda: len(made.notes) > 2, "it is said")
    assert made.all[0].state == "ready"
    assert "job 1 (a) was not started: link u1h1: 200 Mb/s was set" in made.notes[0]
    made.machine.refuses = None
    made.running(1)
    made.end()


def test_a_switch_without_room_makes_a_job_wait(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"})
    made.machine.is_full = True
    made.start().until(lambda: len(made.notes) > 2, "it is said")
    assert made.all[0].state == "ready"
    made.machine.is_full = False
    made.running(1)
    made.end()


def test_the_end_of_the_testbed_ends_everything(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:4", "workers": 4}, {"name": "b", "place": "u1:4", "workers": 4}).start()
    made.running(1)
    made.session.cancel({1, 2}, "the testbed is ending")
    made.session.end()
    made.end()
    assert {one.failure for one in made.all} == {"the testbed is ending"}
    assert not made.session.add([]), "it takes no more"


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
