"""`testbed submit` as far as it goes without a running testbed: what is wrong is one line that names where it
was said.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import submit
from testbed.api import submitting
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import HostError, RequestError
from testbed.queue.submission import parse
from tests.unit import results

JOB = {"name": "a", "script": __file__, "iterations": 1, "megabytes": 1.0, "workers": 2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slot", "0"], "--slot: 0.0; a number from 0.1 to 3600 is accepted"),
        (["--seed", "-1"], "--seed: -1; a whole number from 0 to 4294967295 is accepted"),
        (["--policy", ""], "--policy: ; a text is accepted"),
    ],
)
def test_an_option_that_is_wrong_is_not_said_of_the_file(
    tmp_path: Path, options: list[str], said: str
) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(yaml.safe_dump({"jobs": [JOB]}))
    with pytest.raises(RequestError) as error:
        submit.main([*options, str(jobs)])
    assert str(error.value) == said


def test_a_file_that_is_wrong_or_not_there_is_named(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    with pytest.raises(RequestError, match=f"read {jobs}: No such file or directory"):
        submit.main([str(jobs)])
    jobs.write_text(yaml.safe_dump({"jobs": [{**JOB, "workers": 0}]}))
    with pytest.raises(RequestError, match=rf"{jobs}: jobs\[0\].workers: 0; a whole number"):
        submit.main(["--slot", "0.5", str(jobs)])


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"result": "."}, "--json .*: user .* cannot write it"),
        ({"result": "none/x.json"}, "--json .*: user .* cannot write it"),
        ({"logs": "taken"}, "--logs .*: user .* cannot make a there: File exists"),
    ],
)
def test_files_are_checked_before_jobs_are_queued(tmp_path: Path, where: dict[str, str], said: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "a").touch()
    paths: dict[str, Any] = {"result": None, "logs": None} | {
        key: tmp_path / name for key, name in where.items()
    }
    with pytest.raises(RequestError, match=said):
        submitting.check_files(Caller.of(os.geteuid()), parse({"jobs": [JOB]}), **paths)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_result_that_was_not_written_is_not_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], interrupted: bool
) -> None:
    jobs, lost = tmp_path / "jobs.yaml", "result x.json: No space left on device"
    jobs.write_text(yaml.safe_dump({"jobs": [JOB]}))
    monkeypatch.setattr(Runtime, "require_alive", lambda _: None)
    monkeypatch.setattr(submitting, "submit", lambda *_: results.read_submission(lost=lost))

    class Follower(submit._Follower):
        def __init__(self, runtime: Runtime, caller: Caller) -> None:
            super().__init__(runtime, caller)
            self.interrupted = interrupted

    monkeypatch.setattr(submit, "_Follower", Follower)
    if interrupted:
        assert submit.main(["--name", "mine", str(jobs)]) == 130
        assert capsys.readouterr().err.endswith(f"testbed submit: {lost}\n")
    else:
        with pytest.raises(HostError, match=lost):
            submit.main(["--name", "mine", str(jobs)])


def test_the_columns_of_the_summary_are_as_wide_as_what_is_in_them() -> None:
    jobs = [results.queued(name=f"job-{mode}", mode=mode, run=None) for mode in ("ps", "chain.py:Chain")]
    head, *rows, _ = submit._summary(results.read_submission(*jobs)).splitlines()
    assert {len(row) for row in rows} == {len(head)}


def summary_of(jobs: list[dict[str, Any]], **more: object) -> list[str]:
    times = dict.fromkeys(("waiting_s", "training_s", "jct_s"))
    rows = [results.queued(**{"mode": None, "run": None, **times, **job}) for job in jobs]
    return submit._summary(results.read_submission(*rows, policy="inc-tw", **more)).splitlines()


def test_who_was_cancelled_has_not_failed() -> None:
    failed, cancelled = (
        {"name": "a", "failure": "no host"},
        {"name": "b", "failure": "asked", "cancelled": True},
    )
    _, first, second, *_ = summary_of([failed, cancelled])
    assert first.endswith("   failed")
    assert second.endswith("   cancelled")


def test_the_summary_says_whose_numbers_can_be_trusted() -> None:
    def judged(name: str, trustworthy: bool | None, line: str = "") -> dict[str, Any]:
        verdict = {**results.TRUSTED, "trustworthy": trustworthy, "line": f"verdict: {line}"}
        return {"name": name, "run": results.result(verdict=verdict)}

    lines = summary_of([judged("a", True), judged("b", False, "not trustworthy: late"), judged("c", None)])
    assert lines[-2:] == ["verdicts: 1 of 2 jobs are trustworthy", "  b: not trustworthy: late"]
    assert "verdicts" not in "".join(summary_of([judged("c", None)]))


def test_the_summary_says_how_often_a_policy_had_no_valid_decision() -> None:
    *_, line = summary_of([], policy_failures=7, last_failure="slot 9: no rate")
    assert line == "inc-tw: 7 times without a valid decision, the last one: slot 9: no rate"
