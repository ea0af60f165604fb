"""The checker of schedules: one by hand that is right, and each constraint broken in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from testbed.scheduling import form
from testbed.scheduling.model import Decision, Job, Limits, Pair, Schedule
from testbed.systems.p4inc.checker import BrokenSchedule, Checked, Violation, check

# Two ports a unit, a place for INC in each; slots of 1 s; a reconfiguration takes 0.1 s. B_PDP is what unit 1
# takes in slot 0.
LIMITS = Limits.uniform(3, 2, 1, 40.0, 120.0, host_gbps=20.0, ps_gbps=60.0, reconfiguration_s=0.1)
# 1 sends by two streams of 20 Gb/s from unit 0 to 1 over a circuit set up for it: 18 Gb, then 20. 2 is summed
# in unit 1's switch. 3 has workers in units 0 and 2, its PS in 1: its circuit from 2 is set up for it, so
# both workers lose 0.1 s in slot 1.
JOBS = (
    Job(1, ((0, 2),), 1, 38.0, 0.25),
    Job(2, ((1, 2),), 0, 20.0, 9.0),
    Job(3, ((0, 1), (2, 1)), 1, 36.0, 0.5, arrival=1),
)
DECISIONS = (
    Decision({1: 20.0, 2: 20.0}, {2: 1}, {(0, 1): 1}),
    Decision({1: 20.0}, {}, {(0, 1): 1}),
    Decision({3: 20.0}, {}, {(0, 1): 1, (1, 2): 1}),
    Decision({3: 18.0}, {}, {(0, 1): 1, (1, 2): 1}),
)
GOOD = Schedule(LIMITS, JOBS, DECISIONS)


def broken(schedule: Schedule) -> tuple[Violation, ...]:
    with pytest.raises(BrokenSchedule) as caught:
        check(schedule)
    assert str(caught.value).startswith(f"check the schedule: {len(caught.value.violations)} violations: ")
    return caught.value.violations


def decided(slot: int, **fields: Mapping[int, float] | Mapping[Pair, float]) -> Schedule:
    decisions = list(DECISIONS)
    decisions[slot] = replace(decisions[slot], **fields)  # type: ignore[arg-type]
    return replace(GOOD, decisions=tuple(decisions))


def with_job(number: int, **fields: object) -> Schedule:
    jobs = list(JOBS)
    jobs[number - 1] = replace(jobs[number - 1], **fields)  # type: ignore[arg-type]
    return replace(GOOD, jobs=tuple(jobs))


def with_fabric(**fields: object) -> Schedule:
    return replace(GOOD, limits=replace(LIMITS, **fields))  # type: ignore[arg-type]


def test_the_schedule_by_hand_comes_to_its_numbers() -> None:
    # 1 ends with slot 1 and an update of 0.25 s; 2 with slot 0, the switch updating at once; 3 with slot 3
    # and 0.5 s
    assert check(GOOD) == Checked({1: 2.25, 2: 1.0, 3: 4.5}, 4.5, 2, 2)


def test_circuits_lit_before_are_not_set_up_again() -> None:
    report = check(replace(GOOD, ports={(0, 1): 1}))
    assert (report.reconfigured_connections, report.reconfigurations) == (1, 1)


def test_the_ct_bti_begins_with_the_first_job_that_runs() -> None:
    later = replace(GOOD, decisions=(Decision(), *DECISIONS))
    assert check(later).ct_bti_s == pytest.approx(4.5)


def test_an_empty_schedule_has_nothing_to_break() -> None:
    assert check(Schedule(LIMITS, (), ())) == Checked({}, 0.0, 0, 0)


# name -> the schedule with one thing wrong; the equation, job, unit, pair and slot to be named; both sides,
# where they are plain
MUTATIONS: dict[str, tuple[Callable[[], Schedule], Violation]] = {
    "INC where it has no workers": (
        lambda: decided(0, inc={2: 2}),
        Violation("2", "its workers in its unit of INC", 0, 1, slot=0, job=2, unit=2),
    ),
    "INC of a job in two units": (
        lambda: replace(
            GOOD,
            decisions=(*DECISIONS[:2], replace(DECISIONS[2], inc={3: 0}), replace(DECISIONS[3], inc={3: 0})),
        ),
        Violation("2", "units of a job with INC", 2, 1, slot=2, job=3, unit=0),
    ),
    "INC that begins later": (
        lambda: decided(3, inc={3: 2}),
        Violation("2", "its unit of INC changes, -1 being none", 2, -1, slot=3, job=3),
    ),
    "INC jobs above the switch's capacity": (
        lambda: with_fabric(inc=(1, 0, 1)),
        Violation("3", "jobs with INC", 1, 0, slot=0, unit=1),
    ),
    "the switch's bandwidth, PS included": (
        lambda: with_fabric(switch_gbps=(120.0, 79.0, 120.0)),
        Violation("5", "Gb/s of the switch", 80.0, 79.0, slot=0, unit=1),
    ),
    "more traffic than circuits": (
        lambda: decided(1, ports={}),
        Violation("6", "Gb/s between two units", 40.0, 0.0, slot=1, link=(0, 1)),
    ),
    "more circuits than ports": (
        lambda: decided(3, ports={(0, 1): 2, (1, 2): 1}),
        Violation("6", "optical ports in use", 3, 2, slot=3, unit=1),
    ),
    "circuits before the first slot": (
        lambda: replace(GOOD, ports={(0, 2): 3}),
        Violation("6", "optical ports in use", 3, 2, unit=0),
    ),
    "a circuit written twice": (
        lambda: decided(2, ports={(0, 1): 1, (1, 2): 1, (2, 1): 1}),
        Violation(
            "form", "circuits between units", "(2, 1)", "two of units 0 to 2, the smaller first,", slot=2
        ),
    ),
    "a circuit from a unit to itself": (
        lambda: decided(2, ports={(0, 1): 1, (1, 2): 1, (0, 0): 1}),
        Violation(
            "form", "circuits between units", "(0, 0)", "two of units 0 to 2, the smaller first,", slot=2
        ),
    ),
    "less than no circuits": (
        lambda: decided(0, ports={(0, 1): 1, (0, 2): -1}),
        Violation("form", "circuits between units 0 and 2", "-1", str(form.COUNT), slot=0, link=(0, 2)),
    ),
    "half a circuit": (
        lambda: decided(0, ports={(0, 1): 1, (0, 2): 0.5}),
        Violation("form", "circuits between units 0 and 2", "0.5", str(form.COUNT), slot=0, link=(0, 2)),
    ),
    "volume left": (
        lambda: with_job(3, gigabits=37.0),
        Violation("10", "Gb left at the end", 1.0, 0, slot=4, job=3),
    ),
    "a job that never runs": (
        lambda: replace(GOOD, jobs=(*JOBS, Job(4, ((0, 1),), 1, 1.0))),
        Violation("10", "Gb left at the end", 1.0, 0, slot=4, job=4),
    ),
    "the time of a reconfiguration": (
        lambda: with_fabric(reconfiguration_s=0.2),
        Violation("10", "Gb left at the end", 2.0, 0, slot=4, job=3),
    ),
    "a pause": (
        lambda: replace(GOOD, decisions=(DECISIONS[0], Decision(), DECISIONS[1], *DECISIONS[2:])),
        Violation("11", "Gb left when it stops", 20.0, 0, slot=1, job=1),
    ),
    "a slot after the last": (
        lambda: decided(1, rates={1: 20.0, 2: 1.0}, inc={2: 1}),
        Violation("11", "it runs after its last slot", 1, 0, slot=1, job=2),
    ),
    "a rate of nothing": (
        lambda: decided(1, rates={1: 20.0, 3: 0.0}),
        Violation("form", "job 3: rate", "0.0", str(form.RATE), slot=1, job=3),
    ),
    "INC without a rate": (
        lambda: decided(1, inc={2: 1}),
        Violation("11", "INC for a job without a rate", 1, 0, slot=1, job=2),
    ),
    "a job that is not there yet": (
        lambda: with_job(3, arrival=3),
        Violation("arrival", "a slot in which it runs", 2, 3, slot=2, job=3),
    ),
    "a worker's interface": (
        lambda: with_fabric(host_gbps=19.0),
        Violation("server", "Gb/s of a worker", 20.0, 19.0, slot=0, job=1),
    ),
    "the slowest link of its workers": (
        lambda: with_job(1, host_gbps=19.0),
        Violation("server", "Gb/s of a worker", 20.0, 19.0, slot=0, job=1),
    ),
    "its server's link": (
        lambda: with_job(1, ps_gbps=39.0),
        Violation("server", "Gb/s into a PS", 40.0, 39.0, slot=0, job=1),
    ),
    "a PS's interface": (
        lambda: with_fabric(ps_gbps=39.0),
        Violation("server", "Gb/s into a PS", 40.0, 39.0, slot=0, job=1),
    ),
    "a rate for nobody": (
        lambda: decided(0, rates={1: 20.0, 2: 20.0, 7: 1.0}),
        Violation("form", "a rate for a job that is not given", 1.0, 0, slot=0, job=7),
    ),
    "an id twice": (
        lambda: replace(GOOD, jobs=(*JOBS, JOBS[0])),
        Violation("form", "job 1: id", "of two jobs", "one of its own", job=1),
    ),
    "a unit that is not there": (
        lambda: with_job(1, ps=3),
        Violation("form", "job 1: ps", "3", "a whole number from 0 to 2", job=1),
    ),
    "no volume": (
        lambda: with_job(1, gigabits=0.0),
        Violation("form", "job 1: gigabits", "0.0", str(form.POSITIVE), job=1),
    ),
    "a unit without workers in the list": (
        lambda: with_job(3, workers=((0, 1), (2, 0))),
        Violation("form", "job 3: workers in unit 2", "0", str(form.WORKERS), job=3),
    ),
    "workers in no order": (
        lambda: with_job(3, workers=((2, 1), (0, 1))),
        Violation("form", "job 3: units of workers", "2, 0", "each once, ascending,", job=3),
    ),
}


def same(side: float | str, expected: float | str) -> bool:
    if isinstance(side, str) or isinstance(expected, str):
        return side == expected
    return math.isclose(side, expected, abs_tol=1e-9)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_constraint_is_named(name: str) -> None:
    schedule, expected = MUTATIONS[name][0](), MUTATIONS[name][1]
    violations = broken(schedule)
    nearest = [
        v
        for v in violations
        if (v.equation, v.what, v.slot) == (expected.equation, expected.what, expected.slot)
    ]
    assert nearest, violations
    assert any(
        (v.job, v.unit, v.link) == (expected.job, expected.unit, expected.link)
        and same(v.left, expected.left)
        and same(v.right, expected.right)
        for v in nearest
    ), nearest


def test_a_violation_says_where_and_both_sides() -> None:
    text = str(Violation("6", "Gb/s between two units", 50.0, 40.0, slot=3, link=(0, 1)))
    assert text == "equation 6 (units 0-1, slot 3): Gb/s between two units: 50 against 40"


def test_all_violations_are_listed_and_the_line_stays_short() -> None:
    schedule = replace(
        GOOD,
        decisions=tuple(replace(decision, ports={}) for decision in DECISIONS),
        limits=replace(LIMITS, inc=(0, 0, 0)),
    )
    with pytest.raises(BrokenSchedule) as caught:
        check(schedule)
    # unit pairs of slots 0 and 1, both pairs of slots 2 and 3, INC; nothing was set up, so the volumes are
    # sent
    assert [v.equation for v in caught.value.violations] == ["3", "6", "6", "6", "6", "6", "6"]
    assert str(caught.value).endswith("; and 2 more")
    assert "\n" not in str(caught.value)


def test_partial_inc_sends_one_stream_from_its_unit() -> None:
    limits = replace(LIMITS, partial_inc=True, port_gbps=20.0, inc=(1, 0, 0))
    job = Job(1, ((0, 3), (1, 1)), 1, 10.0, 0.5)
    decision = Decision({1: 20.0}, {1: 0}, {(0, 1): 1})
    # one stream of 20 Gb/s to the PS beside the local worker's; the PS updates, since the switch has a part
    # only
    assert check(Schedule(limits, (job,), (decision,), {(0, 1): 1})).finish_s == {1: 1.5}
    without = Schedule(limits, (job,), (replace(decision, inc={}),), {(0, 1): 1})
    assert {(v.equation, v.left, v.right) for v in broken(without)} >= {
        ("6", 60.0, 20.0),
        ("server", 80.0, 60.0),
    }


def test_capacities_have_a_tolerance_and_volumes_none() -> None:
    over = with_fabric(switch_gbps=(120.0, 80.0 * (1 - 5e-7), 120.0))
    check(over)
    with pytest.raises(BrokenSchedule):
        check(over, tolerance=1e-7)
    assert [v.equation for v in broken(with_job(3, gigabits=36.0 * (1 + 2e-9)))] == ["10"]
    check(with_job(3, gigabits=36.0 * (1 + 5e-10)))


def test_thousands_of_jobs_are_checked() -> None:
    limits = Limits.uniform(64, 24, 4, 40.0)
    # slot by slot 32 pairs of units, each with a job of 4 workers at 10 Gb/s over a circuit
    jobs = tuple(Job(n, ((n % 32, 4),), 32 + n % 32, 40.0 / 4, 0.1, n // 32) for n in range(6400))
    lit = {(unit, 32 + unit): 1 for unit in range(32)}
    decisions = tuple(
        Decision({n: 10.0 for n in range(s * 32, s * 32 + 32)}, {}, dict(lit)) for s in range(200)
    )
    report = check(Schedule(limits, jobs, decisions, lit))
    assert report.ct_bti_s == pytest.approx(200.1)


def test_it_calls_no_method_of_the_models_data(monkeypatch: pytest.MonkeyPatch) -> None:
    uneven = replace(GOOD, limits=replace(LIMITS, unit_port_gbps=(40.0, 40.0, 40.0)))
    calls = (GOOD, uneven, replace(GOOD, limits=replace(LIMITS, ps_gbps=1e9, host_gbps=1e9)))
    before = [check(schedule) for schedule in calls]

    def planted(*_: object, **__: object) -> float:
        raise AssertionError("a method of the model was called")

    for kind in (Limits, Job, Decision, Schedule):
        for name, of in vars(kind).items():
            if not name.startswith("_") and (callable(of) or isinstance(of, property)):
                monkeypatch.setattr(kind, name, property(planted) if isinstance(of, property) else planted)
    assert [check(schedule) for schedule in calls] == before


def test_a_circuit_carries_what_its_slower_end_does(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits((1, 1), (0, 0), (1e3, 1e3), 10.0, unit_port_gbps=(100.0, 10.0))
    wrong = Schedule(limits, (Job(0, ((0, 1),), 1, 97.5),), (Decision({0: 97.5}, {}, {(0, 1): 1}),))
    monkeypatch.setattr(Limits, "circuit_gbps", lambda self, between: 1e6)
    violation = next(each for each in broken(wrong) if each.equation == "6")
    assert (violation.left, violation.right) == (97.5, 10.0)
