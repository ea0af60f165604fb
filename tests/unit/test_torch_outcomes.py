"""The outcomes that the comparison of torch's own tests reads in its jobs' output (tests/torch)."""

from __future__ import annotations

import json

import pytest

from tests.torch.__main__ import WORKERS
from tests.torch.outcomes import Outcome, counted, judged, outcomes_of
from tests.torch.worker import BEGUN, MARK

PASSED, SKIPPED, FAILED = Outcome("passed"), Outcome("skipped", "no GPU"), Outcome("failed", "boom")


def line(test: str, outcome: str, why: str = "") -> str:
    return f"[rank 0] {MARK}{json.dumps({'test': test, 'outcome': outcome, 'why': why})}"


def said(test: str, *outcomes: Outcome) -> list[str]:
    """Return what the job printed: all workers begin, and so many end."""
    ends = [line(test, each.what, each.why) for each in outcomes]
    return [line(test, BEGUN)] * WORKERS + ends


def of(*lines: list[str]) -> dict[str, Outcome]:
    return outcomes_of("\n".join(text for each in lines for text in each), ["a", "b", "c"], WORKERS)


def test_tests_that_all_workers_end_and_one_that_the_job_did_not_come_to() -> None:
    outcomes = of(said("a", *[PASSED] * WORKERS), said("b", *[SKIPPED] * WORKERS))
    assert outcomes == {"a": PASSED, "b": SKIPPED}


def test_a_worker_that_fails_is_a_failure_whatever_the_others_say() -> None:
    assert of(said("a", PASSED, PASSED, PASSED, FAILED)) == {"a": FAILED}


def test_a_test_that_a_worker_does_not_end_hung_where_its_time_ran_out() -> None:
    begun = said("a", *[PASSED] * (WORKERS - 1))
    assert of(begun)["a"].what == "failed"
    assert of([*begun, "Timeout (0:01:00)!"])["a"].what == "hung"


def test_a_job_goes_on_after_what_failed_on_all_workers() -> None:
    outcomes = of(said("a", *[FAILED] * WORKERS), said("b", *[PASSED] * WORKERS))
    assert outcomes == {"a": FAILED, "b": PASSED}


def test_what_did_not_end_after_a_failure_is_asked_again() -> None:
    assert of(said("a", *[FAILED] * WORKERS), said("b", PASSED)) == {"a": FAILED}


def test_a_job_has_as_many_workers_as_its_tests() -> None:
    ends = [line("a", BEGUN)] * 2 + [line("a", "passed")] * 2
    assert outcomes_of("\n".join(ends), ["a"], 2) == {"a": PASSED}


@pytest.mark.parametrize("ours", [SKIPPED, FAILED, Outcome("hung")])
def test_what_passes_by_gloo_alone_is_said(ours: Outcome) -> None:
    (said,) = judged({"a": ours}, {"a": PASSED}, {})
    assert said.startswith(f"a: {ours.what} on inc, and passes on gloo")
    assert judged({"a": ours}, {"a": PASSED}, {"a": "for a reason"}) == []


def test_an_exception_that_passes_is_said() -> None:
    exceptions = {"a": "for a reason"}
    assert judged({"a": PASSED}, {"a": PASSED}, exceptions) == [
        "a: passes on inc: tests/torch/exceptions.py need not have it"
    ]
    assert judged({"a": PASSED, "b": FAILED}, {"a": FAILED, "b": FAILED}, exceptions) == []


def test_outcomes_are_counted() -> None:
    assert counted({"a": PASSED, "b": FAILED, "c": PASSED}) == "2 passed, 0 skipped, 1 failed, 0 hung, of 3"
