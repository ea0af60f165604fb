"""The class `testbed.Testbed` as far as it goes without a testbed: what importing loads, what is refused,
and what answers become.
"""

from __future__ import annotations

import base64
import errno
import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import testbed
from testbed import Testbed, run
from testbed.api import handle, up
from testbed.api.batch import BatchResult
from testbed.api.result import JobError, JobResult
from testbed.api.running import RunOptions
from testbed.api.telemetry import JobSamples, LinkTable, Telemetry
from testbed.api.up import bring_up, file_with, run_command
from testbed.client import runtime
from testbed.client.main_facts import MainState
from testbed.errors import OwnerError, RequestError, TestbedError
from testbed.messages.coding import UNSET, decode
from testbed.messages.events import JobBegun
from testbed.messages.result import RunResult
from testbed.messages.submission import SubmissionResult
from testbed.systems.job_options import JobOptions
from testbed.telemetry.summary import series
from testbed.telemetry.timelines import ASKED, RESUMED, WAITED, Collective, Round, Row, Timeline, rounds
from testbed.wire.recovery import Recovery
from tests.unit import page_world, results
from tests.unit.recordings import made

ROOT = Path(__file__).resolve().parents[2]
ABSENT = "never-started"
JOB = {"name": "a", "script": __file__, "iterations": 1, "megabytes": 1.0, "workers": 2}
HEAVY = ("torch", "mininet", "numpy", "yaml", "bcc", "os_ken", "psutil", "importlib.metadata")


def loaded(statement: str) -> set[str]:
    """Return the modules that a Python has after a statement, started as another program would start it."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return set(ended.stdout.split())


def test_importing_loads_and_starts_nothing() -> None:
    modules = loaded("import testbed")
    assert not modules & set(HEAVY)
    assert {name for name in modules if name.startswith("testbed")} == {"testbed"}


def test_the_class_brings_neither_torch_nor_mininet() -> None:
    modules = loaded("from testbed import Testbed, TestbedError")
    assert "testbed.api.handle" in modules
    assert not modules & {"torch", "mininet", "bcc", "os_ken", "matplotlib", "scipy"}


def test_the_names_of_the_package_are_there() -> None:
    assert {"Testbed", "TestbedError", "JobError", "JobResult"} <= set(dir(testbed))
    assert testbed.TestbedError is TestbedError
    assert issubclass(testbed.JobError, TestbedError)
    with pytest.raises(AttributeError, match="has no attribute 'Testbeds'"):
        _ = testbed.Testbeds


def test_a_class_that_was_not_brought_up() -> None:
    absent = Testbed(name=ABSENT)
    assert repr(absent) == f"<Testbed '{ABSENT}': not up>"
    absent.down()
    for ask in (
        lambda: absent.run(__file__),
        lambda: absent.submit({"jobs": [JOB]}),
        absent.status,
        absent.telemetry,
        absent.cancel,
        absent.circuits.now,
        absent.circuits.clear,
        absent.links.now,
        absent.faults.now,
        lambda: absent.capture("u1h1", "x.pcap"),
        lambda: absent.script([{"at": 0, "do": "link list"}]),
        lambda: Testbed.connect(ABSENT),
    ):
        with pytest.raises(TestbedError, match=f"testbed '{ABSENT}' is not running"):
            ask()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout_s": 0}, "timeout_s 0: more than 0 seconds"),
        ({"restarts": -1}, "restarts -1: 0 to 100 are accepted"),
        ({"age_out_ms": -1}, "age_out_ms: -1; "),
        ({"leave_after": 0}, "leave_after: 0; "),
        ({"lanes": 3}, "lanes: 3; "),
        ({"recovery": "luck"}, "recovery: luck; "),
        ({"stragglers": "often"}, "^stragglers"),
    ],
)
def test_options_are_named_as_the_call_has_them(options: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says) as error:
        Testbed(name=ABSENT).run("x.py", **options)
    assert "--" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        RunOptions("x.py", (), "inc"),
        RunOptions(
            "a.b",
            ("--epochs", "3"),
            "ring",
            place="u1:2,u2:2",
            preload=True,
            options=JobOptions(module=True),
        ),
        RunOptions(
            "x.py",
            ("1",),
            "trio",
            ps="u3",
            python=Path("/bin/python3"),
            logs=Path("logs"),
            timeout_s=2.5,
            options=JobOptions(
                restarts=3,
                lanes=64,
                recovery=Recovery.NONE,
                age_out_ms=5.0,
                window=7,
                leave_after=9,
                strict_finite=True,
                init_group=True,
                folder_per_worker=True,
                stragglers="p=0.1",
            ),
        ),
    ],
)
def test_the_words_of_a_job_ask_for_the_same(options: RunOptions) -> None:
    parsed = run.parser().parse_args(options.words())
    assert run._options(parsed, with_series=False) == options
    given = {name: value for name, value in vars(parsed).items() if name in options.described()}
    assert given == options.described()


def test_a_bad_name_is_refused_at_once() -> None:
    with pytest.raises(RequestError, match="a name is 1 to 31 lower-case letters"):
        Testbed(name="Not_A_Name")


def test_without_a_name_the_only_one_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "running", lambda root: ["a", "b"])
    with pytest.raises(RequestError, match="several testbeds run: a, b; name one of them"):
        Testbed.connect()
    monkeypatch.setattr(runtime, "running", lambda root: ["a"])
    monkeypatch.setattr(runtime.Runtime, "require_alive", lambda _: None)
    assert Testbed.connect().name == "a"


def test_another_users_testbed_is_an_owner_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(_: object) -> None:
        raise OwnerError("testbed 'a' belongs to another user: use sudo")

    monkeypatch.setattr(runtime.Runtime, "require_alive", hidden)
    with pytest.raises(OwnerError, match="belongs to another user"):
        Testbed(name="a").run(__file__)


# ------------------------------------------------------------------ bringing up


def test_what_a_command_refuses_is_its_error() -> None:
    with pytest.raises(RequestError, match=r"^configuration nonesuch: no such file"):
        bring_up("nonesuch", ABSENT)
    with pytest.raises(RequestError, match=r"^configuration: units\[0\].hosts: x; a whole number"):
        bring_up({"units": [{"hosts": "x"}]}, ABSENT)
    with pytest.raises(TestbedError, match=f"^testbed '{ABSENT}' is not running"):
        run_command("down", "--name", ABSENT)


def test_what_was_done_by_an_interrupt_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(process: subprocess.Popen[str], *_: object) -> tuple[str, str]:
        monkeypatch.undo()
        process.wait(60)  # it has done its work
        raise KeyboardInterrupt

    undone: list[bool] = []
    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_command("systems", "--help", undo=lambda: undone.append(True))
    assert undone == [True]


def test_content_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="it cannot be written as YAML"):
        bring_up({"units": object()}, ABSENT)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x.yaml")

    monkeypatch.setattr(Path, "write_text", full)
    with (
        pytest.raises(TestbedError, match=r"write /tmp/x\.yaml: No space left on device"),
        file_with([], "x"),
    ):
        pass


def test_a_command_that_dies_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up.environment, "interpreter", lambda: Path("/bin/false"))
    with pytest.raises(TestbedError, match="it ended with 1"):
        run_command("status")


@pytest.mark.parametrize(("pid", "ends"), [(7, ["one"]), (8, [])])
def test_a_block_ends_what_it_brought_up_and_nothing_else(
    pid: int, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pid`: whose testbed has the name by the end of the block."""
    ended: list[str] = []
    monkeypatch.setattr(handle, "bring_up", lambda *_: 7)
    monkeypatch.setattr(handle, "end", lambda runtime, _: ended.append(runtime.name))
    monkeypatch.setattr(runtime.Runtime, "alive", lambda _: True)
    state = MainState("one", pid, "alice", "rack", "ready")
    monkeypatch.setattr(runtime.Runtime, "read_main", lambda _: state)
    testbed_ = Testbed(name="one")
    with pytest.raises(ZeroDivisionError), testbed_:
        _ = 1 // 0
    assert ended == ends
    with Testbed.connect("one"):
        pass
    assert ended == ends, "who connects leaves it"
    Testbed.connect("one").down()
    assert ended == [*ends, "one"]
    assert repr(testbed_.up().up()) == "<Testbed 'one': pid 7>"


# ------------------------------------------------------------------ answers


LINK = results.link("u1h1", 5, 7, 1)
BOUND = {
    "bound_ms": 10.0,
    "measured_ms": 11.0,
    "rounds": 2,
    "left_out": 1,
    "link": "u1h1 up",
    "link_ms": 9.0,
    "computing_ms": 1.0,
    "starved_ms": 0.0,
    "shared": False,
    "coarse": False,
    "lit_share": 1.0,
    "ratio": 1.1,
    "how": "measured",
}
VERDICT = {
    "trustworthy": True,
    "line": "verdict: trustworthy",
    "reasons": [],
    "notes": [{"name": "steal", "text": "some"}],
}


def answer(**other: Any) -> dict[str, Any]:
    samples = series(made([0.5] * 20, [0.5] * 20), [Round(1.0, 40.0), Round(1.5, 60.0)])
    return results.result(
        **{
            "wall_s": 4.0,
            "workers": [results.worker(0, "u1h2"), results.worker(1, "u2h1")],
            "links": [LINK, {**LINK, "name": "u1h2", "rate_mbps": None}],
            "bound": BOUND,
            "verdict": VERDICT,
            "series": base64.b64encode(samples).decode(),
            **other,
        }
    )


def read_answer(**other: Any) -> RunResult:
    return decode(RunResult, answer(**other), "result")


def test_a_result_is_typed() -> None:
    printed = [
        ("u2h1", '{"test_accuracy": 0.1}'),
        ("u1h2", "epoch 1"),
        ("u1h2", '{"test_accuracy": 0.5, "loss": 2}'),
        ("u1h2", "{no JSON"),
        ("u1h2", "{}"),
        ("u1h2", '{"test_accuracy": 0.75}'),
    ]
    result = JobResult.of(read_answer(), printed)
    assert (result.id, result.hosts, result.wall_s) == (3, ("u1h2", "u2h1"), 4.0)
    assert result.verdict.trustworthy is True
    assert result.verdict.notes[0].name == "steal"
    assert result.bound is not None
    assert result.bound.ratio == pytest.approx(1.1)
    assert result.link_bytes == 24
    assert result.iteration_ms is not None
    assert result.iteration_ms.tolist() == [40.0, 60.0]
    assert result.accuracy == 0.75
    assert result.reported == {"test_accuracy": 0.75, "loss": 2}
    assert result.output[1] == ("u1h2", "epoch 1")
    without = {name: each for name, each in answer().items() if name != "series"}
    assert result.data == without
    assert list(result.data) == list(without)


def test_a_result_without_rounds_bound_or_reports() -> None:
    result = JobResult.of(replace(read_answer(bound=None, failure="worker 1 left"), series=UNSET))
    assert (result.bound, result.iteration_ms, result.accuracy) == (None, None, None)
    error = JobError(result)
    assert str(error) == "job 3 failed: worker 1 left"
    assert (error.result, error.exit_code) == (result, 1)


def test_a_job_that_failed_names_the_record_s_copy_of_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "jobs" / "3" / "worker-1.log"
    log.parent.mkdir(parents=True)

    def run(runtime: Any, options: Any, caller: Any, on_event: Callable[..., None]) -> RunResult:
        log.write_text("it fell over\n")  # within the run: a record has no copy of what was written before
        on_event(JobBegun(3, ("u1h1",), None, "parameter server", str(log.parent)))
        return read_answer(failure=f"worker 1 on u1h2 exited with code 1 (log: {log})")

    monkeypatch.setattr(handle, "check", lambda *_: None)
    monkeypatch.setattr(handle, "run", run)
    monkeypatch.setenv("OPTINC_RUNS", str(tmp_path / "runs"))
    for record in (True, False):
        with pytest.raises(JobError) as failed:
            Testbed(name=ABSENT).run(__file__, record=record)
        result = failed.value.result
        named = result.record / "runs" / "1" / "logs" / log.name if result.record else log
        failure = f"worker 1 on u1h2 exited with code 1 (log: {named})"
        assert (result.failure, str(failed.value)) == (failure, f"job 3 failed: {failure}")
        assert named.read_text() == "it fell over\n"
        assert (result.record is not None) == record


def test_telemetry_is_columns_of_one_length() -> None:
    links = [page_world.link("u1h1", 7, 5), {**page_world.link("u1h2"), "rate_mbps": None}]
    status = page_world.read(page_world.status(links=links, cores_busy=[0.5, 0.25]))
    telemetry = Telemetry.of(status)
    columns = telemetry.links.columns()
    assert list(columns) == ["link", "rate_mbps", "bytes_up", "bytes_down", "drops"]
    assert {len(column) for column in columns.values()} == {2}
    assert np.isnan(columns["rate_mbps"][1])
    assert telemetry.cores_busy_share.tolist() == [0.5, 0.25]
    assert LinkTable.of([]).bytes_up.size == 0


def test_samples_are_columns_with_units() -> None:
    recording = made([0.5] * 20, [0.5] * 20, softirq=0.25, drops=1)
    samples = JobSamples.of(series(recording))
    assert {len(column) for column in samples.machine.values()} == {20}
    assert samples.machine["busy_s_1"].sum() == pytest.approx(10 * 0.1)
    assert list(samples.link) == ["u1h1"]
    assert {len(column) for column in samples.link["u1h1"].values()} == {20}
    assert samples.rounds["took_ms"].size == 0


def test_rounds_are_means_over_the_workers() -> None:
    def timeline(late_ms: int) -> Timeline:
        rows, at_ms = [], 0
        for number, took_ms in enumerate((10, 20, 30 + late_ms)):
            for what, part_ms in ((ASKED, 1), (WAITED, 1), (RESUMED, took_ms - 2)):
                at_ms += part_ms
                rows.append(Row(what, number, at_ms * 1_000_000, 0, 0))
        return Timeline((Collective(400, True, 1),) * 3, tuple(rows))

    assert rounds([timeline(0), timeline(2)]) == [
        Round(pytest.approx(0.030), pytest.approx(20.0)),
        Round(pytest.approx(0.061), pytest.approx(31.0)),
    ]
    assert rounds([]) == []


def test_a_batch_is_typed() -> None:
    answered = results.submission(
        results.queued(1, jct_s=3.0), results.queued(2, run=None), reconfigurations=2
    )
    batch = BatchResult.of(decode(SubmissionResult, answered, "result"))
    assert batch.jobs[0].verdict is not None
    assert (batch.jobs[0].jct_s, batch.jobs[1].verdict, batch.reconfigurations) == (3.0, None, 2)
    assert batch.data == answered
    assert list(batch.data) == list(answered)


def test_job_options_are_an_object_or_keywords() -> None:
    testbed = Testbed(name=ABSENT)
    with pytest.raises(TypeError, match=r"^Testbed\.run\(\) got an unexpected keyword argument 'lanez'$"):
        testbed.run("x.py", lanez=64)
    with pytest.raises(RequestError, match=r"^options: .*; a JobOptions is accepted$"):
        testbed.run("x.py", options={"lanes": 64})  # type: ignore[arg-type]
    assert JobOptions(lanes=64).but({"window": 3}) == JobOptions(lanes=64, window=3)
    assert JobOptions(stragglers="p=0.16").as_json()["stragglers"] == "p=0.16", "as it was said"
    assert JobOptions(module=True, age_out_ms=5.0).words() == ["--age-out", "5", "-m"]
    assert "lanes" in inspect.signature(Testbed.run).parameters


@pytest.mark.parametrize(("own", "name"), [({}, ABSENT), ({"name": None}, ABSENT), ({"name": "lab"}, "lab")])
def test_a_mapping_without_a_name_has_the_testbeds(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, object], name: str
) -> None:
    contents: list[str] = []

    def command(*_: str, content: str, **__: object) -> str:
        contents.append(content)
        return '{"pid": 7}'

    monkeypatch.setattr("testbed.api.up.run_command", command)
    bring_up({"units": [{"kind": "gpu", "hosts": 2}], **own}, ABSENT)
    assert yaml.safe_load(contents[0])["name"] == name
