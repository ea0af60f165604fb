"""P4INC-AOI's MILP, section IV-B and appendix A, on HiGHS: as it is printed (`literal`), and as it can be solved (`strong`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from testbed.errors import RequestError
from testbed.scheduling.checker import check
from testbed.scheduling.milp.instance import prepare
from testbed.scheduling.milp.solution import Budget, Solution, Stage
from testbed.scheduling.milp.strong import Search
from testbed.scheduling.model import Fabric, Job, Pair, Schedule

__all__ = ["FORMULATIONS", "Solution", "Stage", "solve"]

FORMULATIONS = ("strong", "literal")


def solve(
    fabric: Fabric,
    jobs: Sequence[Job],
    *,
    ports: Mapping[Pair, int],
    time_limit_s: float,
    gap: float = 0.0,
    warm: Schedule | None = None,
    formulation: str = "strong",
    fewest: bool = False,
    clock: Callable[[], float] | None = None,
) -> Solution:
    """The shortest CT-BTI for jobs whose arrivals are all known, from the circuits `ports`.

    It ends when the relative `gap` between the schedule and the bound is reached, or the time is up. `warm` is a schedule to be at
    least as good as. `fewest` then looks for fewer circuits to be set up at the same CT-BTI. `clock` gives seconds; without one,
    only what the solver itself took counts against the limit. Raises RequestError for what cannot be scheduled.
    """
    if not 0 < time_limit_s < math.inf:
        raise RequestError(f"time limit {time_limit_s}: seconds above 0 are accepted")
    if not 0 <= gap < 1:
        raise RequestError(f"gap {gap}: from 0 to below 1 is accepted")
    if formulation not in FORMULATIONS:
        raise RequestError(f"formulation {formulation!r}: accepted are {', '.join(FORMULATIONS)}")
    budget = Budget(time_limit_s, clock)
    instance = prepare(fabric, jobs, ports)
    search = Search(instance, budget, gap)
    if warm is not None:
        if warm.fabric != fabric or set(warm.jobs) != set(jobs):
            raise RequestError("the schedule to start from is of another fabric or other jobs")
        check(warm)
        search.take(warm)
    search.run(fewest)
    found = search.schedule is not None
    reached = (search.high_s - search.low_s) / search.high_s if found else math.inf
    reached = max(0.0, reached) if reached > 1e-9 else 0.0
    status = "unsolved" if not found else "optimal" if reached <= gap + 1e-12 else "feasible"
    return Solution(search.schedule, search.high_s, search.low_s, reached, status, budget.spent_s, budget.stages())
