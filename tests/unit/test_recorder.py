"""The recorder, around commands that end in each way: what is in the record then, and that it costs its
command nothing.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.client.caller import Caller
from testbed.errors import RequestError, TestbedError
from testbed.messages.coding import decode
from testbed.messages.events import BatchQueued, Event, JobBegun, JobNote, OutputLine
from testbed.messages.script import DoneStep, ScriptResult
from testbed.records import Record, Store, recorder
from testbed.records.facts import RecordedFault, RecordedNetwork, RecordedTestbed
from testbed.records.logs import LAST_BYTES, MOST_BYTES
from testbed.records.outcome import outcomes
from testbed.records.record import Run
from testbed.records.recorder import Asked, RecordFiles, none_below, recording
from testbed.records.set_up import heeded, options_of, seeds_of
from testbed.records.steps import steps_within
from testbed.records.store import FOLDER
from tests.limits import CALL_S
from tests.unit import recorded, results

ME = Caller.of_this_process()
ROOT = Path(__file__).resolve().parents[2]
ASKED = Asked("run", ["--place", "u1:2", "x.py"], {"place": "u1:2", "records": None})
BEGUN = JobBegun(3, ("u1h1", "u1h2"), None, "parameter server", "/nowhere")
QUEUED = BatchQueued((1, 2), "inc-fcfs", 1.0, "2 jobs")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def only(store: Store) -> Record:
    (made,) = store.records()
    return made


def test_a_command_that_ends_well(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    with recording(ASKED, store, ME) as record, record.run() as run:
        during = only(store)
        assert (during.state, during.ended, len(during.runs)) == ("running", None, 1)
        run.take(recorded.run_result(series=base64.b64encode(b"samples").decode()))
    made = only(store)
    assert (made.state, made.exit_code, made.failure, made.notes) == ("done", 0, None, ())
    assert made.words == ("run", "--place", "u1:2", "x.py")
    assert made.set_up.options == {"place": "u1:2"}
    assert made.runs[0].verdict == "verdict: trustworthy"
    expected = recorded.result(telemetry={**results.TELEMETRY, "file": "result.telemetry.npz"})
    text = (made.runs[0].folder / "result.json").read_text()
    assert text == json.dumps(expected, indent=1) + "\n", "what was answered, byte for byte"
    assert made.runs[0].telemetry
    assert made.runs[0].telemetry.read_bytes() == b"samples"
    assert capsys.readouterr().err == f"testbed run: recorded as {made.name}\n"
    assert oct(store.folder.stat().st_mode & 0o777) == "0o700"


def test_a_job_that_fails(store: Store) -> None:
    failed = recorded.result(failure="worker 0 exited with code 2", bound=None)

    def command() -> None:
        with recording(ASKED, store, ME) as record:
            with record.run() as run:
                run.take(recorded.outcome(failed))
            raise TestbedError("job 3 failed: worker 0 exited with code 2")

    with pytest.raises(TestbedError):
        command()
    made = only(store)
    assert (made.state, made.exit_code) == ("failed", 1)
    assert made.failure == "job 3 failed: worker 0 exited with code 2"
    assert made.runs[0].failure == "worker 0 exited with code 2"
    assert made.runs[0].result == failed


def test_a_testbed_that_goes_away_leaves_no_result(store: Store) -> None:
    def command() -> None:
        with recording(ASKED, store, ME) as record, record.run() as run:
            run.hear(BEGUN)
            raise TestbedError("the testbed went away")

    with pytest.raises(TestbedError):
        command()
    made = only(store)
    assert (made.state, made.failure, made.runs[0].result) == ("failed", "the testbed went away", None)
    assert made.runs[0].ended is not None


@pytest.mark.parametrize("says_so", [True, False])
def test_a_command_that_is_interrupted(store: Store, says_so: bool) -> None:
    def command() -> None:
        with recording(ASKED, store, ME) as record, record.run() as run:
            if not says_so:
                raise KeyboardInterrupt
            run.take(recorded.run_result(failure="SIGINT to testbed run"), interrupted=True)

    if says_so:
        command()
    else:
        with pytest.raises(KeyboardInterrupt):
            command()
    made = only(store)
    assert (made.state, made.exit_code) == ("interrupted", 130)
    assert made.failure == ("SIGINT to testbed run" if says_so else "interrupted")


def test_a_defect_is_named(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), recording(ASKED, store, ME) as record, record.run():
        _ = 1 // 0
    assert only(store).failure == "ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize(
    "events",
    [[], [BEGUN], [BEGUN, JobNote("laid out anew")]],
    ids=["at once", "with hosts", "with hosts and a note"],
)
def test_a_request_that_is_refused_leaves_nothing(
    events: list[Event], store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        with recording(ASKED, store, ME) as record, record.run() as run:
            for event in events:
                run.hear(event)
            raise RequestError("--place u9: no such unit")

    with pytest.raises(RequestError):
        command()
    assert store.names() == []
    assert list(store.folder.iterdir()) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("event", [OutputLine("hello", "u1h1"), QUEUED], ids=str)
def test_what_ran_before_a_request_was_refused_is_kept(event: Event, store: Store) -> None:
    def command() -> None:
        with recording(ASKED, store, ME) as record, record.run() as run:
            run.hear(event)
            raise RequestError("log worker-0.log: user alice cannot write it: Permission denied")

    with pytest.raises(RequestError):
        command()
    assert only(store).exit_code == 2


def test_a_request_that_is_refused_after_a_run_leaves_what_ran(store: Store) -> None:
    def command() -> None:
        with recording(ASKED, store, ME) as record:
            with record.run() as run:
                run.take(recorded.run_result())
            with record.run():
                raise RequestError("--place u1: 2 of its hosts are busy")

    with pytest.raises(RequestError):
        command()
    made = only(store)
    assert (made.state, made.exit_code, len(made.runs)) == ("failed", 2, 2)


def test_each_repeat_is_a_run(store: Store) -> None:
    with recording(ASKED, store, ME) as record:
        for round_ms in (10.0, 11.0, 12.0):
            with record.run() as run:
                run.take(recorded.run_result(round_ms))
    made = only(store)
    assert [run.number for run in made.runs] == [1, 2, 3]
    assert [recorded.bound_of(result).measured_ms for result in outcomes(made)] == [10.0, 11.0, 12.0]


def test_without_a_store_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with recording(ASKED, None, ME) as record:
        with record.run() as run:
            run.hear(BEGUN)
            run.take(recorded.run_result())
            assert run.left_to_testbed(["a"], with_logs=True) is None
        assert record.folder is None
    assert capsys.readouterr().err == ""


def test_kill_9_of_the_command_is_told_later(store: Store) -> None:
    program = (
        "import os, sys; from pathlib import Path; from testbed.records import Store\n"
        "from testbed.client.caller import Caller; from testbed.records.recorder import Asked, recording\n"
        "store, me = Store(Path(sys.argv[1])), Caller.of_this_process()\n"
        "with recording(Asked('run', [], {}), store, me) as record, record.run():\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    argv = [sys.executable, "-c", program, str(store.folder)]
    assert subprocess.run(argv, cwd=ROOT, timeout=CALL_S, check=False).returncode == -9
    assert only(store).state == "killed"


# ---------------------------------------------------------------- inputs, logs, steps


def test_inputs_are_kept_unless_they_are_long_or_do_not_read(store: Store, tmp_path: Path) -> None:
    script, long, pipe = tmp_path / "x.py", tmp_path / "long.py", tmp_path / "pipe"
    script.write_text("print(1)\n")
    long.write_bytes(bytes((1 << 20) + 1))
    os.mkfifo(pipe)
    inputs = [("script", script), ("jobs", long), ("steps", pipe), ("system", tmp_path / "gone.py")]
    with recording(Asked("run", [], {}, inputs), store, ME):
        pass
    kept, too_long, piped, gone = only(store).set_up.inputs
    assert kept.copy == "inputs/x.py"
    assert (only(store).folder / kept.copy).read_text() == "print(1)\n"
    assert kept.sha256 == hashlib.sha256(b"print(1)\n").hexdigest()
    assert (too_long.copy, too_long.bytes) == (None, (1 << 20) + 1)
    assert too_long.sha256 is not None
    assert (piped.sha256, gone.sha256) == (None, None)


def test_logs_are_copied_those_of_the_run_alone_and_long_ones_in_part(store: Store, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "old.log").write_text("of another run\n")
    os.utime(logs / "old.log", (1.0, 1.0))
    with recording(ASKED, store, ME) as record, record.run() as run:
        run.hear(replace(BEGUN, logs=str(logs)))
        (logs / "worker-0.log").write_text("word\n")
        with (logs / "worker-1.log").open("wb") as long:
            long.truncate(MOST_BYTES + LAST_BYTES)
            long.seek(0, os.SEEK_END)
            long.write(b"the end")
        run.take(recorded.run_result())
    first, second = only(store).runs[0].logs
    assert (first.name, first.read_text(), second.name) == ("worker-0.log", "word\n", "worker-1.log")
    content = second.read_bytes()
    assert content.endswith(b"the end")
    assert b"... 7 bytes are left out here ..." in content


def test_logs_of_a_queue_have_a_folder_each(store: Store, tmp_path: Path) -> None:
    jobs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        workers = [results.worker(0, "u1h1", log=str(tmp_path / name / "worker-0.log"))]
        jobs.append(results.queued(name=name, run=results.result(workers=workers)))
    with recording(Asked("submit", [], {}), store, ME) as record, record.run() as run:
        for name in ("a", "b"):
            (tmp_path / name / "worker-0.log").write_text(name)
        cancelled = results.queued(name="c", failure="x", cancelled=True, run=None)
        run.take(results.read_submission(*jobs, cancelled))
    kept = {
        str(log.relative_to(only(store).runs[0].folder)): log.read_text() for log in only(store).runs[0].logs
    }
    assert kept == {"logs/a/worker-0.log": "a", "logs/b/worker-0.log": "b"}


def test_a_detached_queue_is_left_to_the_testbed(store: Store) -> None:
    with recording(Asked("submit", [], {}), store, ME) as record, record.run() as run:
        asked = run.left_to_testbed(["a"], with_logs=True)
        run.hear(QUEUED)
    folder = store.folder / store.names()[0] / "runs" / "1"
    assert asked == RecordFiles(folder / "result.json", folder / "logs")
    assert (folder / "logs" / "a").is_dir()
    assert json.loads((folder.parents[1] / "record.json").read_text())["state"] == "queued"


def test_steps_of_scripts_are_those_within_the_run() -> None:
    run = Run(1, 100.0, ended=110.0)
    steps = [results.step(f"link set u1h1 --rate {at:g}", at) for at in (1.0, 6.0, 20.0)]
    scripts = [
        decode(ScriptResult, results.script(*steps, file=file, began=began), file)
        for file, began in (("s.yaml", 96.0), ("t.yaml", 99.5))
    ]
    within = steps_within(run, scripts)
    assert [(step.script, step.run_s) for step in within] == [
        ("t.yaml", 0.5),
        ("s.yaml", 2.0),
        ("t.yaml", 5.5),
    ]


def test_a_script_is_in_the_record_of_the_job_that_ran_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [RecordedTestbed("one", 7, "default")]
    monkeypatch.setattr(recorder.set_up, "testbed_facts", lambda runtime: facts[-1])
    monkeypatch.setattr(recorder.set_up, "network_of", lambda runtime: RecordedNetwork())
    monkeypatch.setattr(recorder.set_up, "configuration_of", lambda runtime: None)
    monkeypatch.setattr(recorder.set_up, "seeds_of", lambda *_: {})
    somewhere: Any = object()
    with recording(Asked("run", [], {}, (), somewhere), store, ME) as record, record.run() as run:
        with recording(Asked("script", [], {}, (), somewhere), store, ME) as other, other.run() as steps:
            step = decode(DoneStep, results.step("fault clear", 0.0), "step")
            steps.take(ScriptResult("s.yaml", "one", steps.run.began, (step,)))
            steps.keep()
        facts.append(RecordedTestbed("one", 8, "default"))  # another testbed's
        with recording(Asked("script", [], {}, (), somewhere), store, ME) as other, other.run() as steps:
            steps.take(ScriptResult("t.yaml", "one", steps.run.began, (step,)))
        run.take(recorded.run_result())
    (made,) = [each for each in store.records() if each.command == "run"]
    assert [(each.script, each.command) for each in made.runs[0].steps] == [("s.yaml", "fault clear")]


def test_commands_below_leave_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("/somewhere", None):
        monkeypatch.delenv(FOLDER, raising=False)
        if before:
            monkeypatch.setenv(FOLDER, before)
        with none_below():
            assert os.environ[FOLDER] == "off"
        assert os.environ.get(FOLDER) == before


# ---------------------------------------------------------------- full disks


def full_from(which: Callable[[Path], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no room for the files that `which` says."""
    own = recorder._write

    def replace(path: Path, content: bytes) -> None:
        if which(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        own(path, content)

    monkeypatch.setattr(recorder, "_write", replace)


def test_a_disk_that_is_full_from_the_begin(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full_from(lambda path: path.name == "record.json", monkeypatch)
    with recording(ASKED, store, ME) as record, record.run() as run:
        run.take(recorded.run_result())
    assert list(store.folder.iterdir()) == []
    said = capsys.readouterr().err
    assert said.startswith("testbed run: not recorded: ")
    assert said.endswith("record.json: No space left on device\n")
    assert said.count("\n") == 1


def test_a_disk_that_has_no_room_for_results(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full_from(lambda path: path.name.startswith("result"), monkeypatch)
    with recording(ASKED, store, ME) as record, record.run() as run:
        run.take(recorded.run_result(series=base64.b64encode(b"samples").decode()))
    made = only(store)
    assert made.state == "done"
    assert made.runs[0].trustworthy
    assert made.notes == (
        "lacks its result: No space left on device",
        "lacks its samples: No space left on device",
    )
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"testbed run: record {made.folder}: lacks its result: No space left on device",
        f"testbed run: recorded as {made.name}",
    ]


def test_what_runs_left_makes_room_for_how_it_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(ASKED, store, ME) as record:
        with record.run() as run:
            run.take(recorded.run_result(series=base64.b64encode(b"samples").decode()))
        telemetry = run.run.folder / "result.telemetry.npz"
        assert telemetry.exists()
        full_from(lambda path: telemetry.exists(), monkeypatch)
    made = only(store)
    assert (made.state, made.notes) == ("done", ("lacks samples and logs: No space left on device",))
    assert made.runs[0].result is not None


def test_a_folder_that_cannot_be_made_costs_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with recording(ASKED, Store(tmp_path / "file" / "runs"), ME) as record, record.run() as run:
        run.take(recorded.run_result())
    assert capsys.readouterr().err == f"testbed run: not recorded: {tmp_path}/file/runs: Not a directory\n"


def test_old_records_go_and_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tight = Store(tmp_path / "runs", limit_bytes=0)
    names = []
    for _ in range(2):
        with recording(ASKED, tight, ME) as record:
            assert record.folder is not None
            names.append(record.folder.name)
    assert tight.names() == names[1:]
    assert (
        "testbed run: removed the 1 oldest record: 0 GB and 1000 records are kept at most"
        in capsys.readouterr().err
    )


# ---------------------------------------------------------------- set-ups


def test_options_are_what_was_given() -> None:
    asked = {
        "place": "u1:2",
        "ps": None,
        "preload": False,
        "json": Path("a"),
        "python": Path("/p"),
        "arguments": [],
    }
    assert options_of(asked) == {"place": "u1:2", "python": "/p"}


def test_seeds_are_found_wherever_they_are_given() -> None:
    options = {
        "stragglers": "p=0.1,seed=7",
        "arguments": ["--epochs", "4", "--seed", "5"],
        "seed": 3,
        "submission": {"seed": 2, "jobs": [{"name": "a", "arguments": ["--seed=9"]}, {"name": "b"}]},
    }
    faults = [RecordedFault("u1h1", "up", seed=11)]
    assert seeds_of(options, 1, faults) == {
        "ocs": 1,
        "submission": 2,
        "options": 3,
        "stragglers": 7,
        "arguments": 5,
        "arguments.a": 9,
        "faults.u1h1.up": 11,
    }
    assert seeds_of({"arguments": ["--seeds", "4", "--reseed", "1"]}, None) == {}


def test_variables_that_libraries_heed() -> None:
    environ = {
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "HOME": "/",
        "AWS_SECRET": "x",
        "TORCH_LOGS": "+dynamo",
    }
    assert heeded(environ) == {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "TORCH_LOGS": "+dynamo"}


def test_a_record_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that stops leaves the record of before, or that of now, and no part of either."""
    path, steps = tmp_path / "record.json", list[tuple[str, bytes]]()
    recorder._write(path, b"before")
    fsync, replace = os.fsync, Path.replace

    def synced(fd: int) -> None:
        opened = Path(f"/proc/self/fd/{fd}")
        if opened.is_dir():
            assert opened.resolve() == tmp_path
            steps.append(("fsync of the folder", path.read_bytes()))
        else:
            steps.append(("fsync", opened.read_bytes()))
            assert path.read_bytes() == b"before", "it is written elsewhere"
        fsync(fd)

    def renamed(draft: Path, target: Path) -> Path:
        steps.append(("rename", draft.read_bytes()))
        assert path.read_bytes() == b"before"
        return replace(draft, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    with path.open("rb") as opened:
        recorder._write(path, b"now")
        assert opened.read() == b"before", "whoever reads it meanwhile reads a whole one"
    assert steps == [("fsync", b"now"), ("rename", b"now"), ("fsync of the folder", b"now")]
    assert path.read_bytes() == b"now"
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]
