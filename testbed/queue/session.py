"""A session of the scheduler: the slots in which a policy decides, from the first job submitted to the end of
the last.

Each slot: jobs that have arrived get hosts, in the order of arrival; those whose processes are ready are
shown to the policy; its decision is checked and carried out: rates that fall, circuits, rates that rise,
starts. Without a decision the last one stays in force.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from testbed.aggregation.segments import NoRoomError
from testbed.errors import RequestError, TestbedError
from testbed.jobs.life import Job, Terms
from testbed.jobs.manager import Jobs
from testbed.jobs.supply import Start
from testbed.ocs.circuits import Circuit, checked
from testbed.ocs.exact import counted, exact
from testbed.queue.account import Account, Rules
from testbed.queue.layouts import laid_out, summed_in_unit
from testbed.queue.policy_process import GoneError, OverrunError, PolicyError
from testbed.queue.queued import Queued
from testbed.scheduling import live
from testbed.scheduling.constraints import check_decision
from testbed.scheduling.messages import ports_to_json
from testbed.scheduling.model import Decision, Limits, Progress, State
from testbed.scheduling.model import Job as ModelJob
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host, switch


class Asking(Protocol):
    """Who has the decisions (testbed/queue/policy_process.py)."""

    def ask(
        self, state: State, slot_s: float, deadline: float, wanted: Callable[[], bool]
    ) -> tuple[Decision, float]: ...


class Session:
    """The slots of one policy. `run` is its thread's; the other calls are anybody's."""

    def __init__(
        self,
        topology: Topology,
        rules: Rules,
        jobs: Jobs,
        note: Callable[[str], None],
        tell: Callable[[Queued, str], None],
    ) -> None:
        """`note` is for the user of `up`, `tell` for whoever submitted a job."""
        self._topology, self.rules, self._jobs, self._note, self._tell = topology, rules, jobs, note, tell
        self._supply, self._controller = jobs.means.supply, jobs.means.controller
        self.lock = threading.RLock()
        self._moved = threading.Condition(self.lock)
        self._moves = 0  # how often it was notified
        self._began = time.monotonic()
        self.slot = 0
        self.all: list[Queued] = []
        self.decision = Decision()
        self.account = Account()
        # of the first slot in which the controller was there
        self.initial_ports: dict[tuple[int, int], int] | None = None
        self._ports = {
            unit.index: tuple(
                addresses.optical_port_name(unit.index, port) for port in range(1, unit.optical_ports + 1)
            )
            for unit in topology.units
        }
        self._ending = self._over = False

    def clock(self) -> float:
        """Seconds since the first slot."""
        return time.monotonic() - self._began

    def add(self, coming: Sequence[Queued]) -> bool:
        """Jobs with their times of arrival. False when the session is over, or ends."""
        with self._moved:
            if self._over or self._ending:
                return False
            self.all += coming
            self.all.sort(key=lambda one: (one.arrival_s, one.id))
            self._has_moved()
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
                    one.job.stop(reason)
                else:
                    one.state, one.failure, one.ended_s = "ended", reason, self.clock()
                    self._changed(one)
        return found

    def end(self) -> None:
        """Starts nothing more, and lets `run` return when all jobs have ended."""
        with self._moved:
            self._ending = True
            self._has_moved()

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
        slot_s = self.rules.limits.slot_s
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
        while True:
            seen = self._moves
            if not self._ending and at_s > self.clock():
                self._place()
            with self._moved:
                if self._is_idle() or self._ending or (rest := at_s - self.clock()) <= 0:
                    break
                coming = [one.arrival_s - self.clock() for one in self.all if one.state == "coming"]
                wait_s = max(0.0, min(rest, *coming)) if coming else rest
                self._moved.wait_for(lambda seen=seen: self._moves != seen, wait_s)  # type: ignore[misc]
        with self._moved:
            if self._ending:
                self._moved.wait_for(self._is_idle)
            self._over = self._is_idle()

    def _one_slot(self, policy: Asking, deadline: float) -> None:
        self._place()
        with self.lock:
            self._see_ready()
        lit = self._lit()
        if self.initial_ports is None:
            self.initial_ports = live.ports_of(counted(lit))
        with self.lock:
            self._look()
            shown = [one for one in self.all if one.state in ("ready", "running")]
            state = self._state(shown, lit)
        if not shown:
            return
        decision, took_s = self._decided(policy, state, deadline)
        self._carry_out(state, decision, {one.id: one for one in shown}, lit, took_s)

    def _place(self) -> None:
        """Hosts for those that have arrived; one that cannot be placed holds up those behind it.

        No lock is held while hosts are chosen: a user's own system may take its time.
        """
        with self.lock:
            for one in self.all:
                if one.state == "coming" and one.arrival_s <= self.clock():
                    one.state = "queued"
                    self._tell(one, "arrived")
            waiting = [one for one in self.all if one.state == "queued"]
        for one in waiting:
            if not self._placed(one):
                return

    def _placed(self, one: Queued) -> bool:
        """Whether it has hosts now, or needs none any more."""
        busy = self._jobs.means.holdings.busy()
        if one.refused_beside == busy:
            return False
        try:
            job = self._jobs.hold(
                one.request, partial(laid_out, self._jobs, one), lambda layout: self._terms(one), one.id
            )
        except RequestError as error:
            return self._refused(one, busy, str(error))
        if job is None:
            return False
        with self.lock:
            if one.state != "queued":  # it was cancelled meanwhile
                self._jobs.forget(job)
                return True
            one.place(job, self.clock())
            threading.Thread(target=self._live, args=(one, job), name=f"job-{job.id}", daemon=True).start()
            self._tell(one, f"on {' '.join(job.hosts)}")
        return True

    def _refused(self, one: Queued, busy: frozenset[Host], why: str) -> bool:
        """A job without a layout beside others waits until there are fewer; one without any ends."""
        with self.lock:
            if busy:
                one.refused_beside = busy
                self._complain(f"slot {self.slot}: job {one.id} ({one.spec.name}) waits: {why}")
                return False
            if one.state == "queued":
                one.state, one.failure, one.ended_s = "ended", why, self.clock()
                self._changed(one)
        return True

    # ------------------------------------------------------------------ a job's thread

    def _terms(self, one: Queued) -> Terms:
        def hear(event: dict[str, Any]) -> None:
            if "note" in event:
                self._note(f"scheduler: job {one.id} ({one.spec.name}): {event['note']}")

        return Terms(start=None, emit=hear, freed=partial(self._freed, one))

    def _live(self, one: Queued, job: Job) -> None:
        try:
            one.run = self._jobs.live(job)
            one.failure = one.run["failure"]
        except TestbedError as error:
            one.failure = str(error)
        except Exception as error:
            one.failure = f"{type(error).__name__}: {error}; the daemon's log says more"
            raise
        finally:
            with self.lock:  # who sees that it has ended can rely on its having been told
                one.state = "ended"
                self._changed(one)

    def _freed(self, one: Queued) -> None:
        """Its hosts are free, and its result is about to be made."""
        with self.lock:
            one.look(self._began)
            one.state = "finishing"
            assert one.job is not None
            one.ended_s = (one.job.ended_at or time.monotonic()) - self._began
            self._changed(one)

    # ------------------------------------------------------------------ what policies see

    def look(self) -> None:
        """Takes note of how far all jobs are."""
        with self.lock:
            self._look()

    def _look(self) -> None:
        for one in self.all:
            one.look(self._began)

    def _see_ready(self) -> None:
        for one in self.all:
            if one.state not in ("starting", "ready") or one.job is None:
                continue
            one.state = "ready" if one.job.is_ready() else "starting"
            if one.state == "ready" and one.arrival is None:
                one.arrival, one.ready_s = self.slot, self.clock()

    def _lit(self) -> frozenset[Circuit]:
        return checked(self._controller("circuits")["circuits"], self._topology.optical_ports)

    def _state(self, shown: Sequence[Queued], lit: frozenset[Circuit]) -> State:
        progress = []
        for one in shown:
            assert one.job is not None
            assert one.arrival is not None
            slot_gigabits = one.rate_gbps * self.rules.limits.slot_s
            remaining = live.remaining_gigabits(one.gigabits, one.done_share, slot_gigabits)
            progress.append(Progress(self.model(one), remaining, one.started, one.inc, one.rate_gbps))
        return State(self._fabric_now(shown), self.slot, tuple(progress), live.ports_of(counted(lit)))

    def model(self, one: Queued) -> ModelJob:
        """The job as policies see it."""
        assert one.job is not None
        update_s = one.spec.iterations * one.spec.update_ms / 1e3
        job = live.model_job(
            one.id, one.job.layout.workers, one.hub, one.gigabits, update_s, one.arrival or 0
        )
        return replace(job, meeting=one.meeting)

    def _fabric_now(self, shown: Sequence[Queued]) -> Limits:
        """With the places that jobs of `testbed run` leave."""
        ours = [one.inc for one in shown if one.inc is not None]
        inc = tuple(
            max(0, places - max(0, self._supply.taken(switch(unit + 1)) - ours.count(unit)))
            for unit, places in enumerate(self.rules.limits.inc)
        )
        return replace(self.rules.limits, inc=inc)

    # ------------------------------------------------------------------ decisions

    def _decided(self, policy: Asking, state: State, deadline: float) -> tuple[Decision, float | None]:
        """The policy's decision, or the last one as far as it still applies."""
        try:
            decision, took_s = policy.ask(
                state, self.rules.limits.slot_s, deadline, lambda: not self.is_done()
            )
            self.account.policy_s.append(took_s)
            check_decision(state, decision, self.rules.policy)
        except GoneError as error:
            self._complain(f"slot {state.slot}: {error}; jobs that wait are ended")
            self.cancel({one.id for one in self.all if one.started is None}, str(error))
        except OverrunError as error:
            if self.is_done():  # nobody waits for it
                return Decision(), None
            self.account.overruns += 1
            self._complain(f"slot {state.slot}: {error}; the last decision stays in force")
        except PolicyError as error:
            self.account.failures += 1
            self._complain(f"slot {state.slot}: {error}; the last decision stays in force")
        except TestbedError as error:
            self.account.failures += 1
            self._complain(f"the decision breaks a constraint: {error}; the last decision stays in force")
        else:
            return decision, took_s
        running = [progress.job.id for progress in state.jobs if progress.started is not None]
        return live.lasting(self.decision, running), None

    def _carry_out(
        self,
        state: State,
        decision: Decision,
        by_id: Mapping[int, Queued],
        lit: frozenset[Circuit],
        took_s: float | None,
    ) -> None:
        acts = live.actions(state, decision)
        record: dict[str, Any] = {"slot": state.slot, "policy_s": took_s}
        for id_, rate in acts.lower.items():
            self._set_rate(by_id[id_], rate)
        target = lit if took_s is None else exact(lit, acts.circuits, self._ports)
        if target != lit:
            self._controller("apply", circuits=[list(c.ports) for c in sorted(target)])
            self._supply.follow_circuits()
            added = len(target - lit)
            self.account.connections += added
            self.account.reconfigurations += added > 0
            record["set_up"] = added
        self.decision = decision
        for id_, rate in acts.higher.items():
            self._set_rate(by_id[id_], rate)
        for id_, inc in acts.start.items():
            self._start(by_id[id_], inc, decision.rates[id_])
        record |= {
            "rates": {str(id_): rate for id_, rate in decision.rates.items()},
            "ports": ports_to_json(decision.ports),
        }
        self.account.slots.append(record)

    def _set_rate(self, one: Queued, rate_gbps: float) -> None:
        try:
            with self.lock:
                if one.state == "running" and one.job is not None:
                    one.job.set_rate(live.emulated_mbps(self._topology, rate_gbps))
                    one.rates.append((self.slot, rate_gbps))
        except TestbedError as error:
            self._complain(f"slot {self.slot}: job {one.id} ({one.spec.name}): {error}")

    def _start(self, one: Queued, inc: int | None, rate_gbps: float) -> None:
        try:
            with self.lock:  # that it has ended is not told before this
                job = one.job
                if one.state != "ready" or job is None:
                    return
                layout = job.layout if inc is None else summed_in_unit(job.layout)
                if not job.start(Start(layout, True, live.emulated_mbps(self._topology, rate_gbps))):
                    return
                assert job.started_at is not None
                one.inc, one.started, one.started_s = inc, self.slot, job.started_at - self._began
                one.rates.append((self.slot, rate_gbps))
                one.state = "running"
                self._tell(one, f"{one.mode} at {rate_gbps:g} Gb/s")
        except (NoRoomError, TestbedError) as error:  # it is shown to the policy again
            self._complain(f"slot {self.slot}: job {one.id} ({one.spec.name}) was not started: {error}")

    def _changed(self, one: Queued) -> None:
        if one.state == "ended":
            self._tell(one, f"failed: {one.failure}" if one.failure else "done")
        with self._moved:
            self._has_moved()

    def _has_moved(self) -> None:
        self._moves += 1
        self._moved.notify_all()

    def _complain(self, text: str) -> None:
        self.account.complain(text)
        with contextlib.suppress(OSError):
            self._note(f"scheduler: {text}")
