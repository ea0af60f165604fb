"""A session of the scheduler: the time slots in which a policy decides, from the first submission to the end
of the last job.

In each time slot, jobs that have arrived get hosts, in the order of arrival; jobs with ready processes are
shown to the policy; its decision is checked and carried out: lower rates, circuits, higher rates, starts.
Without a decision the last one stays in force.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from testbed.aggregation.packets import Packets
from testbed.aggregation.segments import NoRoomError
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.errors import RequestError, TestbedError
from testbed.jobs.life import Job, Terms
from testbed.jobs.manager import Jobs
from testbed.jobs.supply import Start
from testbed.messages.coding import UNSET, UnsetType, decode
from testbed.messages.controller import LitCircuits
from testbed.messages.events import Event, JobNote
from testbed.messages.submission import SlotRecord
from testbed.ocs.circuits import Circuit, carrying, checked, ports_of
from testbed.ocs.exact import counted, nearest
from testbed.ocs.plan import up
from testbed.plugins.policies import choice
from testbed.queue.account import Account, Rules, port_counts, rotation_record
from testbed.queue.layouts import check_circuits
from testbed.queue.policy_process import GoneError, OverrunError, PolicyError
from testbed.queue.queued import Queued
from testbed.queue.shortage import Shortage
from testbed.queue.submission import KEEP
from testbed.queue.turning import Turning
from testbed.scheduling import live
from testbed.scheduling.constraints import check_decision
from testbed.scheduling.failed_ports import feasible
from testbed.scheduling.model import Decision, Limits, Pair, State, UnitIndex
from testbed.topology.addresses import parse_optical_port, unit_name
from testbed.topology.model import Topology
from testbed.topology.places import Host, at_tor
from testbed.topology.units import Unit, UnitPair

# A policy that fails for this long while no job runs would be asked the same for ever.
_MOST_FAILING_SLOTS, _LEAST_FAILING_S = 20, 10.0


class DecisionSource(Protocol):
    """The policy's process, which returns decisions (testbed/queue/policy_process.py)."""

    def ask(
        self, state: State, slot_s: float, deadline: float, wanted: Callable[[], bool]
    ) -> tuple[Decision, float]: ...


class Session:
    """The time slots of one policy. The session's own thread calls `run`; any thread may call the other
    methods.
    """

    def __init__(
        self,
        topology: Topology,
        rules: Rules,
        jobs: Jobs,
        note: Callable[[str], None],
        tell: Callable[[Queued, str], None],
    ) -> None:
        """`note` reports to the user of `up`, `tell` to the client that submitted a job."""
        self._topology, self.rules, self._jobs, self._note, self._tell = topology, rules, jobs, note, tell
        self._between = choice(rules.asked_policy)
        self._supply, self._controller = jobs.means.supply, jobs.means.controller
        self.lock = threading.RLock()
        self._moved = threading.Condition(self.lock)
        self._moves = 0  # how often _moved was notified
        self._began = time.monotonic()
        self.slot = 0
        self.all: list[Queued] = []
        self.decision = Decision()
        self.account = Account()
        # the circuits in the first time slot in which the controller answered
        self.initial_ports: dict[Pair, int] | None = None
        self._ports = topology.scheduled_ports
        self._others: frozenset[Circuit] = frozenset()  # other planes' circuits, when last read
        self._theirs = {port for ports in self._ports.values() for port in ports}
        self._down: frozenset[str] = frozenset()  # ports whose links are down, when last read
        self._missing: frozenset[str] = frozenset()  # those of them that policies do not see
        self._shortage, self._losses = Shortage(), dict[int, str]()  # by job, what was said last
        self._turning = Turning(self._controller)
        self._failing_s: list[float] = []  # the last slots, if the policy failed in all of them
        self._failing_on: frozenset[int] = frozenset()  # the jobs that it saw in them
        self._ending = self._over = False

    def clock(self) -> float:
        """Return the seconds since the first time slot."""
        return time.monotonic() - self._began

    def add(self, coming: Sequence[Queued]) -> bool:
        """Add jobs with their times of arrival; return False if the session is over or ends."""
        with self._moved:
            if self._over or self._ending:
                return False
            self.all += coming
            self.all.sort(key=lambda queued: (queued.arrival_s, queued.id))
            self._has_moved()
            return True

    def cancel(self, ids: set[int], reason: str, failing: bool = False) -> list[int]:
        """End those jobs, whatever their state; return the numbers of those that had not ended. They count as
        cancelled or, with `failing`, as failed.
        """
        ended = []
        with self.lock:
            for queued in self.all:
                if queued.id not in ids or queued.state == "ended":
                    continue
                ended.append(queued.id)
                queued.was_cancelled = not failing
                if queued.job is not None:
                    queued.job.stop(reason)
                else:
                    queued.give_up(reason, self.clock())
                    self._changed(queued)
        return ended

    def end(self) -> None:
        """Start no more jobs, and let `run` return when all have ended."""
        with self._moved:
            self._ending = True
            self._has_moved()

    def _is_idle(self) -> bool:
        return all(queued.state == "ended" for queued in self.all)

    def is_done(self) -> bool:
        """Return whether all its jobs have ended."""
        with self.lock:
            return self._is_idle()

    # ------------------------------------------------------------------ slots

    def begin(self) -> None:
        """Start the clock: slot 0 begins now."""
        self._began = time.monotonic()

    def run(self, policy: DecisionSource) -> None:
        """Run the time slots until no job is left."""
        try:
            self._run_slots(policy)
        finally:
            try:
                self._turning.follow(None, self._ports)
            except TestbedError as error:  # the controller ends with the testbed
                self._complain(f"slot {self.slot}: the rotation was not ended: {error}")

    def _run_slots(self, policy: DecisionSource) -> None:
        slot_s = self.rules.limits.slot_s
        while not self._over:
            began_s = self.slot * slot_s
            try:
                self._wait_until(began_s)
                if not self._over:
                    self._one_slot(policy, self._began + began_s + slot_s)
            except TestbedError as error:  # from the controller or a link: the state stays as it is
                self._complain(f"slot {self.slot}: {error}")
            following = max(self.slot + 1, round(self.clock() / slot_s))  # a small delay skips no slot
            self.account.late_slots += following - self.slot - 1
            self.slot = following

    def _wait_until(self, at_s: float) -> None:
        """Wait until that time. Meanwhile, give hosts to jobs that arrive, and to waiting jobs once hosts are
        free.
        """
        while True:
            seen = self._moves
            if not self._ending and at_s > self.clock():
                self._place()
            with self._moved:
                if self._is_idle() or self._ending or (rest := at_s - self.clock()) <= 0:
                    break
                coming = [queued.arrival_s - self.clock() for queued in self.all if queued.state == "coming"]
                wait_s = max(0.0, min(rest, *coming)) if coming else rest
                self._moved.wait_for(lambda seen=seen: self._moves != seen, wait_s)  # type: ignore[misc]
        with self._moved:
            if self._ending:
                self._moved.wait_for(self._is_idle)
            self._over = self._is_idle()

    def _one_slot(self, policy: DecisionSource, deadline: float) -> None:
        self._place()
        with self.lock:
            for queued in self.all:
                queued.update_ready(self.slot, self.clock())
        lit = self._lit()
        if self.initial_ports is None:
            self.initial_ports = live.ports_of(counted(lit))
        with self.lock:
            self._update_progress()
            visible = [queued for queued in self.all if queued.state in ("ready", "running")]
            state = self._state(visible, lit)
        if not state.jobs:
            self._failing_s.clear()
            return
        decision, took_s = self._decide(policy, state, deadline)
        self._carry_out(state, decision, {queued.id: queued for queued in visible}, lit, took_s)

    def _place(self) -> None:
        """Place the jobs that have arrived on hosts, in order: a job that cannot be placed blocks those
        behind it. No lock is held while hosts are chosen, because a user's own system may be slow.
        """
        with self.lock:
            for queued in self.all:
                if queued.state == "coming" and queued.arrival_s <= self.clock():
                    queued.state = "queued"
                    self._tell(queued, "arrived")
            waiting = [queued for queued in self.all if queued.state == "queued"]
        for queued in waiting:
            if not self._place_one(queued):
                return

    def _place_one(self, queued: Queued) -> bool:
        """Place a job; return whether it has hosts now, or needs none any more."""
        busy = self._jobs.means.holdings.busy(user=queued.request.caller.uid)
        if queued.refused_beside == busy:
            return False
        try:
            job = self._jobs.hold(
                queued.request,
                partial(self._choose_layout, queued),
                lambda layout: self._terms(queued),
                queued.id,
            )
        except RequestError as error:
            return self._refuse(queued, busy, str(error))
        if job is None:
            return False
        with self.lock:
            if queued.state != "queued":  # cancelled meanwhile
                self._jobs.forget(job)
                return True
            queued.place(job, self._topology, self.clock())
            threading.Thread(target=self._live, args=(queued, job), name=f"job-{job.id}", daemon=True).start()
            self._tell(queued, f"on {' '.join(job.hosts)}")
        return True

    def _choose_layout(self, queued: Queued, busy: frozenset[Host]) -> Layout | None:
        """Return a layout on free hosts that a decision can let run; None while there are too few hosts."""
        require = partial(check_circuits, policy=self.rules.asked_policy, topology=self._topology)
        return queued.lay_out(self._jobs, self._between, busy, require)

    def _refuse(self, queued: Queued, busy: frozenset[Host], why: str) -> bool:
        """Note that a job has no layout; return whether that is final. If hosts are busy, the job waits until
        that changes.
        """
        with self.lock:
            if busy:
                queued.refused_beside = busy
                self._complain(f"slot {self.slot}: job {queued.id} ({queued.spec.name}) waits: {why}")
                return False
            if queued.state == "queued":
                queued.give_up(why, self.clock())
                self._changed(queued)
        return True

    # ------------------------------------------------------------------ a job's thread

    def _terms(self, queued: Queued) -> Terms:
        def on_event(event: Event) -> None:
            if isinstance(event, JobNote):
                self._note(f"scheduler: job {queued.id} ({queued.spec.name}): {event.note}")

        return Terms(start=None, emit=on_event, freed=partial(self._freed, queued))

    def _live(self, queued: Queued, job: Job) -> None:
        try:
            queued.run = self._jobs.live(job)
            queued.failure = queued.run.failure
        except TestbedError as error:
            queued.failure = str(error)
        except Exception as error:
            queued.failure = f"{type(error).__name__}: {error}; the daemon's log says more"
            raise
        finally:
            with self.lock:  # a thread that sees the state "ended" can rely on the news having been sent
                queued.state = "ended"
                self._changed(queued)

    def _freed(self, queued: Queued) -> None:
        with self.lock:
            queued.finish(self._began)
            self._changed(queued)

    # ------------------------------------------------------------------ what policies see

    def update_progress(self) -> None:
        """Update the progress of all jobs."""
        with self.lock:
            self._update_progress()

    def _update_progress(self) -> None:
        for queued in self.all:
            queued.update_progress(self._began)

    def _lit(self) -> frozenset[Circuit]:
        """Return the circuits that policies see: those of their plane whose links are up or, with
        `on_failure: keep`, all. Note the other planes' circuits, which stay unchanged, and the ports whose
        links are down.
        """
        lit = decode(LitCircuits, self._controller("circuits"), "circuits")
        every = checked(lit.circuits, self._topology.planes)
        self._others = frozenset(each for each in every if each.a not in self._theirs)
        ours = every - self._others
        self._down = self._missing = frozenset(end for end in lit.down if end in self._theirs)
        if self.rules.on_failure == KEEP:
            self._missing -= {*ports_of(ours)}
            return ours
        return carrying(ours, self._down)

    def _state(self, visible: Sequence[Queued], lit: frozenset[Circuit]) -> State:
        """Return the state that the policy sees: running jobs at the rates that they can have, without those
        that ports which are down cut off, and without the circuits that these keep. Report what jobs lose.
        """
        every = [queued.progress(self.rules.limits.slot_s) for queued in visible]
        limits = self._limits_now(visible)
        running = [progress for progress in every if progress.started is not None]
        remains = self._shortage.update(limits, running, self.decision, lit, self._missing)
        jobs = tuple(progress for progress in every if progress.job.id not in remains.cut_off)
        for queued in visible:
            self._report_loss(queued)
        return State(remains.limits(limits), self.slot, jobs, remains.circuits(live.ports_of(counted(lit))))

    def _report_loss(self, queued: Queued) -> None:
        """Report once what a job loses to ports that are down, and that it has its rate again."""
        units = () if queued.job is None else {unit for unit, _ in queued.job.layout.hosts()}
        loss = self._shortage.loss(queued.id, self._missing, units)
        if loss == self._losses.get(queued.id):
            return
        if loss is None:
            del self._losses[queued.id]
            loss = "no port that is down keeps it from its rate any more"
        else:
            self._losses[queued.id] = loss
            if queued.id in self._shortage.now.cut_off:
                queued.rates.append((self.slot, 0.0))
        self._complain(f"slot {self.slot}: job {queued.id} ({queued.spec.name}): {loss}")

    def _limits_now(self, shown: Sequence[Queued]) -> Limits:
        """Return the limits without the INC places that jobs of `testbed run` occupy (in a pod, at its
        fullest switch), and without ports whose links are down.
        """
        inc_units = [queued.inc for queued in shown if queued.inc is not None]
        inc = tuple(
            max(0, places - max(0, self._taken(live.unit_at(index)) - inc_units.count(index)))
            for index, places in zip(self.rules.limits.units, self.rules.limits.inc, strict=True)
        )
        ports = tuple(map(len, up(self._ports, self._missing).values()))
        return replace(self.rules.limits, inc=inc, ports=ports)

    def _taken(self, unit: Unit) -> int:
        return max(self._supply.taken(at_tor(dpid)) for dpid in self._topology.unit(unit).switches)

    # ------------------------------------------------------------------ decisions

    def _decide(self, policy: DecisionSource, state: State, deadline: float) -> tuple[Decision, float | None]:
        """Return the policy's decision, or the last one as far as it still applies."""
        try:
            decision, took_s = policy.ask(
                state, self.rules.limits.slot_s, deadline, lambda: not self.is_done()
            )
            self.account.policy_s.append(took_s)
            check_decision(state, decision, self.rules.policy)
        except GoneError as error:
            self._complain(f"slot {state.slot}: {error}; jobs that wait are ended")
            waiting = {queued.id for queued in self.all if queued.started is None}
            self.cancel(waiting, str(error), failing=True)
        except OverrunError as error:
            self._failing_s.clear()
            if self.is_done():  # no job needs the decision
                return Decision(), None
            self.account.overruns += 1
            self._complain(f"slot {state.slot}: {error}; the last decision stays in force")
        except PolicyError as error:
            self._failed(state, str(error), f"slot {state.slot}: {error}")
        except TestbedError as error:
            self._shortage.refuse(self._missing)
            why = f"the decision breaks a constraint: {error}"
            self._failed(state, why, why)
        else:
            self._failing_s.clear()
            return decision, took_s
        running = [progress.job.id for progress in state.jobs if progress.started is not None]
        return self._shortage.lasting(live.lasting(self.decision, running)), None

    def _failed(self, state: State, why: str, complaint: str) -> None:
        """Count a slot in which the policy failed, and complain. If it has failed for long on the same jobs,
        of which none runs, while none was to arrive, fail these: it would see the same state in each slot.
        """
        self.account.fail(why)
        self._complain(f"{complaint}; the last decision stays in force")
        visible = frozenset(progress.job.id for progress in state.jobs)
        with self.lock:
            is_arriving = any(queued.state == "coming" for queued in self.all)
        is_running = any(progress.started is not None for progress in state.jobs)
        if is_arriving or is_running or self._shortage.now.cut_off:
            self._failing_s.clear()
            return
        if visible != self._failing_on:
            self._failing_s.clear()
            self._failing_on = visible
        self._failing_s.append(self.clock())
        lasted_s = self._failing_s[-1] - self._failing_s[0]
        if len(self._failing_s) < _MOST_FAILING_SLOTS or lasted_s < _LEAST_FAILING_S:
            return
        self._failing_s.clear()
        reason = f"the policy failed for {_MOST_FAILING_SLOTS} slots or longer and no job ran: {why}"
        self._complain(f"slot {state.slot}: {reason}; jobs that wait are ended")
        self.cancel(set(visible), reason, failing=True)

    def _carry_out(
        self,
        state: State,
        decision: Decision,
        by_id: Mapping[int, Queued],
        lit: frozenset[Circuit],
        took_s: float | None,
    ) -> None:
        ports = up(self._ports, {*self._missing, *ports_of(self._shortage.kept)})
        target = lit
        if took_s is not None and decision.rotation is None:
            ours = lit - self._shortage.kept
            target, lacking = nearest(ours, live.circuits_of(decision.ports), ports, self._down)
            target |= self._shortage.kept
            if lacking:
                self._complain(_lacking(self.slot, lacking, self._down))
                decision = feasible(state, decision, live.ports_of(dict.fromkeys(lacking, 1)))
        had = {progress.job.id: by_id[progress.job.id].rate_gbps for progress in state.jobs}
        acts = live.actions(state, decision, had)
        set_up: int | UnsetType = UNSET
        for id_, rate in acts.lower.items():
            self._set_rate(by_id[id_], rate)
        try:
            self._turning.follow(decision.rotation, ports)
            if target != lit:
                self._controller("apply", circuits=[list(c.ports) for c in sorted(target | self._others)])
        except TestbedError:  # the state stays as it was
            for id_ in acts.lower:
                self._set_rate(by_id[id_], had[id_])
            raise
        if target != lit:
            self._supply.follow_circuits()
            set_up = len(target - lit)
            self.account.connections += set_up
            self.account.reconfigurations += set_up > 0
        self.decision = decision
        self._shortage.decided(decision.rates)
        for id_, rate in acts.higher.items():
            self._set_rate(by_id[id_], rate)
        for id_, inc in acts.start.items():
            self._start(by_id[id_], inc, decision.rates[id_])
        self.account.slots.append(
            SlotRecord(
                slot=state.slot,
                policy_s=took_s,
                set_up=set_up,
                rates={str(id_): rate for id_, rate in decision.rates.items()},
                ports=port_counts(decision.ports),
                rotation=UNSET if decision.rotation is None else rotation_record(decision.rotation),
            )
        )

    def _set_rate(self, queued: Queued, rate_gbps: float) -> None:
        try:
            with self.lock:
                if queued.state == "running" and queued.job is not None:
                    queued.job.set_rate(live.emulated_mbps(self._topology, rate_gbps))
                    queued.rates.append((self.slot, rate_gbps))
        except TestbedError as error:
            self._complain(f"slot {self.slot}: job {queued.id} ({queued.spec.name}): {error}")

    def _start(self, queued: Queued, inc: UnitIndex | None, rate_gbps: float) -> None:
        try:
            with self.lock:  # so that its end is not reported before its start
                job = queued.job
                if queued.state != "ready" or job is None:
                    return
                layout = job.layout if inc is None else self._in_unit(job.layout, queued.spec.options.packets)
                rate_mbps = live.emulated_mbps(self._topology, rate_gbps)
                if not job.start(Start(layout, True, rate_mbps, queued.spec.options.packets)):
                    return
                queued.run_from(self.slot, inc, layout.system, rate_gbps, self._began)
                self._tell(queued, f"{queued.mode} at {rate_gbps:g} Gb/s")
        except (NoRoomError, TestbedError) as error:  # the policy sees it again in the next time slot
            self._complain(f"slot {self.slot}: job {queued.id} ({queued.spec.name}) was not started: {error}")

    def _in_unit(self, layout: Layout, packets: Packets) -> Layout:
        """Lay out a job for sums at the switch of the one unit that has all its workers."""
        nowhere_else = Site((), frozenset(), frozenset())
        return self._supply.lay_out(self._between.with_inc, layout.workers, nowhere_else, packets)

    def _changed(self, queued: Queued) -> None:
        if queued.state == "ended":
            became = "cancelled" if queued.is_cancelled else "failed"
            self._tell(queued, f"{became}: {queued.failure}" if queued.failure else "done")
        with self._moved:
            self._has_moved()

    def _has_moved(self) -> None:
        self._moves += 1
        self._moved.notify_all()

    def _complain(self, text: str) -> None:
        self.account.complain(text)
        with contextlib.suppress(OSError):
            self._note(f"scheduler: {text}")


def _lacking(slot: int, lacking: Mapping[UnitPair, Unit], down: Collection[str]) -> str:
    """Say which circuits of a decision are not lit since ports are down."""
    pairs = ", ".join(f"{unit_name(a)}-{unit_name(b)}" for a, b in sorted(lacking))
    names = ", ".join(sorted(down, key=parse_optical_port))
    return (
        f"slot {slot}: no port is up for a circuit of {pairs}, which the policy decided on "
        f"({names} {'is' if len(down) == 1 else 'are'} down): what needs it waits, and the rest is done"
    )
