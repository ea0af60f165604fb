"""An instance in whole slots: each job's modes, the least time of each, and its latest end for a given
CT-BTI.

CT-BTI here is max t_j minus the start of the first slot with an arrival: equation (1), with the clock
starting at that arrival.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.errors import RequestError
from testbed.scheduling import form
from testbed.scheduling.model import Job, Limits, Load, Pair, load

ROUNDING = 1e-9
"""A volume is complete when less than this share of it is left (equation 10, D = 0)."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A job, run with INC in a unit or without. `limit_gbps` is the largest useful rate, `slots` the least
    number of slots.
    """

    index: int
    job: Job
    load: Load
    limit_gbps: float
    slots: int

    @property
    def fixed(self) -> bool:
        """Return whether the mode has INC and no links: at its full rate, it takes exactly `slots`."""
        return self.load.inc is not None and not self.load.links


@dataclass(frozen=True, slots=True)
class Instance:
    limits: Limits
    jobs: tuple[Job, ...]
    ports: Mapping[Pair, int]
    modes: tuple[tuple[Mode, ...], ...]

    @property
    def first(self) -> int:
        """The slot from which CT-BTI is counted."""
        return min(job.arrival for job in self.jobs)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of units that a job could use."""
        return tuple(sorted({p for modes in self.modes for mode in modes for p, _ in mode.load.links}))

    def end(self, mode: Mode, ct_bti_s: float) -> int:
        """Return the slot by which a mode must have ended, so that t_j is within `ct_bti_s` of the first
        arrival.
        """
        return self.first + math.floor((ct_bti_s - mode.load.update_s) / self.limits.slot_s + 1e-6)

    def possible(self, ct_bti_s: float) -> tuple[tuple[Mode, ...], ...]:
        """Return each job's modes that can end in time if the job runs alone."""
        return tuple(
            tuple(mode for mode in modes if self.end(mode, ct_bti_s) - mode.job.arrival >= mode.slots)
            for modes in self.modes
        )

    def candidates(self, low_s: float, high_s: float) -> list[float]:
        """Return the possible values of CT-BTI in low_s..high_s: whole slots, and whole slots plus an update
        time.
        """
        slot_s = self.limits.slot_s
        updates = {mode.load.update_s for modes in self.modes for mode in modes}
        ends_s = set()
        for update_s in updates:
            first = max(1, math.ceil((low_s - update_s) / slot_s - 1e-6))
            for slots in itertools.count(first):
                value = slots * slot_s + update_s
                if value > high_s + 1e-9:
                    break
                ends_s.add(round(value, 9))
        return sorted(ends_s)

    @property
    def alone_s(self) -> float:
        """A lower bound of CT-BTI: every job alone, in its fastest mode."""
        slot_s = self.limits.slot_s
        return max(
            min((mode.job.arrival - self.first + mode.slots) * slot_s + mode.load.update_s for mode in modes)
            for modes in self.modes
        )

    def within(self, horizon: int) -> None:
        """Raise RequestError for a job that could not end in slots 0 to `horizon` - 1 even alone."""
        for job, modes in zip(self.jobs, self.modes, strict=True):
            least = min(mode.slots for mode in modes)
            if job.arrival + least > horizon:
                raise RequestError(
                    f"job {job.id}: from slot {job.arrival} it needs {least} slots, and the look-ahead ends "
                    f"with slot {horizon - 1}"
                )


def prepare(limits: Limits, jobs: Sequence[Job], ports: Mapping[Pair, int]) -> Instance:
    """Prepare an instance. Raises RequestError for one that has no schedule."""
    if not jobs:
        raise RequestError("no jobs to schedule: at least one is needed")
    form.require(limits, jobs, ports, "to be scheduled")
    if limits.reconfiguration_s >= limits.slot_s:
        raise RequestError(
            f"reconfiguration_s is {limits.reconfiguration_s}: from 0 to below slot_s ({limits.slot_s}) is "
            f"accepted"
        )
    for unit in limits.units:
        lit = sum(count for p, count in ports.items() if unit in p)
        if lit > limits.ports[unit]:
            raise RequestError(
                f"initial circuits of unit {unit}: {lit}, and it has {limits.ports[unit]} ports"
            )
    counter = itertools.count()
    modes = tuple(tuple(_modes(limits, job, counter)) for job in jobs)
    return Instance(limits, tuple(jobs), dict(ports), modes)


def _modes(limits: Limits, job: Job, counter: itertools.count[int]) -> list[Mode]:
    modes = []
    # the rate that sends the job in one slot, set-up time included
    useful = job.gigabits / (limits.slot_s - limits.reconfiguration_s)
    for inc in (*job.inc_units(limits), None):
        taken = load(limits, job, inc)
        if taken.limit_gbps <= 0:
            continue
        limit = min(taken.limit_gbps, useful)
        slots = max(1, math.ceil(job.gigabits * (1 - ROUNDING) / (limit * limits.slot_s) - 1e-9))
        modes.append(Mode(next(counter), job, taken, limit, slots))
    if not modes:
        raise RequestError(
            f"job {job.id}: no mode has a rate above 0: its units have no ports, or its switch no bandwidth"
        )
    return modes
