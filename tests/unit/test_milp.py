"""The strong form: examples by hand, table I's instances, limits and starts, what is refused, and its
parts.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from testbed.errors import RequestError
from testbed.linear_programs.linear import LinearProgram
from testbed.scheduling.model import Job, Limits, Pair, Schedule
from testbed.systems.p4inc.checker import BrokenSchedule, check
from testbed.systems.p4inc.milp import Solution, solve
from testbed.systems.p4inc.milp.instance import prepare
from testbed.systems.p4inc.milp.packing import Stay, fits, held_at_least, largest_sets, starts
from testbed.systems.p4inc.milp.relaxed import relaxation
from testbed.systems.p4inc.milp.slots import schedule as slots_schedule
from testbed.systems.p4inc.milp.slots import slots
from testbed.systems.p4inc.policies import catalogue
from testbed.systems.p4inc.simulator.fluid import simulate
from testbed.systems.p4inc.simulator.settings import SETTINGS

LINK = (0, 1)
LIMIT_S = 600.0  # none of these takes a second of it: what is tested is not the limit


class Ticks:
    """A clock that goes on by a second each time that it is asked."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def table1(seed: int, count: int) -> tuple[Limits, tuple[Job, ...], dict[Pair, int]]:
    setting = SETTINGS["table1"]
    return setting.limits, setting.jobs(seed, job_count=count), setting.initial


def verified(solution: Solution) -> Schedule:
    """Its schedule, after the checker and what the solution says of it."""
    assert solution.schedule is not None
    schedule = solution.schedule
    report = check(schedule)
    slot_s = schedule.limits.slot_s
    first = min(job.arrival for job in schedule.jobs)
    assert max(report.finish_s.values()) - first * slot_s == pytest.approx(solution.ct_bti_s, abs=1e-6)
    assert report.ct_bti_s <= solution.ct_bti_s + 1e-6
    assert solution.bound_s <= solution.ct_bti_s + 1e-9
    return schedule


# ------------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    "limits", [Limits.uniform(2, 0, 1, 10.0, host_gbps=10.0), Limits.uniform(2, 0, 3, 10.0, 20.0)]
)
def test_the_whole_model_keeps_places_and_switches(limits: Limits) -> None:
    """Jobs that one place, or one switch, has room for one after the other only."""
    instance = prepare(limits, [Job(number, ((0, 2),), 1, 10.0) for number in range(3)], {})
    together, apart = slots(instance, 2.0), slots(instance, 3.0)
    assert together is not None
    assert together.program.solve(LIMIT_S).status == "infeasible"
    assert apart is not None
    answer = apart.program.solve(LIMIT_S)
    assert answer.values is not None
    check(slots_schedule(apart, answer.values))


def test_jobs_that_need_one_port_for_different_units() -> None:
    """No schedule has one phase, however long, so that looking for one has to end; the solver takes no time
    meanwhile.
    """
    limits = Limits.uniform(3, 1, 0, 10.0, reconfiguration_s=0.1)
    jobs = [Job(0, ((1, 1),), 0, 9.0), Job(1, ((1, 1),), 2, 9.0)]
    solution = solve(limits, jobs, ports={}, time_limit_s=LIMIT_S)
    assert solution.status == "optimal"
    assert solution.ct_bti_s == pytest.approx(2.0)
    verified(solution)


def test_places_that_share_their_time_hold_all_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound without sets: four jobs fill two places to the last slot."""
    monkeypatch.setattr("testbed.systems.p4inc.milp.choice.largest_sets", lambda *_: None)
    limits = Limits.uniform(2, 0, 2, 10.0, host_gbps=10.0)
    jobs = [Job(number, ((0, 2),), 1, 20.0, arrival=number // 2) for number in range(4)]
    solution = solve(limits, jobs, ports={}, time_limit_s=LIMIT_S)
    assert (solution.status, solution.ct_bti_s, solution.bound_s) == ("optimal", 4.0, 4.0)
    jobs.append(Job(4, ((0, 2),), 1, 20.0, arrival=0))
    assert solve(limits, jobs, ports={}, time_limit_s=LIMIT_S).bound_s == 6.0


def test_places_that_share_their_time_leave_the_rest_to_the_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is full with two of four jobs, the ports with the others."""
    monkeypatch.setattr("testbed.systems.p4inc.milp.choice.largest_sets", lambda *_: None)
    limits = Limits.uniform(2, 2, 1, 10.0, host_gbps=10.0, reconfiguration_s=0.0)
    jobs = [Job(number, ((0, 2),), 1, 20.0) for number in range(4)]
    solution = solve(limits, jobs, ports={LINK: 2}, time_limit_s=LIMIT_S)
    assert (solution.status, solution.ct_bti_s, solution.bound_s) == ("optimal", 4.0, 4.0)


@pytest.mark.parametrize(("count", "ct_bti_s"), [(3, 4.0), (5, 7.0), (8, 12.0)])
def test_bisection_ends_at_the_least_that_is_possible(count: int, ct_bti_s: float) -> None:
    """One place, and no ports: jobs of one slot and two in turns, one after the other."""
    limits = Limits.uniform(2, 0, 1, 10.0, host_gbps=10.0)
    jobs = [Job(number, ((0, 2),), 1, 10.0 * (1 + number % 2)) for number in range(count)]
    solution = solve(limits, jobs, ports={}, time_limit_s=LIMIT_S)
    assert (solution.status, solution.ct_bti_s, solution.bound_s) == ("optimal", ct_bti_s, ct_bti_s)


@pytest.mark.parametrize("formulation", ["strong", "literal"])
def test_circuits_may_be_set_up_before_the_first_arrival(formulation: str) -> None:
    limits = Limits.uniform(2, 1, 0, 10.0, host_gbps=10.0, reconfiguration_s=0.3)
    late, at_once = (Job(0, ((0, 1),), 1, 10.0, 0.0, arrival) for arrival in (1, 0))
    solution = solve(limits, [late], ports={}, time_limit_s=LIMIT_S, formulation=formulation)
    assert (solution.bound_s, solution.ct_bti_s) == pytest.approx((1.0, 1.0))
    verified(solution)
    assert solve(
        limits, [at_once], ports={}, time_limit_s=LIMIT_S, formulation=formulation
    ).bound_s == pytest.approx(2.0)


@pytest.mark.parametrize("formulation", ["strong", "literal"])
def test_a_circuit_is_as_fast_as_its_slower_end(formulation: str) -> None:
    """One port a unit: four slots' worth at the slowest unit's rate takes one between the faster two."""
    limits = Limits.uniform(3, 1, 0, 10.0, reconfiguration_s=0.0)
    limits = replace(limits, unit_port_gbps=(10.0, 40.0, 80.0))
    for ends, slots_taken in (((1, 2), 1.0), ((0, 2), 4.0)):
        job = Job(0, ((ends[0], 1),), ends[1], 40.0)
        solution = solve(limits, [job], ports={}, time_limit_s=LIMIT_S, formulation=formulation)
        assert (solution.bound_s, solution.ct_bti_s) == pytest.approx((slots_taken, slots_taken))
        verified(solution)


def test_a_fast_units_circuits_bear_what_their_slower_ends_do() -> None:
    """A hub whose ports are eight times as fast as the leaves': the relaxation knows that it has two."""
    leaves = 6
    limits = Limits.uniform(1 + leaves, 2, 0, 10.0, reconfiguration_s=0.0)
    limits = replace(limits, unit_port_gbps=(80.0, *[10.0] * leaves))
    jobs = [Job(leaf, ((leaf, 1),), 0, 40.0) for leaf in range(1, 1 + leaves)]
    instance = prepare(limits, jobs, {})
    for value_s, status in ((11.0, "infeasible"), (12.0, "optimal")):  # 6 * 40 / 20
        part = relaxation(instance, value_s)
        assert part is not None
        assert part[0].solve(LIMIT_S).status == status
    solution = solve(limits, jobs, ports={}, time_limit_s=LIMIT_S)
    assert (solution.status, solution.bound_s, solution.ct_bti_s) == ("optimal", 12.0, 12.0)
    verified(solution)


def test_the_bound_grants_what_may_be_left_of_a_volume() -> None:
    """A schedule is over with 1e-9 of a volume left, which of a large one is more than the solver's
    tolerance.
    """
    limits = Limits.uniform(2, 2, 0, 10.0, host_gbps=10.0, reconfiguration_s=0.0)
    jobs = [Job(number, ((0, 1),), 1, 1e4 * (1 + 9e-10)) for number in range(2)]
    schedule = simulate(limits, jobs, catalogue.make("noinc-tw"), {LINK: 2}, record=True).schedule
    assert schedule is not None
    solution = solve(limits, jobs, ports={LINK: 2}, time_limit_s=LIMIT_S)
    assert solution.bound_s <= check(schedule).ct_bti_s


# ------------------------------------------------------------------ the aim, small


@pytest.mark.parametrize("seed", [1, 2])
def test_40_jobs_on_8_units_are_optimal(seed: int) -> None:
    limits, jobs, ports = table1(seed, 40)
    solution = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S)
    assert (solution.status, solution.gap) == ("optimal", 0.0)
    verified(solution)


def test_no_policy_is_below_the_bound() -> None:
    limits, jobs, ports = table1(2, 60)
    solution = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S)
    for name in ("inc-fcfs", "inc-tw"):
        assert simulate(limits, jobs, catalogue.make(name), ports).ct_bti_s >= solution.bound_s - 1e-9


def test_fewest_circuits_at_the_same_ct_bti() -> None:
    limits, jobs, ports = table1(2, 50)
    plain = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S)
    fewest = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S, fewest=True)
    assert fewest.ct_bti_s == plain.ct_bti_s
    few, many = (check(verified(each)).reconfigured_connections for each in (fewest, plain))
    assert few < many


def test_the_same_twice() -> None:
    limits, jobs, ports = table1(3, 30)
    first, second = (solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S, fewest=True) for _ in range(2))
    assert first.schedule == second.schedule
    assert (first.ct_bti_s, first.bound_s) == (second.ct_bti_s, second.bound_s)


# ------------------------------------------------------------------ limits, starts


def test_no_time_leaves_the_start_and_a_bound() -> None:
    limits, jobs, ports = table1(1, 40)
    warm = simulate(limits, jobs, catalogue.make("inc-fcfs"), ports, record=True).schedule
    solution = solve(limits, jobs, ports=ports, time_limit_s=0.5, warm=warm, clock=Ticks())
    assert solution.schedule is warm
    assert solution.status == "feasible"
    assert 0 < solution.bound_s < solution.ct_bti_s
    assert solution.wall_s < 20  # ticks: how often it looked at the clock after the time was up


def test_no_time_and_no_start() -> None:
    limits, jobs, ports = table1(1, 40)
    solution = solve(limits, jobs, ports=ports, time_limit_s=0.5, clock=Ticks())
    assert (solution.schedule, solution.status, solution.ct_bti_s) == (None, "unsolved", math.inf)
    assert solution.bound_s > 0


def test_a_start_is_not_made_worse() -> None:
    limits, jobs, ports = table1(1, 30)
    warm = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S)
    again = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S, warm=warm.schedule)
    assert again.schedule is warm.schedule
    assert again.status == "optimal"


def test_the_fewest_circuits_are_minimised_over_all_slots_and_proven() -> None:
    limits, jobs, ports = table1(2, 50)
    solution = solve(limits, jobs, ports=ports, time_limit_s=30.0, fewest=True)
    assert solution.status == "optimal"
    assert solution.schedule is not None
    assert check(solution.schedule).reconfigured_connections == solution.connections_bound == 1
    assert solve(limits, jobs, ports=ports, time_limit_s=30.0).connections_bound is None, "nobody asked"


def test_a_broken_start_is_refused() -> None:
    limits, jobs, ports = table1(1, 10)
    with pytest.raises(BrokenSchedule):
        solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S, warm=Schedule(limits, jobs, (), ports))


def test_a_start_from_other_circuits_is_refused() -> None:
    """A start with circuits that are not lit could be better than what is possible."""
    limits, jobs, ports = table1(1, 10)
    warm = simulate(limits, jobs, catalogue.make("inc-fcfs"), ports, record=True).schedule
    with pytest.raises(RequestError, match="initial circuits"):
        solve(limits, jobs, ports={}, time_limit_s=LIMIT_S, warm=warm)


LIMITS = Limits.uniform(2, 2, 1, 10.0)
JOB = Job(0, ((0, 1),), 1, 10.0)


@pytest.mark.parametrize(
    ("jobs", "changes", "message"),
    [
        ([], {}, "no jobs"),
        ([JOB, JOB], {}, "job 0: id: of two jobs; one of its own is accepted"),
        ([JOB], {"time_limit_s": -1.0}, "time limit -1"),
        ([JOB], {"time_limit_s": math.nan}, "time limit nan"),
        ([JOB], {"gap": 1.0}, "gap 1"),
        ([JOB], {"formulation": "weak"}, "'weak'.*strong, literal"),
        ([JOB], {"ports": {(1, 0): 1}}, "smaller first"),
        ([JOB], {"ports": {(0, 1): 3}}, "unit 0: 3"),
        ([Job(0, ((0, 1),), 2, 10.0)], {}, "job 0: ps: 2; a whole number from 0 to 1"),
        ([Job(0, ((0, 1),), 1, -1.0)], {}, "job 0: gigabits: -1.0"),
        ([JOB], {"limits": Limits.uniform(2, 2, 1, 10.0, slot_s=math.nan)}, "limits.slot_s: nan"),
        (
            [Job(0, ((0, 1),), 1, 90.0)],
            {"horizon": 3, "limits": Limits.uniform(2, 2, 0, 10.0)},
            "job 0.*5 slots.*look-ahead",
        ),
        ([Job(0, ((0, 1), (1, 1)), 1, 1.0)], {"limits": Limits.uniform(2, 0, 1, 10.0)}, "job 0: no mode"),
    ],
)
def test_what_is_refused(jobs: list[Job], changes: dict[str, object], message: str) -> None:
    asked = {"limits": LIMITS, "jobs": jobs, "ports": {}, "time_limit_s": 10.0} | changes
    with pytest.raises(RequestError, match=message):
        solve(**asked)  # type: ignore[arg-type]


# ------------------------------------------------------------------ parts


def test_sets_of_a_place_are_all_and_largest() -> None:
    draw = random.Random(5)
    for _ in range(30):
        tasks = [Stay(key, draw.randrange(6), draw.randint(1, 7)) for key in range(7)]
        end = draw.randint(8, 14)
        by_key = {task.key: task for task in tasks}

        def possible(keys: tuple[int, ...], end: int = end, by_key: dict[int, Stay] = by_key) -> bool:
            return any(fits([by_key[key] for key in order], end) for order in itertools.permutations(keys))

        every = [keys for n in range(1, 8) for keys in itertools.combinations(range(7), n) if possible(keys)]
        largest = {frozenset(keys) for keys in every if not any(set(keys) < set(more) for more in every)}
        sets = largest_sets(tasks, end)
        assert sets is not None
        assert {frozenset(keys) for keys in sets} == largest
        assert len(sets) == len(largest)
        for keys in sets:
            began = starts([by_key[key] for key in keys])
            assert all(began[key] + by_key[key].slots <= end for key in keys)


def test_too_many_sets_are_not_listed() -> None:
    assert largest_sets([Stay(key, 0, 1) for key in range(30)], 10, most=100) is None


def test_what_a_task_holds_at_least() -> None:
    for arrival, length, end, low, high in itertools.product(
        range(3), range(1, 4), range(4, 7), range(5), range(1, 7)
    ):
        held = [
            len(set(range(s, s + length)) & set(range(low, high))) for s in range(arrival, end - length + 1)
        ]
        if held:
            assert held_at_least(arrival, length, end, low, high) == min(held)


def test_many_jobs_in_one_place_need_no_sets() -> None:
    """Each place beyond MOST_SETS is a machine of its own in a schedule, and all share their time in the
    bound.
    """
    limits = Limits.uniform(2, 1, 2, 10.0, host_gbps=10.0, slot_s=1.0)
    jobs = [Job(number, ((0, 2),), 1, 10.0 * (1 + number % 2), 30.0, number // 8) for number in range(24)]
    solution = solve(limits, jobs, ports={}, time_limit_s=LIMIT_S)
    verified(solution)
    assert solution.gap < 0.1


def test_a_program_tells_limits_from_proofs() -> None:
    program = LinearProgram()
    x = program.whole(0, 10, cost=-1.0)
    program.row([(x, 2.0)], high=7.0)
    assert program.solve(LIMIT_S).values == (3.0,)
    assert program.solve(0.0).status == "limit"
    program.row([(x, 1.0)], low=4.0)
    assert program.solve(LIMIT_S).status == "infeasible"
