"""The exception of the worker that failed first, and the lines that were not shown: how they are said at the
end.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import run, submit
from testbed.api import submitting
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError
from testbed.messages.coding import as_json
from testbed.messages.events import JobBegun
from testbed.records import Store, logs
from testbed.records.recorder import Asked, recording
from tests.unit import recorded, results

ME = Caller.of_this_process()
OWN = """\
hello
Traceback (most recent call last):
  File "/x/train.py", line 7, in <module>
    main()
  File "/x/train.py", line 4, in main
    raise ValueError("the rate is negative: -3")
ValueError: the rate is negative: -3
"""
OF_TORCH = (
    "".join(f"[rank1]: {line}\n" for line in OWN.splitlines()[1:])
    + "[rank1]:[W1127 01:08:31.1 ProcessGroup.cpp:1] Warning: destroy_process_group was not called\n"
)
OF_CPP = """\
Traceback (most recent call last):
  File "/x/train.py", line 9, in <module>
    work.wait()
RuntimeError: no result in 10 s
behind: worker 1
Exception raised from wait at /x/backend.cpp:3 (most recent call first):
frame #0: c10::Error::Error()
"""
SYNTAX = '  File "/x/train.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        (OWN, "Traceback (most recent call last):", "ValueError: the rate is negative: -3"),
        (OF_TORCH, "Traceback (most recent call last):", "ValueError: the rate is negative: -3"),
        (OF_CPP, "Traceback (most recent call last):", "behind: worker 1"),
        (SYNTAX, '  File "/x/train.py", line 3', "SyntaxError: invalid syntax"),
        (
            OF_CPP + "\nDuring handling of it, another:\n\n" + OWN,
            "Traceback",
            "ValueError: the rate is negative: -3",
        ),
        (
            "    deep()\n" * 3 + OWN.replace("    main()\n", "    main()\n" * 30),
            "    main()",
            "ValueError: the rate is negative: -3",
        ),
    ],
    ids=["Python's", "torch's", "C++'s", "syntax", "the last of two", "long"],
)
def test_the_exception_is_the_last_line(text: str, begins: str, ends: str) -> None:
    lines = logs.last_exception(text)
    assert lines[0].startswith(begins)
    assert lines[-1] == ends
    assert len(lines) <= 12


@pytest.mark.parametrize("text", ["", "hello\nworld\n", "Traceback (most recent call last):"])
def test_without_an_exception_there_is_none_or_what_there_is(text: str) -> None:
    assert logs.last_exception(text) == text.splitlines()[:1] * text.startswith("Traceback")


def test_a_failure_names_the_record_s_copy_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of the running job goes with the testbed; the record stays."""
    log, store = tmp_path / "jobs" / "3" / "worker-1.log", Store(tmp_path / "runs")
    log.parent.mkdir(parents=True)
    failure = f"worker 1 on u1h2 exited with code 1 (log: {log})"

    def command() -> None:
        with run.exception_shown(ME), recording(Asked("run", ["x.py"], {}), store, ME) as record:
            with record.run() as recorder:
                recorder.hear(JobBegun(3, ("u1h2",), None, "parameter server", str(log.parent)))
                log.write_text(OWN)
                recorder.take(recorded.result(failure=failure))
            raise TestbedError(f"job 3 failed: {recorder.with_kept_log(failure)}")

    with pytest.raises(TestbedError) as error:
        command()
    (made,) = store.records()
    kept = made.folder / "runs" / "1" / "logs" / "worker-1.log"
    assert str(error.value) == f"job 3 failed: worker 1 on u1h2 exited with code 1 (log: {kept})"
    assert kept.read_text() == OWN
    assert made.failure == str(error.value)
    assert capsys.readouterr().err.endswith("  ValueError: the rate is negative: -3\n")


def test_without_a_record_the_log_is_the_job_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "worker-1.log"
    log.write_text(OWN)
    failure = f"worker 1 on u1h2 exited with code 1 (log: {log})"
    with recording(Asked("run", ["x.py"], {}), None, ME) as record, record.run() as recorder:
        recorder.hear(JobBegun(3, ("u1h2",), None, "parameter server", str(tmp_path)))
        assert recorder.with_kept_log(failure) == failure
    with pytest.raises(TestbedError), run.exception_shown(ME):
        raise TestbedError(f"job 3 failed: {failure}")
    assert capsys.readouterr().err.splitlines()[-1] == "  ValueError: the rate is negative: -3"


def test_what_was_not_shown_is_counted_and_said_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missed: list[dict[str, Any]] = [{"missed": {"lines": 7, "bytes": 700}}] * 30

    def call(path: Path, op: str, *, on_event: Any = None, **_: Any) -> dict[str, Any]:
        queued = {"queued": [1], "what": "1 job", "policy": "p", "slot_s": 1.0}
        begins = as_json(JobBegun(3, ("u1h1",), None, "parameter server", "/l"))
        for event in [begins if op == "run" else queued, *missed]:
            on_event(event, None)
        return results.result() if op == "run" else results.submission(lost=None)

    class Request:
        def request(self, caller: Caller) -> dict[str, Any]:
            return {}

    monkeypatch.setattr("testbed.client.rpc.call", call)
    asked: Any = Request()
    run.follow(Runtime("t", tmp_path), asked, ME, sys.stdout)
    runtime = Runtime("t", tmp_path)
    with submit._following(submit._Follower(runtime, ME), lambda event: None) as on_event:
        submitting.submit(runtime, asked, ME, on_event)
    ran, queued = (line for line in capsys.readouterr().err.splitlines() if "not shown" in line)
    assert ran.startswith("testbed run: job 3: 210 lines of output (21000 bytes) came faster than")
    assert queued == "testbed submit: 210 lines came faster than they were read and are not shown"
