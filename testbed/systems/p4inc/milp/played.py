"""Convert a solver's rates to a schedule: run it slot by slot, so that volume that the solver's tolerance
left is sent, and jobs end when complete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from testbed.scheduling.model import Decision, Pair, Schedule, lost_gigabits
from testbed.systems.p4inc.milp.instance import ROUNDING, Instance, Mode

LEAST = 1e-8
"""The rate, relative to a job's largest, in a slot in which it runs and the solver gave it none."""


def early(instance: Instance, lit: Mapping[Pair, int]) -> list[Mapping[Pair, int]]:
    """Return the circuits of the slots before the first arrival; in the last of these, `lit` is set up."""
    return [*[instance.ports] * (instance.first - 1), lit] if instance.first else []


def played(
    instance: Instance,
    chosen: Mapping[int, Mode],
    rates: Mapping[int, Mapping[int, float]],
    ports: Sequence[Mapping[Pair, int]],
) -> Schedule:
    """Run `rates` (by job and slot) over `ports` (by slot). A job runs from its first to its last slot, in
    which it sends all that is left.
    """
    limits = instance.limits
    left = {job.id: job.gigabits for job in instance.jobs}
    last_rate = dict.fromkeys(left, 0.0)
    ends = {id_: max(slots) for id_, slots in rates.items()}
    decisions = []
    before = instance.ports
    for slot, now in enumerate(ports):
        running: dict[int, float] = {}
        for id_, its in rates.items():
            mode = chosen[id_]
            if slot not in its or left[id_] <= ROUNDING * mode.job.gigabits:
                continue
            rate = max(its[slot], LEAST * mode.limit_gbps)
            lost = lost_gigabits(limits, mode.load.links, last_rate[id_], rate, before, now)
            short = left[id_] - (rate * limits.slot_s - lost)
            if slot == ends[id_] and short > 0:
                rate += short / (limits.slot_s - limits.reconfiguration_s)
                lost = lost_gigabits(limits, mode.load.links, last_rate[id_], rate, before, now)
            left[id_] -= rate * limits.slot_s - lost
            running[id_] = last_rate[id_] = rate
        inc = {id_: unit for id_ in running if (unit := chosen[id_].load.inc) is not None}
        decisions.append(Decision(running, inc, now))
        before = now
    while decisions and not decisions[-1].rates:
        decisions.pop()
    return Schedule(limits, instance.jobs, tuple(decisions), dict(instance.ports))


def one_by_one(instance: Instance) -> Schedule:
    """Schedule each job alone, in its fastest mode, in the order of arrival; this schedule always exists."""
    limits, free = instance.limits, 0
    chosen: dict[int, Mode] = {}
    rates: dict[int, dict[int, float]] = {}
    ports: list[Mapping[Pair, int]] = []
    for modes in sorted(instance.modes, key=lambda modes: (modes[0].job.arrival, modes[0].job.id)):
        mode = min(modes, key=lambda mode: mode.slots * limits.slot_s + mode.load.update_s)
        job, links = mode.job, mode.load.links
        chosen[job.id] = mode
        began = max(free, job.arrival)
        free = (
            began + mode.slots + (1 if links else 0)
        )  # one more slot, for volume lost while circuits are set up
        rates[job.id] = dict.fromkeys(range(began, free), mode.limit_gbps)
        lit = {
            p: math.ceil(streams * mode.limit_gbps / limits.circuit_gbps(p) - 1e-9) for p, streams in links
        }
        ports += [{}] * (began - len(ports)) + [lit] * (free - began)
    return played(instance, chosen, rates, ports)


def ct_bti_s(instance: Instance, schedule: Schedule) -> float:
    """Compute max t_j minus the start of the first slot with an arrival."""
    ended: dict[int, tuple[int, int | None]] = {}
    for slot, decision in enumerate(schedule.decisions):
        for id_ in decision.rates:
            ended[id_] = slot, decision.inc.get(id_)
    latest = 0.0
    for modes in instance.modes:
        slot, inc = ended[modes[0].job.id]
        (mode,) = (mode for mode in modes if mode.load.inc == inc)
        latest = max(latest, (slot + 1 - instance.first) * instance.limits.slot_s + mode.load.update_s)
    return latest
