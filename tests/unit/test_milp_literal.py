"""The equations as they are printed: what each correction changes, and that with all of them the optimum is
the strong form's.
"""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from testbed.errors import RequestError
from testbed.linear_programs.linear import LinearProgram
from testbed.scheduling.model import Job, Limits, Pair
from testbed.systems.p4inc.checker import check
from testbed.systems.p4inc.milp import literal, solve
from testbed.systems.p4inc.milp.instance import prepare
from testbed.systems.p4inc.milp.linearised import ZERO, Linear, both, maximum, minimum, product

ALL = literal.ALL
LIMIT_S = 600.0  # none of these takes a second of it
LIMITS = Limits.uniform(2, 2, 1, 10.0, slot_s=1.0, reconfiguration_s=0.2)
LINK = {(0, 1): 1}


def optimum(limits: Limits, jobs: list[Job], ports: dict[Pair, int], last: int, without: str = "") -> float:
    solution = literal.solve(prepare(limits, jobs, ports), last, LIMIT_S, ALL - set(without.split()))
    assert solution.answer.status == "optimal"
    return solution.objective_s


def tiny(seed: int) -> tuple[Limits, list[Job], dict[Pair, int]]:
    """Few ports and INC places, spread jobs among them."""
    draw = random.Random(seed)
    limits = Limits.uniform(
        3,
        draw.choice([2, 3]),
        1,
        10.0,
        host_gbps=draw.choice([20.0, math.inf]),
        slot_s=1.0,
        reconfiguration_s=0.2,
    )
    jobs = []
    for number in range(3):
        units = sorted(draw.sample(range(3), draw.choice([1, 1, 1, 2])))
        workers = tuple((unit, draw.randint(1, 2)) for unit in units)
        volume = draw.uniform(4, 15)
        jobs.append(
            Job(number, workers, draw.randrange(3), volume, draw.choice([0.3, 0.8]), draw.randint(0, 1))
        )
    return limits, jobs, draw.choice([{}, {(0, 1): 1}, limits.full_mesh()])


# in 270 whole ports raise the bound, though not up to the best schedule then known
@pytest.mark.parametrize("seed", [3, 7, 11, 12, 14, 16, 18, 21, 270])
def test_with_all_corrections_the_optimum_is_the_strong_one(seed: int) -> None:
    limits, jobs, ports = tiny(seed)
    strong = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S)
    printed = solve(limits, jobs, ports=ports, time_limit_s=LIMIT_S, formulation="literal")
    assert (strong.status, printed.status) == ("optimal", "optimal")
    assert printed.ct_bti_s == pytest.approx(strong.ct_bti_s, abs=1e-5)
    assert printed.schedule is not None
    finish_s = check(printed.schedule).finish_s
    assert max(finish_s.values()) - min(job.arrival for job in jobs) == pytest.approx(
        strong.ct_bti_s, abs=1e-5
    )


@pytest.mark.parametrize("formulation", ["strong", "literal"])
@pytest.mark.parametrize(
    ("workers", "inc", "switch_gbps", "expected_s"),
    [
        (((0, 1),), 0, (math.inf, 5.0), 2.0),  # what comes to the PS's unit passes its switch
        (((0, 1), (1, 1)), 0, (math.inf, 15.0), 2.0),  # and what its own workers send to the PS once more
        (((0, 1), (1, 1)), 0, (math.inf, 21.0), 1.0),
        (((1, 2),), 0, (math.inf, 20.0), 2.0),
        (((1, 2),), 0, (math.inf, 28.0), 1.0),
        (((1, 2),), 1, (math.inf, 14.0), 1.0),  # summed in their switch they go there alone
    ],
)
def test_a_switch_carries_all_that_goes_to_a_server_behind_it(
    formulation: str,
    workers: tuple[tuple[int, int], ...],
    inc: int,
    switch_gbps: tuple[float, float],
    expected_s: float,
) -> None:
    """Equation (5): for 7 Gb in a slot of a second each stream has 7 Gb/s."""
    limits = dataclasses.replace(LIMITS, inc=(inc, inc), switch_gbps=switch_gbps, reconfiguration_s=0.0)
    jobs = [Job(0, workers, 1, 7.0)]
    solution = solve(limits, jobs, ports=LINK, time_limit_s=LIMIT_S, formulation=formulation)
    assert solution.status == "optimal"
    assert solution.ct_bti_s == pytest.approx(expected_s)


class TestEachCorrection:
    def test_local_inc_without_data_ends_at_once(self) -> None:
        """(8), second line: with INC where the PS is not, neither line leaves any data."""
        limits = dataclasses.replace(LIMITS, host_gbps=10.0)
        jobs = [Job(0, ((0, 2),), 1, 25.0, 5.0)]
        assert optimum(limits, jobs, LINK, 4, "one-rate") == pytest.approx(3.0)
        assert optimum(limits, jobs, LINK, 4, "one-rate local") == pytest.approx(1.0)

    def test_alpha_of_ports_that_stay_costs_epsilon(self) -> None:
        jobs = [Job(0, ((0, 1),), 1, 10.0)]
        limits = dataclasses.replace(LIMITS, inc=(0, 0), ports=(1, 1))
        assert optimum(limits, jobs, LINK, 3) == pytest.approx(1.0)
        assert optimum(limits, jobs, LINK, 3, "increase") == pytest.approx(2.0)

    def test_circuits_of_slot_0_are_free(self) -> None:
        jobs = [Job(0, ((0, 1),), 1, 10.0)]
        limits = dataclasses.replace(LIMITS, inc=(0, 0), ports=(1, 1))
        assert optimum(limits, jobs, {}, 3) == pytest.approx(2.0)
        assert optimum(limits, jobs, {}, 3, "initial") == pytest.approx(1.0)

    def test_links_of_a_job_lose_apart(self) -> None:
        """Job 0 starts over a new circuit to unit 2, and gets faster over a new one to unit 1: each pair
        loses once, the job twice.
        """
        limits = Limits.uniform(4, 3, 0, 10.0, slot_s=1.0, reconfiguration_s=0.2)
        jobs = [Job(0, ((1, 2), (2, 1)), 0, 13.5, 4.0), Job(1, ((3, 1),), 0, 10.0, 5.0)]
        ports = {(0, 1): 1, (0, 3): 1}
        assert optimum(limits, jobs, ports, 4) == pytest.approx(7.0)
        assert optimum(limits, jobs, ports, 4, "one-rate") == pytest.approx(6.0)

    def test_a_duration_alone_lets_a_job_pause(self) -> None:
        limits = Limits.uniform(3, 1, 0, 10.0, slot_s=1.0, reconfiguration_s=0.0)
        jobs = [Job(0, ((1, 1),), 0, 20.0), Job(1, ((2, 1),), 0, 10.0, 1.0, 1)]
        assert optimum(limits, jobs, {}, 5) == pytest.approx(4.0)
        assert optimum(limits, jobs, {}, 5, "runs") == pytest.approx(3.0)

    def test_slots_and_their_ends_are_counted_from_0_and_from_1(self) -> None:
        """Either alone is a slot off, one way and the other; both together hide each other."""
        jobs = [Job(0, ((0, 1),), 0, 5.0)]
        assert optimum(LIMITS, jobs, LINK, 3) == pytest.approx(1.0)
        assert optimum(LIMITS, jobs, LINK, 3, "slots") == pytest.approx(2.0)
        assert optimum(LIMITS, jobs, LINK, 3, "end") == pytest.approx(0.0)
        assert optimum(LIMITS, jobs, LINK, 3, "slots end") == pytest.approx(1.0)

    def test_update_in_slots_is_added_to_seconds(self) -> None:
        limits = dataclasses.replace(LIMITS, inc=(0, 0), slot_s=0.5)
        jobs = [Job(0, ((0, 1),), 0, 5.0, 1.5)]
        assert optimum(limits, jobs, LINK, 3) == pytest.approx(2.0)
        assert optimum(limits, jobs, LINK, 3, "update") == pytest.approx(3.5)

    def test_nothing_waits_for_an_arrival(self) -> None:
        jobs = [Job(0, ((0, 1),), 0, 5.0, 0.0, 2)]
        assert optimum(LIMITS, jobs, LINK, 3) == pytest.approx(3.0)
        assert optimum(LIMITS, jobs, LINK, 3, "arrival") == pytest.approx(1.0)

    def test_servers_have_no_interface(self) -> None:
        limits = dataclasses.replace(LIMITS, host_gbps=2.5)
        jobs = [Job(0, ((0, 1),), 0, 5.0)]
        assert optimum(limits, jobs, LINK, 3) == pytest.approx(2.0)
        assert optimum(limits, jobs, LINK, 3, "server") == pytest.approx(1.0)

    def test_the_list_is_whole(self) -> None:
        """A correction that no test above takes away would be untested."""
        tested = {
            "local",
            "increase",
            "initial",
            "one-rate",
            "runs",
            "slots",
            "end",
            "update",
            "arrival",
            "server",
        }
        assert tested == ALL


def test_the_printed_model_has_a_solution() -> None:
    limits, jobs, ports = tiny(0)
    solution = literal.solve(prepare(limits, jobs, ports), 4, LIMIT_S, frozenset())
    assert solution.answer.status == "optimal"
    assert solution.schedule is None  # none that the checker would take


def test_an_unknown_correction_is_named() -> None:
    with pytest.raises(RequestError, match="'ends'"):
        literal.solve(prepare(LIMITS, [Job(0, ((0, 1),), 0, 5.0)], {}), 3, 10.0, {"ends"})


class TestLinearised:
    """Appendix A: the result for fixed arguments."""

    @pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
    def test_flags(self, a: int, b: int) -> None:
        program = LinearProgram()
        z = both(program, ZERO + a, ZERO + b)
        assert _value(program, z) == a * b

    @pytest.mark.parametrize(("a", "b"), [(0, -7.5), (1, -7.5), (1, 3.0), (0, 3.0)])
    def test_flag_and_number(self, a: int, b: float) -> None:
        program = LinearProgram()
        assert _value(program, product(program, ZERO + a, ZERO + b, 10.0)) == pytest.approx(a * b)

    @pytest.mark.parametrize(("a", "b"), [(2.0, 5.0), (5.0, -2.0), (3.0, 3.0)])
    def test_extremes(self, a: float, b: float) -> None:
        program = LinearProgram()
        assert _value(program, maximum(program, ZERO + a, ZERO + b, 20.0)) == pytest.approx(max(a, b))
        program = LinearProgram()
        assert _value(program, minimum(program, ZERO + a, ZERO + b, 20.0)) == pytest.approx(min(a, b))

    def test_the_printed_minimum_takes_only_equals(self) -> None:
        for a, b, solved in ((3.0, 3.0, True), (2.0, 5.0, False)):
            program = LinearProgram()
            minimum(program, ZERO + a, ZERO + b, 20.0, printed=True)
            assert (program.solve(LIMIT_S).status == "optimal") is solved


def _value(program: LinearProgram, z: Linear) -> float:
    answer = program.solve(LIMIT_S)
    assert answer.values is not None
    return z.value(answer.values)
