"""A session of the scheduler: the slots in which a policy decides, from the first job submitted to the end of
the last.

Each slot: jobs that have arrived get hosts, in the order of arrival; those whose processes are ready are
shown to the policy; its plan is checked and carried out: rates that fall, circuits, rates that rise, starts.
Without a plan the last one stays in force.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol

from testbed.aggregation.admission import Places
from testbed.aggregation.segments import NoRoomError
from testbed.aggregation.system import Layout
from testbed.errors import TestbedError
from testbed.jobs.manager import Jobs
from testbed.jobs.placement import place_in_queue
from testbed.jobs.policy_process import GoneError, OverrunError, PolicyError
from testbed.jobs.scheduled import Links, Runner, Scheduled
from testbed.jobs.submission import JobSpec
from testbed.ocs.circuits import Circuit, checked
from testbed.ocs.exact import counted, exact
from testbed.scheduling import live
from testbed.scheduling.messages import ports_to_json
from testbed.scheduling.model import Fabric, Plan, Progress, State
from testbed.scheduling.model import Job as ModelJob
from testbed.simulation.fluid import check_plan
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host, switch


class Asking(Protocol):
    """Who has the plans (testbed/jobs/policy_process.py)."""

    def ask(self, state: State, slot_s: float, deadline: float) -> tuple[Plan, float]: ...


@dataclass(slots=True)
class Account:
    """What a session did, for results and `status`."""

    connections: int = 0
    reconfigurations: int = 0
    policy_s: list[float] = field(default_factory=list)
    overruns: int = 0
    failures: int = 0
    late_slots: int = 0
    complaints: list[str] = field(default_factory=list)  # the last ones
    slots: list[dict[str, Any]] = field(default_factory=list)

    def complain(self, text: str) -> None:
        self.complaints = [*self.complaints[-19:], text]


class Session:
    """The slots of one policy. `run` is its thread's; the other calls are anybody's."""

    def __init__(
        self,
        topology: Topology,
        fabric: Fabric,
        seed: int,
        jobs: Jobs,
        links: Links,
        places: Places | None,
        controller: Callable[..., Any],
        note: Callable[[str], None],
        tell: Callable[[Scheduled, str], None],
    ) -> None:
        self._topology, self.fabric, self.seed = topology, fabric, seed
        self._jobs, self._places, self._controller, self._note, self._tell = (
            jobs,
            places,
            controller,
            note,
            tell,
        )
        self.policy_name = ""
        self.lock = threading.RLock()
        self._moved = threading.Condition(self.lock)
        self._began = time.monotonic()
        self.slot = 0
        self.all: list[Scheduled] = []
        self.plan = Plan()
        self.account = Account()
        self.initial_ports: dict[tuple[int, int], int] | None = (
            None  # of the first slot in which the controller was there
        )
        self._ports = {
            unit.index: tuple(
                addresses.optical_port_name(unit.index, port) for port in range(1, unit.optical_ports + 1)
            )
            for unit in topology.units
        }
        self._ending = self._over = False
        host_mbps = topology.host_link.emulated_mbps(topology.scale) or 0.0
        self._runner = Runner(
            jobs, links, places, topology.mtu, host_mbps, self.lock, self.clock, self._changed, note
        )

    def clock(self) -> float:
        """Seconds since the first slot."""
        return time.monotonic() - self._began

    def add(self, coming: Sequence[Scheduled]) -> bool:
        """Jobs with their times of arrival. False when the session is over, or ends."""
        with self._moved:
            if self._over or self._ending:
                return False
            self.all += coming
            self.all.sort(key=lambda one: (one.arrival_s, one.id))
            self._moved.notify_all()
            return True

    def cancel(self, ids: set[int], reason: str) -> list[int]:
        """Ends those jobs, whatever their state; the numbers of those that it found."""
        found = []
        with self.lock:
            for one in self.all:
                if one.id not in ids or one.state == "ended":
                    continue
                found.append(one.id)
                if one.job is not None:
                    one.job.stop_reason = reason
                else:
                    one.state, one.failure, one.ended_s = "ended", reason, self.clock()
                    self._changed(one)
        return found

    def end(self) -> None:
        """Starts nothing more, and lets `run` return when all jobs have ended."""
        with self._moved:
            self._ending = True
            self._moved.notify_all()

    def _is_idle(self) -> bool:
        return all(one.state == "ended" for one in self.all)

    def is_done(self) -> bool:
        """Whether all its jobs have ended."""
        with self.lock:
            return self._is_idle()

    # ------------------------------------------------------------------ slots

    def begin(self) -> None:
        """Time starts: slot 0 begins now."""
        self._began = time.monotonic()

    def run(self, policy: Asking) -> None:
        """Until no job is left."""
        slot_s = self.fabric.slot_s
        while not self._over:
            began_s = self.slot * slot_s
            try:
                self._wait_until(began_s)
                if not self._over:
                    self._one_slot(policy, self._began + began_s + slot_s)
            except TestbedError as error:  # of the controller or a link: what is so stays so
                self._complain(f"slot {self.slot}: {error}")
            following = max(self.slot + 1, round(self.clock() / slot_s))  # a little late is not too late
            self.account.late_slots += following - self.slot - 1
            self.slot = following

    def _wait_until(self, at_s: float) -> None:
        """Meanwhile, jobs that arrive get hosts, and so do those that wait for hosts when some are free."""
        with self._moved:
            while not self._is_idle() and not self._ending and (rest := at_s - self.clock()) > 0:
                self._place()
                coming = [one.arrival_s - self.clock() for one in self.all if one.state == "coming"]
                self._moved.wait(max(0.0, min(rest, *coming)) if coming else rest)
            if self._ending:
                self._moved.wait_for(self._is_idle)
            self._over = self._is_idle()

    def _one_slot(self, policy: Asking, deadline: float) -> None:
        with self.lock:
            self._place()
            self._see_ready()
        lit = self._lit()
        if self.initial_ports is None:
            self.initial_ports = live.ports_of(counted(lit))
        with self.lock:
            for one in self.all:
                one.look(self._began)
            shown = [one for one in self.all if one.state in ("ready", "running")]
            state = self._state(shown, lit)
        if not shown:
            return
        plan, took_s = self._planned(policy, state, deadline)
        self._carry_out(state, plan, {one.id: one for one in shown}, lit, took_s)

    def _place(self) -> None:
        """Hosts for those that have arrived; one that cannot be placed holds up those behind it."""
        now = self.clock()
        for one in self.all:
            if one.state == "coming" and one.arrival_s <= now:
                one.state = "queued"
                self._tell(one, "arrived")
        for one in self.all:
            if one.state != "queued":
                continue
            job = self._jobs.hold(one.id, one.request, self._hosts_for(one.spec, Random(one.seed)))
            if job is None:
                return
            self._runner.begin(one, job)
            self._tell(one, f"on {' '.join(job.hosts)}")

    def _hosts_for(self, spec: JobSpec, random: Random) -> Callable[[set[Host]], Layout | None]:
        racks = self._jobs.racks
        return lambda busy: place_in_queue(
            racks, busy, spec.workers, spec.place, spec.together, spec.ps, random
        )

    def _see_ready(self) -> None:
        for one in self.all:
            if (
                one.state == "starting"
                and one.gates is not None
                and one.job is not None
                and one.gates.all_there()
            ):
                one.state = one.job.state = "ready"
                one.arrival, one.ready_s = self.slot, self.clock()

    def _lit(self) -> frozenset[Circuit]:
        return checked(self._controller("circuits")["circuits"], self._topology.optical_ports)

    def _state(self, shown: Sequence[Scheduled], lit: frozenset[Circuit]) -> State:
        progress = []
        for one in shown:
            assert one.job is not None
            assert one.arrival is not None
            slot_gigabits = one.rate_gbps * self.fabric.slot_s
            remaining = live.remaining_gigabits(one.gigabits, one.done_share, slot_gigabits)
            progress.append(Progress(self.model(one), remaining, one.started, one.inc, one.rate_gbps))
        return State(self._fabric_now(shown), self.slot, tuple(progress), live.ports_of(counted(lit)))

    def model(self, one: Scheduled) -> ModelJob:
        """The job as policies see it."""
        assert one.job is not None
        update_s = one.spec.iterations * one.spec.update_ms / 1e3
        return live.model_job(
            one.id, one.job.layout.workers, one.ps_unit, one.gigabits, update_s, one.arrival or 0
        )

    def _fabric_now(self, shown: Sequence[Scheduled]) -> Fabric:
        """With the places that jobs of `testbed run` leave."""
        taken = self._places.occupancy() if self._places else {}
        ours = [one.inc for one in shown if one.inc is not None]
        inc = tuple(
            max(0, places - max(0, taken.get(switch(unit + 1), 0) - ours.count(unit)))
            for unit, places in enumerate(self.fabric.inc)
        )
        return replace(self.fabric, inc=inc)

    # ------------------------------------------------------------------ plans

    def _planned(self, policy: Asking, state: State, deadline: float) -> tuple[Plan, float | None]:
        """The policy's plan, or the last one as far as it still applies."""
        try:
            plan, took_s = policy.ask(state, self.fabric.slot_s, deadline)
            self.account.policy_s.append(took_s)
            check_plan(state, plan, self.policy_name)
        except GoneError as error:
            self._complain(f"slot {state.slot}: {error}; jobs that wait are ended")
            self.cancel({one.id for one in self.all if one.started is None}, str(error))
        except OverrunError as error:
            if self.is_done():  # nobody waits for it
                return Plan(), None
            self.account.overruns += 1
            self._complain(f"slot {state.slot}: {error}; the last plan stays in force")
        except PolicyError as error:
            self.account.failures += 1
            self._complain(f"slot {state.slot}: {error}; the last plan stays in force")
        except TestbedError as error:
            self.account.failures += 1
            self._complain(f"the plan breaks a constraint: {error}; the last plan stays in force")
        else:
            return plan, took_s
        running = [progress.job.id for progress in state.jobs if progress.started is not None]
        return live.lasting(self.plan, running), None

    def _carry_out(
        self,
        state: State,
        plan: Plan,
        by_id: Mapping[int, Scheduled],
        lit: frozenset[Circuit],
        took_s: float | None,
    ) -> None:
        acts = live.actions(state, plan)
        record: dict[str, Any] = {"slot": state.slot, "policy_s": took_s}
        for id_, rate in acts.lower.items():
            self._set_rate(by_id[id_], rate)
        target = lit if took_s is None else exact(lit, acts.circuits, self._ports)
        if target != lit:
            self._controller("apply", circuits=[list(c.ports) for c in sorted(target)])
            added = len(target - lit)
            self.account.connections += added
            self.account.reconfigurations += added > 0
            record["set_up"] = added
        self.plan = plan
        for id_, rate in acts.higher.items():
            self._set_rate(by_id[id_], rate)
        for id_, inc in acts.start.items():
            self._start(by_id[id_], inc, plan.rates[id_])
        record |= {
            "rates": {str(id_): rate for id_, rate in plan.rates.items()},
            "ports": ports_to_json(plan.ports),
        }
        self.account.slots.append(record)

    def _set_rate(self, one: Scheduled, rate_gbps: float) -> None:
        try:
            self._runner.set_rate(one, self.slot, rate_gbps, live.emulated_mbps(self._topology, rate_gbps))
        except TestbedError as error:
            self._complain(f"slot {self.slot}: job {one.id} ({one.spec.name}): {error}")

    def _start(self, one: Scheduled, inc: int | None, rate_gbps: float) -> None:
        mbps = live.emulated_mbps(self._topology, rate_gbps)
        try:
            with self.lock:  # that it has ended is not told before this
                if self._runner.start(one, self.slot, inc, rate_gbps, mbps):
                    self._tell(one, f"{one.mode} at {rate_gbps:g} Gb/s")
        except (NoRoomError, TestbedError) as error:  # it is shown to the policy again
            self._complain(f"slot {self.slot}: job {one.id} ({one.spec.name}) was not started: {error}")

    def _changed(self, one: Scheduled) -> None:
        if one.state == "ended":
            self._tell(one, f"failed: {one.failure}" if one.failure else "done")
        with self._moved:
            self._moved.notify_all()

    def _complain(self, text: str) -> None:
        self.account.complain(text)
        with contextlib.suppress(OSError):
            self._note(f"scheduler: {text}")
