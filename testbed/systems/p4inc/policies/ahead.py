"""Predict when a policy would finish the known jobs, by simulating it from a state on. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from testbed.scheduling.free_capacity import Loads
from testbed.scheduling.model import Decision, State, lost_gigabits

_LEFT = 1e-9
"""The share of a job's volume below which it counts as complete."""


def end_s(state: State, decide: Callable[[State], Decision], loads: Loads, at_most_s: float) -> float:
    """Return when the last known job ends, in seconds from the state's slot, updates included; infinity if
    that is after `at_most_s`, or if jobs wait and none runs.

    A decision is held until the next job ends, so that the simulation takes at most as many decisions as
    there are jobs.
    """
    limits = state.limits
    jobs, lit = [replace(progress) for progress in state.jobs], state.ports
    passed, last_s = 0, 0.0
    while jobs:
        decision = decide(State(limits, state.slot + passed, tuple(jobs), lit))
        if not decision.rates or passed * limits.slot_s > at_most_s:
            return math.inf
        moves = []
        for progress in jobs:
            rate = decision.rates.get(progress.job.id)
            if rate is None:
                continue
            if progress.started is None:
                progress.started, progress.inc = state.slot + passed, decision.inc.get(progress.job.id)
            its = loads.of(limits, progress.job, progress.inc)
            lost = lost_gigabits(limits, its.links, progress.rate_gbps, rate, lit, decision.ports)
            progress.rate_gbps = rate
            left = progress.remaining_gigabits + lost - _LEFT * progress.job.gigabits
            moves.append((max(1, math.ceil(left / (rate * limits.slot_s))), lost, its.update_s, progress))
        slots = min(move[0] for move in moves)
        passed += slots
        for needed, lost, update_s, progress in moves:
            progress.remaining_gigabits -= progress.rate_gbps * slots * limits.slot_s - lost
            if needed == slots:
                last_s = max(last_s, passed * limits.slot_s + update_s)
                jobs.remove(progress)
        lit = decision.ports
    return last_s if last_s <= at_most_s else math.inf


def is_uneven(state: State) -> bool:
    """Return whether ports differ in rate among the units of the present jobs; other units do not count."""
    each_gbps = state.limits.unit_port_gbps
    if not each_gbps:
        return False
    used = {unit for progress in state.jobs for unit, _ in progress.job.workers}
    used |= {progress.job.ps for progress in state.jobs}
    return len({each_gbps[unit] for unit in used}) > 1
