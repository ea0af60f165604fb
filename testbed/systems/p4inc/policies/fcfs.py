"""First come, first served: P4INC-AOI's benchmark (section VII-A), with and without INC. Pure."""

from __future__ import annotations

import math

from testbed.scheduling.free_capacity import SLACK, Loads, Room
from testbed.scheduling.model import ALL, NEEDED, Decision, Load, Progress, State
from testbed.systems.p4inc.policies import circuits


class Fcfs:
    """Jobs start one by one in the order of arrival, each with INC if there is a place, else with its PS.
    Each gets the largest rate that fits, in steps of delta B, and keeps it. The first job without room for
    one step blocks those behind it.

    With `steps` NEEDED a job gets no more steps than finish it in its first slot; with ALL, all that fit.
    """

    def __init__(self, *, inc: bool, steps: str = ALL) -> None:
        self._inc = inc
        self._steps = steps
        self._loads = Loads()

    @property
    def name(self) -> str:
        return "inc-fcfs" if self._inc else "noinc-fcfs"

    def decide(self, state: State) -> Decision:
        limits = state.limits
        running = [p for p in state.jobs if p.started is not None]
        its = [(p, self._loads.of(limits, p.job, p.inc)) for p in running]
        room = Room.beside(limits, its)
        rates = {p.job.id: p.rate_gbps for p in running}
        inc = {p.job.id: p.inc for p in running if p.inc is not None}
        for waiting in state.jobs:
            if waiting.started is not None:
                continue
            load = self._load(state, waiting, room)
            rate = self._rate(state, waiting, load, room)
            if rate <= 0:
                break
            room.take(load, rate)
            rates[waiting.job.id] = rate
            if load.inc is not None:
                room.inc_left[load.inc] -= 1
                inc[waiting.job.id] = load.inc
        return Decision(rates, inc, circuits.kept(state.ports, room.circuits, limits.ports))

    def _load(self, state: State, waiting: Progress, room: Room) -> Load:
        job = waiting.job
        unit = None
        if self._inc:
            workers = dict(job.workers)
            units = [unit for unit in job.inc_units(state.limits) if room.inc_left[unit] > 0]
            unit = max(units, key=lambda unit: (workers[unit], -unit), default=None)
        return self._loads.of(state.limits, job, unit)

    def _rate(self, state: State, waiting: Progress, load: Load, room: Room) -> float:
        """Return the largest whole number of steps that fits, up to the job's own limit, which need not be
        whole; 0 if no step fits.
        """
        limits = state.limits
        most = load.limit_gbps
        if self._steps == NEEDED or most == math.inf:
            # the rate that finishes the job in one slot, even if circuits are set up epsilon late
            lit_s = limits.slot_s - (limits.reconfiguration_s if load.links else 0.0)
            if lit_s > 0:
                steps = max(1, math.ceil(waiting.remaining_gigabits / lit_s / limits.step_gbps - SLACK))
                most = min(most, steps * limits.step_gbps)
        rate = room.largest(load, most)
        if rate >= most * (1 - SLACK):
            return most
        return math.floor(rate / limits.step_gbps + SLACK) * limits.step_gbps
