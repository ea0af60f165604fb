"""Fields that cannot be, given to all who take a schedule, a decision or an instance: one line each, and
never anything else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from testbed.errors import RequestError, TestbedError
from testbed.scheduling import form
from testbed.scheduling.constraints import check_decision
from testbed.scheduling.model import Decision, Job, Limits, Progress, Schedule, State
from testbed.systems.p4inc.checker import BrokenSchedule, check
from testbed.systems.p4inc.milp import solve
from testbed.systems.p4inc.policies import catalogue
from testbed.systems.p4inc.simulator.fluid import simulate

LIMITS = replace(
    Limits.uniform(3, 2, 1, 40.0, 240.0, host_gbps=20.0, ps_gbps=60.0, reconfiguration_s=0.1),
    unit_port_gbps=(40.0, 40.0, 40.0),
)
JOBS = (Job(1, ((0, 2),), 1, 18.0, 0.25), Job(2, ((1, 2),), 0, 20.0, 9.0))
DECISION = Decision({1: 20.0, 2: 20.0}, {2: 1}, {(0, 1): 1})
GOOD = Schedule(LIMITS, JOBS, (DECISION,), {(1, 2): 1})

WHOLE_BAD = (
    math.nan,
    math.inf,
    -math.inf,
    0.5,
    1.5,
    1.0,
    True,
    -1,
    10**400,
    2**64,
    "1",
    None,
    (),
    [1],
    1j,
    b"1",
)
REAL_BAD = (math.nan, -math.inf, -0.5, -1, True, 1e300, 10**400, "1.0", None, (), [1.0], 1j)
MAPPING_BAD = (None, 1, "x", [(1, 2)], math.nan)
INFINITE = ("switch_gbps", "host_gbps", "ps_gbps")


class Says:
    """A policy whose decision is given."""

    name = "says"

    def __init__(self, decision: Any) -> None:
        self._decision = decision

    def decide(self, state: State) -> Any:
        return self._decision


def simulated(schedule: Schedule) -> None:
    simulate(schedule.limits, schedule.jobs, Says(schedule.decisions[0]), schedule.ports)


def decided(schedule: Schedule) -> None:
    progress = tuple(Progress(job, job.gigabits) for job in schedule.jobs)
    check_decision(State(schedule.limits, 0, progress, schedule.ports), schedule.decisions[0], "says")


def checked(schedule: Schedule) -> None:
    check(schedule)


TAKERS: tuple[Callable[[Schedule], None], ...] = (simulated, decided, checked)


def bad_numbers(whole: bool, infinite: bool = False) -> tuple[Any, ...]:
    return WHOLE_BAD if whole else (*REAL_BAD, *(() if infinite else (math.inf,)))


def one_wrong() -> Iterator[tuple[str, Schedule]]:
    """Every field of a schedule that is right, with each value that it cannot have."""
    for field in fields(Limits):
        old = getattr(LIMITS, field.name)
        for value in MAPPING_BAD if isinstance(old, tuple) else ():
            yield (
                f"limits.{field.name} {value!r}",
                replace(GOOD, limits=replace(LIMITS, **{field.name: value})),
            )
        if isinstance(old, bool):
            for value in (0, 1, 0.0, None, "no", math.nan):
                yield (
                    f"limits.{field.name} {value!r}",
                    replace(GOOD, limits=replace(LIMITS, **{field.name: value})),
                )
            continue
        for value in bad_numbers(field.name in ("ports", "inc"), field.name in INFINITE):
            new = (*old[:1], value, *old[2:]) if isinstance(old, tuple) else value
            yield f"limits.{field.name} {value!r}", replace(GOOD, limits=replace(LIMITS, **{field.name: new}))
        if isinstance(old, tuple):
            yield (
                f"limits.{field.name} shorter",
                replace(GOOD, limits=replace(LIMITS, **{field.name: old[:2]})),
            )
    for field in fields(Job):
        if field.name == "workers":
            continue
        for value in bad_numbers(field.name in ("id", "ps", "arrival"), field.name in INFINITE):
            if field.name != "id" or value != -1:
                jobs = (replace(JOBS[0], **{field.name: value}), JOBS[1])
                yield f"job.{field.name} {value!r}", replace(GOOD, jobs=jobs)
    for value in WHOLE_BAD:
        for workers in (((value, 2),), ((0, value),)):
            yield f"workers {workers!r}", replace(GOOD, jobs=(replace(JOBS[0], workers=workers), JOBS[1]))
    for whole in ((), None, 3, "ab", ((0,),), ((0, 1, 1),), ((0, 1), (0, 1)), ((1, 1), (0, 1)), ((0, 0),)):
        jobs = (replace(JOBS[0], workers=whole), JOBS[1])  # type: ignore[arg-type]
        yield f"workers {whole!r}", replace(GOOD, jobs=jobs)
    yield "an id twice", replace(GOOD, jobs=(JOBS[0], JOBS[0]))
    for value in (*REAL_BAD, math.inf, 0, 0.0):
        yield f"rate {value!r}", replace(GOOD, decisions=(replace(DECISION, rates={1: value, 2: 20.0}),))
    for value in WHOLE_BAD:
        yield f"inc {value!r}", replace(GOOD, decisions=(replace(DECISION, inc={2: value}),))
        yield f"circuits {value!r}", replace(GOOD, decisions=(replace(DECISION, ports={(0, 1): value}),))
        yield (
            f"idle circuits {value!r}",
            replace(GOOD, decisions=(replace(DECISION, ports={(0, 1): 1, (1, 2): value}),)),
        )
        yield f"initial circuits {value!r}", replace(GOOD, ports={(1, 2): value})
        if not isinstance(value, list) and value not in (1, -1):
            yield (
                f"rate of job {value!r}",
                replace(GOOD, decisions=(replace(DECISION, rates={**DECISION.rates, value: 1.0}),)),
            )
        if not isinstance(value, list) and value != 1:
            for pair in ((0, value), (value, 1), value):
                yield (
                    f"pair {pair!r}",
                    replace(GOOD, decisions=(replace(DECISION, ports={(0, 1): 1, pair: 1}),)),
                )
    for value in MAPPING_BAD:
        for name in ("rates", "inc", "ports"):
            yield f"decision.{name} {value!r}", replace(GOOD, decisions=(replace(DECISION, **{name: value}),))
        yield f"a decision {value!r}", replace(GOOD, decisions=(value,))  # type: ignore[arg-type]
        yield f"ports {value!r}", replace(GOOD, ports=value)  # type: ignore[arg-type]


WRONG = tuple(one_wrong())


def test_the_schedule_is_right_before_anything_is_changed() -> None:
    for taker in TAKERS:
        taker(GOOD)
    assert len(WRONG) > 400


@pytest.mark.parametrize("taker", TAKERS)
def test_a_field_that_cannot_be_is_refused_in_one_line(taker: Callable[[Schedule], None]) -> None:
    let_pass, crashed, unclear = [], [], []
    for name, schedule in WRONG:
        try:
            taker(schedule)
        except TestbedError as error:
            line = str(error)
            if "\n" in line or len(line) > 900 or not ("accepted" in line or "form" in line):
                unclear.append(f"{name}: {line}")
        except Exception as error:
            crashed.append(f"{name}: {type(error).__name__}: {error}")
        else:
            let_pass.append(name)
    assert (let_pass, crashed, unclear) == ([], [], [])


def test_the_milp_refuses_an_instance_that_cannot_be() -> None:
    for _, schedule in WRONG:
        if schedule.decisions is GOOD.decisions:
            with pytest.raises(RequestError, match=r"^to be scheduled: "):
                solve(schedule.limits, schedule.jobs, ports=schedule.ports, time_limit_s=1.0)


HOSTILE: tuple[Any, ...] = (
    *WHOLE_BAD,
    *REAL_BAD,
    *MAPPING_BAD,
    0,
    1,
    2,
    3,
    0.0,
    1e-320,
    1e-9,
    1e14,
    40.0,
    {},
    (0, 1),
)


def mutated(draw: random.Random) -> Schedule:
    """One to four fields, anywhere, with anything."""
    limits, jobs, decision, lit = LIMITS, list(JOBS), DECISION, dict(GOOD.ports)
    for _ in range(draw.randint(1, 4)):
        value, where = draw.choice(HOSTILE), draw.randrange(6)
        if where == 0:
            name = draw.choice(fields(Limits)).name
            old = getattr(limits, name)
            if isinstance(old, tuple) and old and draw.random() < 0.8:
                at = draw.randrange(len(old))
                value = (*old[:at], value, *old[at + 1 :])
            limits = replace(limits, **{name: value})
        elif where == 1:
            name = draw.choice(fields(Job)).name
            if name == "workers" and draw.random() < 0.8:
                value = ((draw.choice((0, 1, value)), draw.choice((1, 2, value))),)
            at = draw.randrange(2)
            jobs[at] = replace(jobs[at], **{name: value})
        elif where == 2:
            decision = (
                replace(decision, rates={1: 20.0, 2: value})
                if draw.random() < 0.8
                else replace(decision, rates=value)
            )
        elif where == 3:
            decision = replace(decision, inc={draw.choice((1, 2, 7)): value})
        else:
            pair = (draw.choice((0, 1)), draw.choice((1, 2))) if draw.random() < 0.7 else (0, 0.5)
            circuits: dict[Any, Any] = {(0, 1): 1, pair: value}
            decision, lit = (replace(decision, ports=circuits), lit) if where == 4 else (decision, circuits)
    return Schedule(limits, tuple(jobs), (decision,), lit)


def test_nothing_that_is_given_makes_anyone_crash() -> None:
    draw, outcomes, lines = random.Random(11), [0, 0], 0
    for number in range(4000):
        schedule = mutated(draw)
        if schedule.limits.slot_s == 1e-9:  # legal, and thousands of millions of slots to simulate
            continue
        for taker in TAKERS:
            try:
                taker(schedule)
                outcomes[0] += 1
            except TestbedError as error:
                outcomes[1] += 1
                lines = max(lines, str(error).count("\n") + 1)
            except Exception as error:
                raise AssertionError(f"draw {number}, {taker.__name__}: {schedule}") from error
    assert min(outcomes) > 50, outcomes
    assert lines == 1


def test_who_looks_at_circuits_finds_the_same() -> None:
    """The simulator and the checker refuse the same fields: what one lets pass cannot hide from the other."""
    for _, schedule in WRONG:
        with pytest.raises(BrokenSchedule) as caught:
            check(schedule)
        assert {violation.equation for violation in caught.value.violations} == {"form"}


def test_numpys_numbers_are_numbers() -> None:
    whole = np.int64(1)
    decision = Decision({1: np.float64(20.0), 2: np.float32(20.0)}, {2: whole}, {(0, 1): whole})
    schedule = replace(GOOD, decisions=(decision,))
    for taker in TAKERS:
        taker(schedule)


def test_a_policys_good_decisions_pass() -> None:
    for name in catalogue.NAMES:
        if "norecon" not in name:
            assert simulate(LIMITS, JOBS, catalogue.make(name), {}).finish_s


def test_a_fault_says_the_field_its_value_and_what_is_accepted() -> None:
    (fault,) = form.of_ports(LIMITS, {(0, 1): 0.5})
    assert str(fault) == "circuits between units 0 and 1: 0.5; a whole number from 0 to 1000000 is accepted"
    assert form.shown("x" * 100) == "'" + "x" * 36 + "..."
    assert form.shown(10**400) == "a whole number of 1329 bits"
