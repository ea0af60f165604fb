"""The surroundings of a session under test: jobs that are threads, a controller and links that are lists, and
a policy whose decisions a test can change.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from testbed.aggregation.packets import Packets
from testbed.aggregation.program import Clock, Findings, Grant
from testbed.aggregation.segments import NoRoomError
from testbed.aggregation.system import Layout
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import SettingError, TestbedError
from testbed.jobs.attempt import Attempt
from testbed.jobs.manager import Jobs, means_of
from testbed.jobs.observation import Observed
from testbed.jobs.processes import Ending
from testbed.jobs.request import JobRequest
from testbed.jobs.user_files import UserFiles
from testbed.local.counters import KernelCounters
from testbed.messages.coding import decode
from testbed.messages.result import JobTelemetry, WorkerResult
from testbed.messages.verdict import JobVerdict
from testbed.plugins.policies import choice
from testbed.queue.account import Rules
from testbed.queue.queued import Queued, requested
from testbed.queue.session import Session
from testbed.queue.submission import parse
from testbed.scheduling import live
from testbed.scheduling.model import Decision, State
from testbed.systems.p4inc.policies.catalogue import make
from testbed.topology import catalogue
from testbed.topology.places import Place
from testbed.wire.recovery import Recovery
from testbed.wire.settings import GateSettings, read
from tests.processes import spawn
from tests.unit import results
from tests.unit.made_settings import endpoint

SLOT_S = 0.1
WAIT_S = 60.0  # limit for a condition that is met within a few slots or never
TOPOLOGY = catalogue.ready("default")
UNJUDGED = JobVerdict(None, "verdict: none", (), ())


class Machine:
    """Links, controller and executor in one object: it records all that a session does to them."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        self.circuits = [list(pair) for pair in TOPOLOGY.ocs.circuits]
        self.down: list[str] = []  # ports whose links are down
        self.applied: list[list[list[str]]] = []
        self.told: dict[int, GateSettings] = {}
        self.may_end = threading.Event()
        self.fails: set[int] = set()
        self.fails_once = False
        self.attempts: list[Attempt] = []
        self.at_gates = threading.Event()
        self.requested: list[list[list[str]]] = []
        self.calls: list[str] = []  # to places, as "admit JOB" and "release JOB"
        self.rerouted: set[int] = set()
        self.files = UserFiles(spawn)
        self.refuses: str | None = None
        self.other_program: str | None = None  # error raised as if another program had replaced the testbed's
        self.attached_again: list[str] = []
        self.lacks: list[str] = []
        self.grant = Grant(64)
        self.looked: list[int] = []  # jobs whose places were looked at
        self.is_full = False
        self.admitted: set[int] = set()
        self.is_full_once = False
        self.packets: dict[int, Packets] = {}
        self.programs: dict[int, Mapping[str, str]] = {}
        self.links = self.hosts = self
        self.counters = KernelCounters()

    def fail_at_gates(self) -> None:
        """Let the next attempt fail while its workers wait at their gates."""
        self.at_gates.set()

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        if self.refuses:
            raise SettingError(self.refuses)
        self.rates |= rates_mbps

    def statistics(self, queues_only: bool = False) -> dict[str, Any]:
        return {}

    def require_programs(self, layout: Layout, recovery: Recovery) -> list[str]:
        if self.other_program:
            raise TestbedError(self.other_program)
        return self.attached_again

    def gone_links(self) -> dict[str, str]:
        return {}

    def by_hand_mbps(self, link: str) -> float | None:
        return None

    def ever_by_hand(self) -> frozenset[str]:
        return frozenset()

    def popen_in(self, host: str, argv: Any, **options: Any) -> Any:
        raise AssertionError("no process is started in this test")

    popen_aside = popen_in

    def set_users(self, users: Any) -> None:
        """Do nothing: no test here depends on users."""

    def ask(self, operation: str, **arguments: Any) -> Any:
        if operation == "circuits":
            return {"circuits": self.circuits, "dark": [], "failed_locks": {}, "down": self.down}
        if operation == "tree":
            return {"1": [[1]], "2": [[1]]}
        if operation == "history":
            return []
        if operation == "request":
            self.requested.append(arguments["demands"])
            return None
        assert operation == "apply"
        self.circuits = arguments["circuits"]
        self.applied.append(self.circuits)
        return {}

    # ---- places

    def counts(self, job: int) -> None:
        """Return nothing: no program here counts."""

    def admit(
        self, job: int, generation: int, forest: Any, ways: Any, packets: Packets, programs: Any
    ) -> Any:
        if self.is_full or self.is_full_once:
            self.is_full_once = False
            raise NoRoomError("u1: no room")
        self.calls.append(f"admit {job}")
        self.admitted.add(job)
        self.packets[job], self.programs[job] = packets, programs
        return SimpleNamespace(
            grant=self.grant,
            forest=forest,
            subscribe_parallel=lambda _: None,
            worker_env=lambda rank: endpoint(slots=64, ring_fd=0),
            worker_fds=lambda rank: [0],
        )

    def look(self, job: int, clock: Clock) -> Findings:
        assert clock() >= 0.0
        self.looked.append(job)
        return Findings()

    def release(self, job: int, first: int | None = None) -> None:
        self.calls.append(f"release {job}")
        self.admitted.discard(job)

    def groups(self, job: int) -> list[Any]:
        return []

    def reroute(self, job: int, ways: Any, first: int = 0) -> None:
        self.rerouted.add(job)

    def restarts(self) -> int:
        return 0

    def occupancy(self) -> dict[Place, int]:
        return {Place(1): len(self.admitted)}

    # ---- executor

    @contextlib.contextmanager
    def folder(self, job: int, request: JobRequest) -> Iterator[Path]:
        yield Path("/nowhere")

    def attempt(self, attempt: Attempt) -> tuple[list[Any], Ending]:
        """Act as an attempt's workers: come to the gates, if there are any, receive their settings, and end
        when the test lets them, a job is to fail or the session orders it.
        """
        gates, job, ranks = attempt.gates, attempt.job, range(len(attempt.layout.workers))
        ends = [socket.socket(fileno=os.dup(gates.fd(rank))) for rank in ranks] if gates else []
        self.attempts.append(attempt)
        attempt.started()
        for end in ends:
            end.sendall(b"here")
            end.settimeout(SLOT_S / 5)
        waiting = list(ends)
        while reason := attempt.orders.stop() is None:
            with contextlib.suppress(TimeoutError):
                while waiting:
                    self.told[job] = read(GateSettings, waiting[0].recv(65536))
                    waiting.pop(0)
            if not waiting and (self.may_end.is_set() or job in self.fails or attempt.orders.fail()):
                break
            if self.at_gates.is_set():
                self.at_gates.clear()
                self.fails.add(job)
                break
            time.sleep(SLOT_S / 10)
        for end in ends:
            end.close()
        failed = job in self.fails
        self.fails -= {job} if self.fails_once else set()
        why = (
            attempt.orders.stop()
            or attempt.orders.fail()
            or ("worker 0 on u1h1 exited with code 5" if failed else None)
        )
        return [], Ending({}, why, 0.1, not reason)

    testbed = "t"

    def folder_of(self, job: int) -> Path:
        return Path("/nowhere")

    def workers(self, *_: Any) -> tuple[list[WorkerResult], list[str]]:
        return [], self.lacks


def jobs_on(machine: Machine, folder: Path) -> Jobs:
    """Return jobs whose links, controller, places and processes are the machine."""
    anything: Any = machine
    means = means_of(
        Runtime("t", folder),
        TOPOLOGY,
        anything,
        machine.ask,
        anything,
        UserFiles(spawn),
        machine.require_programs,
    )
    return Jobs(replace(means, executor=anything))


OBSERVED = Observed(
    links=(),
    telemetry=decode(JobTelemetry, results.TELEMETRY, "telemetry"),
    stragglers=None,
    optical_losses={},
    other_traffic=(),
    bound=None,
    verdict=UNJUDGED,
    series=None,
)


class LookingGrant(Grant):
    """A grant whose places are looked at every millisecond."""

    looks = True

    def look_every_s(self, forest: Any) -> float:
        return 0.001


class NoObservation(contextlib.nullcontext[Any]):
    def __init__(self, *_: Any) -> None:
        super().__init__(SimpleNamespace(report=lambda *_: OBSERVED))


class Asked:
    """A named policy, asked in the test's own process; `spoil` may raise, wait, or change its decision."""

    def __init__(self, name: str = "inc-fcfs") -> None:
        self._policy = make(name, 1)
        self.spoil: Callable[[State, Decision], Decision] = lambda state, decision: decision
        self.states: list[State] = []

    def ask(self, state: State, slot_s: float, deadline: float, wanted: Any) -> tuple[Decision, float]:
        self.states.append(state)
        return self.spoil(state, self._policy.decide(state)), 0.001


class World:
    """A session that runs in its own thread."""

    def __init__(self, tmp_path: Path, *jobs: dict[str, Any]) -> None:
        self.machine, self.policy = Machine(), Asked()
        caller = Caller.of(os.getuid())
        self.jobs = jobs_on(self.machine, tmp_path)
        self.notes: list[str] = []
        self.said: list[tuple[int, str]] = []
        rules = Rules(
            "inc-fcfs",
            "inc-fcfs",
            live.limits_of(TOPOLOGY, SLOT_S, None, choice("inc-fcfs").with_inc.programs),
            1,
        )
        self.session = Session(
            TOPOLOGY,
            rules,
            self.jobs,
            self.notes.append,
            lambda queued, what: self.said.append((queued.id, what)),
        )
        request = JobRequest("x.py", (), "ps", None, caller, "/", {}, None, None)
        common = {"script": "x.py", "iterations": 10, "megabytes": 5.0, "workers": 2}
        submission = parse({"jobs": [{**common, **job} for job in jobs], "slot_s": SLOT_S})
        self.all = [
            Queued(
                self.jobs.means.holdings.number(), spec, requested(request, spec), str(at), spec.arrival_s,
                live.gigabits(TOPOLOGY, spec.megabytes, spec.iterations),
            )
            for at, spec in enumerate(submission.jobs)
        ]  # fmt: skip
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.session.begin()
        self.session.run(self.policy)

    def start(self, first: int | None = None) -> World:
        """Start the session with the first `first` jobs (None: all); `join` adds the rest."""
        self.session.add(self.all[:first])
        self._thread.start()
        return self

    def join(self) -> None:
        self.session.add([queued for queued in self.all if queued not in self.session.all])

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, (
                f"not within {WAIT_S} s: {what}; said {self.said}, notes {self.notes}"
            )
            time.sleep(0.01)

    def running(self, *ids: int) -> None:
        self.until(
            lambda: (
                {queued.id for queued in self.all if queued.state == "running"} & set(self.machine.told)
                >= set(ids)
            ),
            f"{ids} run",
        )

    def end(self) -> None:
        self.machine.may_end.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        assert not self.jobs.status(), "hosts are free"
        assert set(self.machine.rates.values()) <= {200.0}, "links have their rates back"
        assert not self.machine.admitted
