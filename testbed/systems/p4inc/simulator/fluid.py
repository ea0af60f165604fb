"""Simulate jobs under a policy in discrete time: P4INC-AOI, algorithm 1, with traffic as fluid flows. Owns
the clock and the jobs' remaining volumes; makes no decisions, and lets no policy break a constraint. Pure: a
clock to measure the policy's own time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from testbed.errors import RequestError, TestbedError
from testbed.scheduling import form
from testbed.scheduling.constraints import check_circuits, check_form, check_ports, check_rates
from testbed.scheduling.free_capacity import Loads
from testbed.scheduling.model import (
    Decision,
    Job,
    Limits,
    Pair,
    Policy,
    Progress,
    Rotation,
    Schedule,
    State,
    lost_gigabits,
    set_up,
)

_LEFT = 1e-9
"""The share of a job's volume below which it counts as complete."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """The figures of a run. Times are seconds from slot 0; `slots` counts up to the last one in which a job
    ran.

    `finish_s` is t_j by job. `policy_s` is the policy's own time by the clock, None without one. `schedule`
    is set if it was recorded.
    """

    finish_s: Mapping[int, float]
    ct_bti_s: float
    total_jct_s: float
    reconfigured_connections: int
    reconfigurations: int
    slots: int
    policy_s: float | None
    schedule: Schedule | None


def simulate(
    limits: Limits,
    jobs: Iterable[Job],
    policy: Policy,
    ports: Mapping[Pair, int],
    *,
    record: bool = False,
    check: bool = True,
    on_slot: Callable[[int, int], None] | None = None,
    clock: Callable[[], float] | None = None,
) -> Simulated:
    """Run all jobs to their end, from the circuits `ports`.

    After each slot `on_slot` gets its number and the number of finished jobs. A decision under which no job
    runs stays in force until the next arrival. Raises `RequestError` for invalid limits, jobs or circuits
    (`form`), `TestbedError` if a decision is invalid, breaks a constraint (with `check`), or leaves jobs
    waiting forever.
    """
    given = list(jobs)
    if not given:
        raise RequestError("simulate: there are no jobs")
    form.require(limits, given, ports, "simulate")
    check_ports(limits, ports, "the circuits lit at the start")
    arriving = sorted(given, key=lambda job: job.arrival)
    loads = Loads()
    present: dict[int, Progress] = {}
    finish_s: dict[int, float] = {}
    decisions: list[Decision] = []
    lit: Mapping[Pair, int] = dict(ports)
    slot, next_, first = arriving[0].arrival, 0, None
    connections = events = 0
    policy_s = 0.0
    if record:
        decisions.extend([Decision(ports=lit)] * slot)
    while len(finish_s) < len(arriving):
        while next_ < len(arriving) and arriving[next_].arrival <= slot:
            job = arriving[next_]
            present[job.id] = Progress(job, job.gigabits)
            next_ += 1
        state = State(limits, slot, tuple(present.values()), lit)
        before = clock() if clock else 0.0
        decision = policy.decide(state)
        policy_s += clock() - before if clock else 0.0
        if check:
            check_form(state, decision, policy.name)
            if decision.ports is not lit:
                check_circuits(limits, decision, f"{policy.name}, slot {slot}")
            check_rates(state, decision, loads, policy.name)
        rotation = decision.rotation
        if rotation is not None:
            _require_shares(limits, rotation, record, f"{policy.name}, slot {slot}")
        now = decision.ports if rotation is None else lit  # which come back after it
        new = set_up(lit, now) if now is not lit else 0
        connections += new
        events += new > 0
        if decision.rates and first is None:
            first = slot
        for id_, rate in decision.rates.items():
            progress = present[id_]
            if progress.started is None:
                progress.started = slot
                progress.inc = decision.inc.get(id_)
            its = loads.of(limits, progress.job, progress.inc)
            moved = rate * limits.slot_s
            if rotation is not None:
                moved *= rotation.share([link for link, _ in its.links])
            if new and rate > progress.rate_gbps:
                moved -= lost_gigabits(limits, its.links, progress.rate_gbps, rate, lit, decision.ports)
            progress.rate_gbps = rate
            progress.remaining_gigabits -= moved
            if progress.remaining_gigabits <= _LEFT * progress.job.gigabits:
                finish_s[id_] = (slot + 1) * limits.slot_s + its.update_s
                del present[id_]
        lit = now
        if record:
            decisions.append(decision)
        if on_slot is not None:
            on_slot(slot, len(finish_s))
        slot += 1
        if not decision.rates or not present:
            if next_ == len(arriving):
                if present:
                    raise TestbedError(
                        f"{policy.name}, slot {slot - 1}: {len(present)} jobs wait, none runs and none is to "
                        f"come: "
                        f"they would wait for ever, the first of them job {next(iter(present))}"
                    )
                break
            idle = max(0, arriving[next_].arrival - slot)
            if record:
                decisions.extend([Decision(ports=decision.ports)] * idle)
            slot += idle
    assert first is not None
    return Simulated(
        finish_s=finish_s,
        ct_bti_s=max(finish_s.values()) - first * limits.slot_s,
        total_jct_s=math.fsum(finish_s[job.id] - job.arrival * limits.slot_s for job in arriving),
        reconfigured_connections=connections,
        reconfigurations=events,
        slots=slot,
        policy_s=policy_s if clock else None,
        schedule=Schedule(limits, tuple(arriving), tuple(decisions), dict(ports)) if record else None,
    )


def _require_shares(limits: Limits, rotation: Rotation, record: bool, who: str) -> None:
    """Raise RequestError for a rotation longer than a slot, since the fluid model treats it as shares of a
    slot's time; and for any rotation if schedules are recorded.
    """
    slot_ms = limits.slot_s * 1e3
    if rotation.period_ms > slot_ms:
        raise RequestError(
            f"{who}: rotation: its turns last {rotation.period_ms:g} ms; at most a slot, {slot_ms:g} ms, is "
            f"accepted in a simulation, in which each pair of units has its share of a slot's time"
        )
    if record:
        raise RequestError(f"{who}: rotation: schedules are recorded, and checked, without rotations only")
