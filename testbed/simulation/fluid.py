"""Jobs under a policy in discrete time: P4INC-AOI, algorithm 1, with flows as fluids. Owns the clock and what
jobs have left; decides nothing, and lets no policy break a constraint. Pure: a clock, if the policy's time is
asked for, is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from testbed.errors import RequestError, TestbedError
from testbed.scheduling import form
from testbed.scheduling.model import (
    Fabric,
    Job,
    Pair,
    Plan,
    Policy,
    Progress,
    Schedule,
    State,
    lost_gigabits,
    set_up,
)
from testbed.scheduling.room import SLACK, Loads

_LEFT = 1e-9
"""The share of a job's volume that counts as nothing left."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. Times are seconds from slot 0; `slots` are those up to the last in which a job ran.

    `finish_s` is t_j by job. `policy_s` is what the policy took of the clock, None without one. `schedule` is
    there if it was recorded.
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
    fabric: Fabric,
    jobs: Iterable[Job],
    policy: Policy,
    ports: Mapping[Pair, int],
    *,
    record: bool = False,
    check: bool = True,
    on_slot: Callable[[int, int], None] | None = None,
    clock: Callable[[], float] | None = None,
) -> Outcome:
    """Runs all jobs to their end, from the circuits `ports`.

    After each slot `on_slot` gets its number and how many jobs are finished. A plan in which no job runs
    stays in force until the next arrival. Raises `RequestError` for a fabric, jobs or circuits that cannot be
    (`form`), `TestbedError` if a plan cannot be or breaks a constraint (with `check`), or leaves jobs waiting
    for ever.
    """
    given = list(jobs)
    if not given:
        raise RequestError("simulate: there are no jobs")
    form.require(fabric, given, ports, "simulate")
    _check_ports(fabric, ports, "the circuits lit at the start")
    arriving = sorted(given, key=lambda job: job.arrival)
    loads = Loads()
    present: dict[int, Progress] = {}
    finish_s: dict[int, float] = {}
    plans: list[Plan] = []
    lit: Mapping[Pair, int] = dict(ports)
    slot, next_, first = arriving[0].arrival, 0, None
    connections = events = 0
    policy_s = 0.0
    if record:
        plans.extend([Plan(ports=lit)] * slot)
    while len(finish_s) < len(arriving):
        while next_ < len(arriving) and arriving[next_].arrival <= slot:
            job = arriving[next_]
            present[job.id] = Progress(job, job.gigabits)
            next_ += 1
        state = State(fabric, slot, tuple(present.values()), lit)
        before = clock() if clock else 0.0
        plan = policy.plan(state)
        policy_s += clock() - before if clock else 0.0
        if check:
            _check_form(state, plan, policy.name)
            if plan.ports is not lit:
                _check_ports(fabric, plan.ports, f"{policy.name}, slot {slot}")
            _check(state, plan, loads, policy.name)
        new = set_up(lit, plan.ports) if plan.ports is not lit else 0
        connections += new
        events += new > 0
        if plan.rates and first is None:
            first = slot
        for id_, rate in plan.rates.items():
            progress = present[id_]
            if progress.started is None:
                progress.started = slot
                progress.inc = plan.inc.get(id_)
            its = loads.of(fabric, progress.job, progress.inc)
            moved = rate * fabric.slot_s
            if new and rate > progress.rate_gbps:
                moved -= lost_gigabits(fabric, its.links, progress.rate_gbps, rate, lit, plan.ports)
            progress.rate_gbps = rate
            progress.remaining_gigabits -= moved
            if progress.remaining_gigabits <= _LEFT * progress.job.gigabits:
                finish_s[id_] = (slot + 1) * fabric.slot_s + its.update_s
                del present[id_]
        lit = plan.ports
        if record:
            plans.append(plan)
        if on_slot is not None:
            on_slot(slot, len(finish_s))
        slot += 1
        if not plan.rates or not present:
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
                plans.extend([Plan(ports=plan.ports)] * idle)
            slot += idle
    assert first is not None
    return Outcome(
        finish_s=finish_s,
        ct_bti_s=max(finish_s.values()) - first * fabric.slot_s,
        total_jct_s=math.fsum(finish_s[job.id] - job.arrival * fabric.slot_s for job in arriving),
        reconfigured_connections=connections,
        reconfigurations=events,
        slots=slot,
        policy_s=policy_s if clock else None,
        schedule=Schedule(fabric, tuple(arriving), tuple(plans), dict(ports)) if record else None,
    )


def check_plan(state: State, plan: Plan, name: str) -> None:
    """What `simulate` asks of each plan of the policy `name`; TestbedError says what it breaks, RequestError
    that the state cannot be.
    """
    form.require(
        state.fabric, [progress.job for progress in state.jobs], state.ports, f"{name}, slot {state.slot}"
    )
    _check_form(state, plan, name)
    _check(state, plan, Loads(), name)
    _check_ports(state.fabric, plan.ports, f"{name}, slot {state.slot}")


def _check_form(state: State, plan: Plan, name: str) -> None:
    """Before anything is compared: with NaN every comparison is false, and so no constraint broken."""
    for fault in form.of_plan(state.fabric, plan):
        raise TestbedError(f"{name}, slot {state.slot}: {fault}")
    if plan.ports is not state.ports:
        for fault in form.of_ports(state.fabric, plan.ports):
            raise TestbedError(f"{name}, slot {state.slot}: {fault}")


def _check(state: State, plan: Plan, loads: Loads, name: str) -> None:
    """Equations (2), (3), (5) and (6), and that jobs run on as they started."""

    def broken(what: str) -> TestbedError:
        return TestbedError(f"{name}, slot {state.slot}: {what}")

    fabric = state.fabric
    switch = [0.0] * len(fabric.ports)
    places = list(fabric.inc)
    links: dict[Pair, float] = {}
    rates, inc = plan.rates, plan.inc
    seen = 0
    for progress in state.jobs:
        job = progress.job
        rate = rates.get(job.id)
        if rate is None:
            if progress.started is not None:
                raise broken(f"job {job.id} is stopped before it is finished")
            continue
        seen += 1
        unit = inc.get(job.id)
        if progress.started is not None:
            if unit != progress.inc:
                raise broken(f"job {job.id} changes its mode from INC in unit {progress.inc} to {unit}")
        elif unit is not None and unit not in job.inc_units(fabric):
            raise broken(f"job {job.id} may not use INC in unit {unit}; it may in {job.inc_units(fabric)}")
        if unit is not None:
            places[unit] -= 1
        its = loads.of(fabric, job, unit)
        if rate > its.limit_gbps * (1 + SLACK):
            raise broken(f"job {job.id} has a rate of {rate} Gb/s; at most {its.limit_gbps} is possible")
        for at, count in its.switches:
            switch[at] += count * rate
        for pair, count in its.links:
            links[pair] = links.get(pair, 0.0) + count * rate
    if seen < len(rates):
        here = {progress.job.id for progress in state.jobs}
        raise broken(f"job {min(set(rates) - here)} has a rate, but is finished or has not arrived")
    for unit in fabric.units:
        if places[unit] < 0:
            raise broken(
                f"unit {unit} has {fabric.inc[unit] - places[unit]} INC jobs, and room for {fabric.inc[unit]}"
            )
        if switch[unit] > fabric.switch_gbps[unit] * (1 + SLACK):
            raise broken(
                f"the switch of unit {unit} has {switch[unit]} Gb/s, and {fabric.switch_gbps[unit]} of "
                f"capacity"
            )
    for pair, gbps in links.items():
        most = plan.ports.get(pair, 0) * fabric.port_gbps
        if gbps > most * (1 + SLACK) + SLACK:
            raise broken(f"the link {pair} has {gbps} Gb/s, and circuits for {most}")


def _check_ports(fabric: Fabric, ports: Mapping[Pair, int], who: str) -> None:
    """Equation (6), second part: whether units have ports for the circuits."""
    used = [0] * len(fabric.ports)
    for pair, count in ports.items():
        used[pair[0]] += count
        used[pair[1]] += count
    for unit in fabric.units:
        if used[unit] > fabric.ports[unit]:
            raise TestbedError(
                f"{who}: unit {unit} has {used[unit]} circuits, and {fabric.ports[unit]} ports"
            )
