"""The spans in which circuits were lit and dark, and which jobs used them then."""

from __future__ import annotations

import random
from typing import Any

import pytest

from testbed.ocs.circuits import circuit
from testbed.ocs.using import used
from testbed.topology.units import unit_named
from testbed.webpage import spans as made
from testbed.webpage.spans import (
    NOT_OVER,
    OF_A_PIECE,
    CircuitSpan,
    JobSpan,
    LitChange,
    circuit_spans,
    lit_before,
)

UNITS = ("u1", "u2", "u3", "u4")
A, B, C = ("u1o1", "u2o1"), ("u2o2", "u3o1"), ("u1o2", "u4o1")


def changed(number: int, at: float, removed: set = frozenset(), added: set = frozenset()) -> LitChange:  # type: ignore[type-arg]
    return LitChange(number, at, at + 0.5, frozenset(removed), frozenset(added))


def test_changes_are_undone_from_what_is_lit_now() -> None:
    changes = [changed(1, 10, {A}, {B}), changed(2, 20, set(), {C})]
    assert lit_before(frozenset({B, C}), changes) == {A}


def test_a_circuit_is_dark_before_it_is_lit_and_gone_afterwards() -> None:
    changes = (changed(1, 10, {A}, {B}), changed(2, 20, {B}, {A}))
    spans = circuit_spans(frozenset({A}), changes, (), UNITS, 0.0)
    name_a, name_b = "-".join(A), "-".join(B)
    assert set(spans) == {
        CircuitSpan(name_a, 0, 10),
        CircuitSpan(name_b, 10, 10.5, is_dark=True),
        CircuitSpan(name_b, 10.5, 20),
        CircuitSpan(name_a, 20, 20.5, is_dark=True),
        CircuitSpan(name_a, 20.5, NOT_OVER),
    }


def test_a_job_uses_circuits_while_it_runs_through_other_units_too() -> None:
    job = JobSpan(3, "job 3", 5.0, 15.0, (("u1", "u3"),))
    spans = circuit_spans(frozenset({A, B, C}), (), (job,), UNITS, 0.0)
    assert {(span.name, span.began, span.ended) for span in spans if span.jobs} == {
        ("-".join(A), 5, 15),
        ("-".join(B), 5, 15),
    }
    assert {span.began for span in spans if span.name == "-".join(C)} == {0.0}, "in one piece"


def test_a_job_whose_units_no_circuit_joins_directly_goes_over_the_core() -> None:
    job = JobSpan(3, "job 3", 5.0, 15.0, (("u1", "u3"),))
    spans = circuit_spans(frozenset({A, B, C}), (), (job,), UNITS, 0.0, has_core=True)
    assert {span.jobs for span in spans} == {()}


def test_at_every_moment_they_are_what_status_would_have_said() -> None:
    """Drawn at random, beside the same asked moment by moment."""
    draw = random.Random(17)
    pairs = [A, B, C, ("u3o2", "u4o2")]
    for has_core, apart in [(False, 1), (True, 1), (False, OF_A_PIECE // 2), (True, OF_A_PIECE)] * 10:
        lit, changes, at = frozenset(draw.sample(pairs, 2)), [], 0.0
        first = lit
        for number in range(1, 6):
            at += draw.choice([draw.uniform(1, 9), draw.uniform(0, 0.5), 0.0])
            removed = frozenset(draw.sample(sorted(lit), draw.randint(0, len(lit))))
            added = frozenset(draw.sample(pairs, draw.randint(0, 3))) - lit
            lit = (lit - removed) | added
            changes.append(changed(apart * number, at, set(removed), set(added)))
        jobs = tuple(
            JobSpan(number, "", began, began + draw.uniform(1, 20), (tuple(draw.sample(UNITS, 2)),))  # type: ignore[arg-type]
            for number in (1, 2)
            for began in [draw.uniform(-5, at)]
        )
        spans = circuit_spans(first, tuple(changes), jobs, UNITS, 0.0, has_core)
        for moment in [draw.uniform(0, at + 10) for _ in range(20)]:
            seen = {span.name: span for span in spans if span.began <= moment < span.ended}
            now, dark = first, set()
            for change in changes:
                if change.at <= moment:
                    now = (now - change.removed) | change.added
                    dark = {each for each in dark if each in now}
                    dark |= change.added if moment < change.lit_at else set()
            assert seen.keys() == {"-".join(each) for each in now}
            running = {
                job.number: [tuple(unit_named(unit) for unit in pair) for pair in job.pairs]
                for job in jobs
                if job.began <= moment < job.ended
            }
            users = used(
                [circuit(*each) for each in now - dark],
                [unit_named(unit) for unit in UNITS],
                running,  # type: ignore[arg-type]
                has_core,
            )
            for each in now:
                expected = tuple(number for number in sorted(users) if circuit(*each) in users[number])
                assert seen["-".join(each)].jobs == expected
                assert seen["-".join(each)].is_dark == (each in dark)


def test_a_change_costs_what_is_new_and_not_what_was_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = 0

    def counted(*arguments: Any, **named: Any) -> CircuitSpan:
        nonlocal fresh
        fresh += 1
        return CircuitSpan(*arguments, **named)

    monkeypatch.setattr(made, "CircuitSpan", counted)
    jobs = (JobSpan(3, "job 3", 1_005.0, NOT_OVER, (("u1", "u3"),)),)
    first, changes = frozenset({A, B}), []
    for number in range(1, 2_006):  # C comes and goes
        changes.append(changed(number, 10.0 * number, *(({C}, set()) if number % 2 else (set(), {C}))))
    circuit_spans(first | {C}, tuple(changes[:2_000]), jobs, UNITS, 0.0)
    for lost, ended in ((0, NOT_OVER), (2, NOT_OVER), (3, 20_015.0)):  # and a job that is over meanwhile
        fresh, kept = 0, tuple(changes[lost : 2_001 + lost])
        (job,) = jobs
        over = JobSpan(job.number, job.name, job.began, ended, job.pairs)
        circuit_spans(first | ({C} - kept[0].added), kept, (over,), UNITS, changes[lost].at if lost else 0.0)
        assert 0 < fresh <= 2 * 3 * (2 * OF_A_PIECE + 2), "of the first piece and the last"
