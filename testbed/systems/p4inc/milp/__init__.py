"""P4INC-AOI's MILP (section IV-B and appendix A), solved with HiGHS: as printed (`literal`), and in a
solvable form (`strong`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from testbed.errors import RequestError
from testbed.scheduling.model import Job, Limits, Pair, Schedule
from testbed.systems.p4inc.checker import check
from testbed.systems.p4inc.milp import literal
from testbed.systems.p4inc.milp.instance import prepare
from testbed.systems.p4inc.milp.solution import Budget, Solution, Stage
from testbed.systems.p4inc.milp.strong import Search

__all__ = ["FORMULATIONS", "Solution", "Stage", "solve"]

FORMULATIONS = ("strong", "literal")


def solve(
    limits: Limits,
    jobs: Sequence[Job],
    *,
    ports: Mapping[Pair, int],
    time_limit_s: float,
    gap: float = 0.0,
    warm: Schedule | None = None,
    formulation: str = "strong",
    fewest: bool = False,
    horizon: int | None = None,
    clock: Callable[[], float] | None = None,
) -> Solution:
    """Minimise the CT-BTI of jobs with known arrivals, from the initial circuits `ports`.

    The search ends when the relative `gap` between schedule and bound is reached, or at the time limit. The
    result is at least as good as the schedule `warm`. `fewest` then minimises, at the same CT-BTI, the
    circuits that are set up over all slots, with a bound. `clock` returns seconds; without it, only the
    solver's own time counts against the limit. Raises RequestError for an instance that cannot be scheduled.
    """
    if not 0 < time_limit_s < math.inf:
        raise RequestError(f"time limit {time_limit_s}: seconds above 0 are accepted")
    if not 0 <= gap < 1:
        raise RequestError(f"gap {gap}: from 0 to below 1 is accepted")
    if formulation not in FORMULATIONS:
        raise RequestError(f"formulation {formulation!r}: accepted are {', '.join(FORMULATIONS)}")
    budget = Budget(time_limit_s, clock)
    instance = prepare(limits, jobs, ports)
    if horizon is not None:
        instance.within(horizon)
    search = Search(instance, budget, gap)
    if warm is not None:
        if warm.limits != limits or set(warm.jobs) != set(jobs):
            raise RequestError("the schedule to start from is of another limits or other jobs")
        if {p: n for p, n in warm.ports.items() if n} != {p: n for p, n in ports.items() if n}:
            raise RequestError("the schedule to start from has other initial circuits")
        check(warm)
        search.take(warm)
    if formulation == "literal":
        return _literal(search, horizon)
    search.run(fewest)
    return _solution(search, search.schedule, search.high_s, search.low_s)


def _literal(search: Search, horizon: int | None) -> Solution:
    """Solve the printed form with all corrections. Without a look-ahead, T is the length of a schedule that
    `strong` finds first.
    """
    instance, budget = search.instance, search.budget
    if horizon is None:
        search.run(fewest=False)
        if search.schedule is None:
            return _solution(search, None, math.inf, search.low_s)
        horizon = len(search.schedule.decisions)
    with budget.stage("literal"):
        printed = literal.solve(instance, horizon, budget.left_s)
        budget.count(printed.answer, *printed.size)
    began_s = instance.first * instance.limits.slot_s
    return _solution(
        search, printed.schedule, printed.objective_s - began_s, max(0.0, printed.bound_s - began_s)
    )


def _solution(search: Search, schedule: Schedule | None, high_s: float, low_s: float) -> Solution:
    reached = max(0.0, high_s - low_s) / high_s if schedule is not None else math.inf
    reached = reached if reached > 1e-9 else 0.0
    status = "unsolved" if schedule is None else "optimal" if reached <= search.gap + 1e-9 else "feasible"
    return Solution(
        schedule,
        high_s,
        low_s,
        reached,
        status,
        search.budget.spent_s,
        search.budget.stages(),
        search.connections_bound,
    )
