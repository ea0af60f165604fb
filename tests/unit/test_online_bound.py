"""The bound for policies that do not know the future: its optima are optima, and no policy is below it."""

from __future__ import annotations

import pytest

from testbed.systems.p4inc.milp import solve
from tests.bench.online import POLICIES, SETTING, SLOT_S, Family, worst


@pytest.mark.parametrize("iterations", [10.0, 30.0, 60.0, 100.0])
def test_no_policy_is_below_the_bound(iterations: float) -> None:
    family = worst(iterations)
    assert family.least_mean() > 0.08
    for name in (*POLICIES, "noinc-tw", "noinc-tw+"):
        assert family.reached(name) >= family.least_mean() - 1e-9, name


def test_the_optima_with_hindsight_are_those_of_the_milp() -> None:
    family = worst(100.0)
    for jobs, best_s in (family.alone(), *(family.with_long(slot) for slot in range(1, family.last + 1))):
        solution = solve(SETTING.limits, jobs, ports=SETTING.initial, time_limit_s=20.0)
        assert (solution.status, solution.ct_bti_s) == ("optimal", pytest.approx(best_s))


def test_the_bound_by_hand() -> None:
    # four jobs of 1 s; a fifth of 2 s may come after a slot. With INC at once it waits for 3/4 s more, or
    # updates for 0.4 s; one of the four with its PS costs 0.2 of 1 s; waiting for a slot costs a quarter of
    # it
    family = Family(4, 8, 1)
    late = (2.25 + Family.update_s(8)) / 2.25 - 1
    assert family.least_mean() == pytest.approx(min(late / 2, 0.5 * Family.update_s(4), SLOT_S / 2))
