"""The strong form against all that is possible: brute force over two units, and no policy's schedule below
the bound in random worlds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from testbed.scheduling.model import Job, Limits, Pair, Schedule, load
from testbed.systems.p4inc.checker import check
from testbed.systems.p4inc.milp import solve
from testbed.systems.p4inc.milp.instance import prepare
from testbed.systems.p4inc.milp.played import one_by_one
from testbed.systems.p4inc.milp.relaxed import relaxation
from testbed.systems.p4inc.milp.slots import schedule as slots_schedule
from testbed.systems.p4inc.milp.slots import slots
from testbed.systems.p4inc.policies import catalogue
from testbed.systems.p4inc.simulator.fluid import simulate
from tests.worlds import World, worlds

LINK = (0, 1)
LIMIT_S = 600.0  # none of these takes a second of it


def ends_s(schedule: Schedule) -> float:
    """The end of the last job, from the first arrival, as the checker has it."""
    return (
        max(check(schedule).finish_s.values())
        - min(job.arrival for job in schedule.jobs) * schedule.limits.slot_s
    )


def two_units(seed: int) -> tuple[Limits, list[Job], dict[Pair, int]]:
    draw = random.Random(seed)
    most = draw.choice([1, 2])
    host = draw.choice([10.0, math.inf])
    switch = draw.choice([25.0, math.inf])
    limits = Limits.uniform(
        2,
        most,
        draw.choice([0, 1]),
        10.0,
        switch,
        host_gbps=host,
        slot_s=1.0,
        reconfiguration_s=draw.choice([0.0, 0.3]),
    )
    jobs = []
    for number in range(2):
        at = draw.randrange(2)
        volume, update = draw.uniform(2.0, 11.0), draw.choice([0.0, 0.4, 1.2])
        jobs.append(
            Job(number, ((at, draw.randint(1, 2)),), draw.randrange(2), volume, update, draw.randint(0, 1))
        )
    return limits, jobs, draw.choice([{}, {LINK: 1}])


def brute_force(limits: Limits, jobs: list[Job], ports: dict[Pair, int], horizon: int) -> float:
    """The least max t_j, over all modes, spans and circuits; rates by a linear program. Written from the
    paper, not from `slots`.
    """
    best = math.inf
    spans = [list(_spans(limits, job, horizon)) for job in jobs]
    for choice in itertools.product(*spans):
        latest = max(
            high * limits.slot_s + load(limits, job, inc).update_s
            for job, (inc, _, high) in zip(jobs, choice, strict=True)
        )
        if latest >= best - 1e-9:
            continue
        lit = itertools.product(range(limits.ports[0] + 1), repeat=horizon)
        if any(_carried(limits, jobs, ports, choice, circuits) for circuits in lit):
            best = latest
    return best


def _spans(limits: Limits, job: Job, horizon: int) -> Iterator[tuple[int | None, int, int]]:
    for inc in (*job.inc_units(limits), None):
        for low in range(job.arrival, horizon):
            for high in range(low + 1, horizon + 1):
                yield inc, low, high


def _carried(
    limits: Limits,
    jobs: list[Job],
    ports: dict[Pair, int],
    choice: tuple[tuple[int | None, int, int], ...],
    circuits: tuple[int, ...],
) -> bool:
    horizon = len(circuits)
    loads = [load(limits, job, inc) for job, (inc, _, _) in zip(jobs, choice, strict=True)]
    index = {(j, i): n for n, (j, i) in enumerate(itertools.product(range(len(jobs)), range(horizon)))}
    width = 2 * len(index)  # rates, then what is lost
    rows, most = [], []
    for slot in range(horizon):
        on = [j for j, (_, low, high) in enumerate(choice) if low <= slot < high]
        for unit in limits.units:
            if sum(choice[j][0] == unit for j in on) > limits.inc[unit]:
                return False
            row = [0.0] * width
            for j in on:
                row[index[j, slot]] = dict(loads[j].switches).get(unit, 0)
            if limits.switch_gbps[unit] < math.inf:
                rows.append(row)
                most.append(limits.switch_gbps[unit])
        row = [0.0] * width
        for j in on:
            if loads[j].links and not circuits[slot]:
                return False
            row[index[j, slot]] = dict(loads[j].links).get(LINK, 0)
        rows.append(row)
        most.append(circuits[slot] * limits.circuit_gbps(LINK))
        before = circuits[slot - 1] if slot else ports.get(LINK, 0)
        for j in on:
            if loads[j].links and circuits[slot] > before:
                row = [0.0] * width
                row[index[j, slot]] = limits.reconfiguration_s
                if slot:
                    row[index[j, slot - 1]] = -limits.reconfiguration_s
                row[len(index) + index[j, slot]] = -1.0
                rows.append(row)
                most.append(0.0)
    bounds = []
    for j, (_, low, high) in enumerate(choice):
        bounds += [
            (0.0, min(loads[j].limit_gbps, 1e3) if low <= slot < high else 0.0) for slot in range(horizon)
        ]
    for j, job in enumerate(jobs):
        row = [0.0] * width
        for slot in range(horizon):
            row[index[j, slot]] = -limits.slot_s
            row[len(index) + index[j, slot]] = 1.0
        rows.append(row)
        most.append(-job.gigabits)
    return bool(linprog([0.0] * width, rows, most, bounds=[*bounds, *[(0.0, None)] * len(index)]).success)


# 201, 271 and 348 are over earlier if circuits are set up before the first arrival
@pytest.mark.parametrize("seed", [*range(12), 201, 271, 348])
def test_brute_force_finds_the_same(seed: int) -> None:
    limits, jobs, ports = two_units(seed)
    solution = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S)
    assert solution.status == "optimal"
    assert solution.schedule is not None
    assert ends_s(solution.schedule) == pytest.approx(solution.ct_bti_s, abs=1e-6)
    best = brute_force(limits, jobs, ports, min(len(solution.schedule.decisions), 4))
    assert solution.ct_bti_s + min(job.arrival for job in jobs) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("seed", [*range(8), 201, 348])
def test_the_whole_model_alone_finds_the_same(seed: int) -> None:
    """The whole model has a schedule at brute force's optimum, that the checker takes; at the next shorter
    CT-BTI it has none.
    """
    limits, jobs, ports = two_units(seed)
    instance = prepare(limits, jobs, ports)
    best_s = brute_force(limits, jobs, ports, 4) - instance.first
    shorter = [value_s for value_s in instance.candidates(0.0, best_s) if value_s < best_s - 1e-6]
    if shorter and (model := slots(instance, shorter[-1])) is not None:
        assert model.program.solve(LIMIT_S).status == "infeasible"
    model = slots(instance, best_s)
    assert model is not None
    answer = model.program.solve(LIMIT_S)
    assert answer.values is not None
    check(slots_schedule(model, answer.values))


@pytest.mark.parametrize("seed", range(12))
def test_jobs_one_by_one_are_a_schedule(seed: int) -> None:
    limits, jobs, ports = two_units(seed)
    instance = prepare(limits, jobs, ports)
    schedule = one_by_one(instance)
    check(schedule)
    assert all(len(decision.rates) <= 1 for decision in schedule.decisions)


def test_the_relaxation_is_below_the_whole_model() -> None:
    """The relaxation has a solution wherever the whole model has one."""
    for seed in range(12):
        limits, jobs, ports = two_units(seed)
        instance = prepare(limits, jobs, ports)
        for value_s in instance.candidates(0.5, 5.0):
            whole, part = slots(instance, value_s), relaxation(instance, value_s)
            if whole is not None and whole.program.solve(LIMIT_S, any_solution=True).values is not None:
                assert part is not None
                assert part[0].solve(LIMIT_S).status == "optimal"


@pytest.mark.parametrize("seed", range(8))
def test_brute_force_finds_the_same_where_a_units_ports_are_faster(seed: int) -> None:
    limits, jobs, ports = two_units(seed)
    faster = replace(limits, unit_port_gbps=(15.0, 40.0))  # circuits have the slower end's 15
    solution = solve(faster, jobs, ports=ports, time_limit_s=LIMIT_S)
    best = brute_force(faster, jobs, ports, 4)
    assert solution.status == "optimal"
    assert solution.ct_bti_s + min(job.arrival for job in jobs) == pytest.approx(best, abs=1e-6)


@given(worlds(most_units=3, most_jobs=5))
@settings(max_examples=40, deadline=None)
def test_jobs_one_by_one_are_a_schedule_in_all_worlds(world: World) -> None:
    limits, jobs, ports = world
    if limits.reconfiguration_s == limits.slot_s:  # not for the MILP
        limits = replace(limits, reconfiguration_s=0.9 * limits.slot_s)
    check(one_by_one(prepare(limits, jobs, ports)))


@given(worlds(most_units=3, most_jobs=5))
@settings(max_examples=40, deadline=None)
def test_no_schedule_is_below_the_bound(world: World) -> None:
    """Nor is any that a policy finds better than the optimum."""
    limits, jobs, ports = world
    if limits.reconfiguration_s == limits.slot_s:  # a policy can do that, the MILP not
        limits = replace(limits, reconfiguration_s=0.9 * limits.slot_s)
    names = [name for name in catalogue.NAMES if not name.endswith("-norecon")]
    schedules = [simulate(limits, jobs, catalogue.make(name), ports, record=True).schedule for name in names]
    best_s = min(ends_s(schedule) for schedule in schedules if schedule is not None)
    solution = solve(limits, jobs, ports=ports, time_limit_s=1.0)
    assert solution.bound_s <= best_s + 1e-9
    if solution.schedule is not None:
        assert ends_s(solution.schedule) == pytest.approx(solution.ct_bti_s, abs=1e-6)
    if solution.status == "optimal":
        assert solution.ct_bti_s <= best_s + 1e-9
