"""Records as they are read: the format, what a killed command left, and the folder that they are in."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.records import Record, Run, Store, list_records
from testbed.records.facts import RecordedHost, RecordedTestbed
from testbed.records.record import CONFIGURATION, FILE, KILLED, QUEUED, RUNNING, RUNS
from testbed.records.store import FOLDER, LIMIT, OFF, data_home, size_bytes
from tests.unit import recorded, results

ME = Caller.of_this_process()

SET_UP = replace(recorded.SET_UP, host=replace(recorded.SET_UP.host, name=platform.node()))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def written(store: Store, **changes: Any) -> Record:
    """A record with one run that has no end yet, written as it is."""
    folder = store.new("run", changes.pop("at", 1_000_000.0))
    run = Run(1, 5.0, folder=folder / RUNS / "1")
    made = Record("run", ("run", "x.py"), "/", "alice", 4.0, SET_UP, runs=(run,), folder=folder)
    made = replace(made, **changes)
    (folder / RUNS / "1").mkdir(parents=True)
    (folder / FILE).write_text(json.dumps(made.to_json()))
    return made


def test_a_record_is_read_as_it_was_written(store: Store) -> None:
    made = written(store, state="done", ended=9.0, exit_code=0, notes=("lacks its logs: No space",))
    assert Record.read(made.folder) == made
    assert Record.read(made.folder).runs[0].folder == made.folder / RUNS / "1"


def test_what_a_run_left_is_there_or_none(store: Store) -> None:
    made = written(store, state="done", ended=9.0)
    (run,) = Record.read(made.folder).runs
    assert (run.result, run.telemetry, run.logs) == (None, None, ())
    (run.folder / "result.json").write_text("{")
    assert run.result is None
    (run.folder / "result.json").write_text('{"id": 3}')
    (run.folder / "result.telemetry.npz").touch()
    (run.folder / "logs").mkdir()
    (run.folder / "logs" / "worker-0.log").write_text("word\n")
    assert run.result == {"id": 3}
    assert run.telemetry == run.folder / "result.telemetry.npz"
    assert [log.name for log in run.logs] == ["worker-0.log"]
    assert made.configuration is None
    (made.folder / CONFIGURATION).write_text('{"name": "rack"}')
    assert made.configuration == {"name": "rack"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "record.json: No such file or directory"),
        ("{", "record.json is no record"),
        ("[]", "record.json is no record"),
        ('{"format": 1}', "record.json is no record: not as this version has it: .* field `command`"),
        ('{"format": 2}', "format 2; format 1 is accepted"),
    ],
)
def test_what_is_no_record_is_refused_in_a_line(store: Store, text: str | None, says: str) -> None:
    folder = store.new("run", 0.0)
    if text is not None:
        (folder / FILE).write_text(text)
    with pytest.raises(RequestError, match=says) as error:
        Record.read(folder)
    assert "\n" not in str(error.value)
    assert store.records() == []


def test_a_command_that_was_killed_is_told_by_its_lock(store: Store) -> None:
    made = written(store)
    fd = os.open(made.folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert Record.read(made.folder).state == RUNNING
    assert Record.read(made.folder).is_busy
    os.close(fd)
    killed = Record.read(made.folder)
    assert (killed.state, killed.ended, killed.failure) == (KILLED, None, "the command was killed")
    assert killed.runs[0].failure == "the command was killed"
    assert not killed.is_busy


def test_a_queue_ends_when_its_result_is_there(store: Store) -> None:
    made = written(store, state=QUEUED, command="submit", set_up=replace(SET_UP, testbed=None))
    assert Record.read(made.folder).state == KILLED, "no testbed is left to write it"
    job = results.queued()
    result = made.runs[0].folder / "result.json"
    result.write_text(json.dumps(results.submission(job)))
    done = Record.read(made.folder)
    assert (done.state, done.failure, done.ended) == ("done", None, result.stat().st_mtime)
    assert done.runs[0].verdict == "verdicts: 1 of 1 jobs are trustworthy"
    failed = {**job, "id": 5, "failure": "worker 0 exited with code 2"}
    result.write_text(json.dumps(results.submission(job, failed)))
    assert Record.read(made.folder).failure == (
        "1 of 2 jobs failed, the first of them job 5 (a): worker 0 exited with code 2"
    )
    result.write_text(json.dumps(results.submission(job, cancelled=1)))
    assert Record.read(made.folder).state == "interrupted"


# ---------------------------------------------------------------- the folder


def test_names_are_by_time_and_do_not_meet(store: Store) -> None:
    folders = [store.new("run", 1_000_000.0) for _ in range(11)]
    for folder in folders:
        (folder / FILE).touch()
    assert store.names() == [folder.name for folder in folders], "number 10 comes after number 9"
    assert folders[1].name == f"{folders[0].name}-2"


def test_a_record_is_found_by_its_name_a_part_of_it_and_its_path(store: Store) -> None:
    first, second = written(store), written(store, at=2_000_000.0)
    assert store.find(first.name).name == first.name
    assert store.find(second.name[3:15]).name == second.name
    assert store.find("last").name == store.find("last~0").name == second.name
    assert store.find("last~1").name == first.name
    assert store.find(str(first.folder)).name == first.name
    with pytest.raises(RequestError, match=r"record 'run': 2 have that in their name, .*-run, .*-run$"):
        store.find("run")
    with pytest.raises(RequestError, match=r"no record 'x' in .*; accepted are .*, last, last~1"):
        store.find("x")
    with pytest.raises(RequestError, match="no record 'last~2' in "):
        store.find("last~2")


def test_an_empty_folder_says_so(store: Store) -> None:
    assert store.records() == []
    for word in ("last", "x", ""):
        with pytest.raises(RequestError, match="there is none yet"):
            store.find(word)


def test_old_records_make_room_but_not_those_that_somebody_is_at(store: Store) -> None:
    made = [written(store, at=float(at), began=float(at), state="done") for at in range(4)]
    for each in made:
        (each.folder / "big").write_bytes(bytes(10_000))
    held = os.open(made[0].folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    tight = Store(store.folder, 25_000)
    removed = tight.make_room(made[1].folder)
    os.close(held)
    assert [each.name for each in removed] == [made[2].name, made[3].name]
    assert store.names() == [made[0].name, made[1].name]
    assert tight.make_room(made[1].folder) == []


def test_what_cannot_be_removed_takes_no_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of another format, one that is a link to elsewhere, and another user's."""
    made = [written(store, at=float(at), state="done") for at in range(4)]
    for each in made:
        (each.folder / "big").write_bytes(bytes(10_000))
    (made[0].folder / FILE).write_text('{"format": 99}')
    elsewhere = made[1].folder.rename(store.folder.parent / "elsewhere")
    made[1].folder.symlink_to(elsewhere)
    assert Store(store.folder, 25_000).make_room(made[3].folder) == []
    assert (elsewhere / FILE).exists()
    with pytest.raises(RequestError, match="is a link; remove what it leads to"):
        store.remove(Record.read(made[1].folder))
    monkeypatch.setattr(os, "geteuid", lambda: made[0].folder.stat().st_uid + 1)
    assert Store(store.folder, 5_000).make_room(made[3].folder) == []


def test_what_runs_on_another_host_is_taken_at_its_word(store: Store) -> None:
    set_up = replace(SET_UP, host=RecordedHost("elsewhere"), testbed=RecordedTestbed("gone", 1))
    for state in ("running", "queued"):
        made = written(store, state=state, set_up=set_up)
        assert Record.read(made.folder).state == state
        with pytest.raises(RequestError, match=f"it is {state} still"):
            store.remove(Record.read(made.folder))


def test_there_may_be_so_many_records(store: Store) -> None:
    made = [written(store, at=float(at), state="done") for at in range(4)]
    removed = Store(store.folder, most=2).make_room(made[3].folder)
    assert [each.name for each in removed] == [made[0].name, made[1].name]


def test_one_that_runs_is_not_removed(store: Store) -> None:
    made = written(store)
    fd = os.open(made.folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(RequestError, match="it is running still"):
        store.remove(Record.read(made.folder))
    os.close(fd)
    store.remove(Record.read(made.folder))
    assert not made.folder.exists()


def test_where_records_are() -> None:
    user = Caller(12345, 12345, (), "alice", "/home/alice")
    me = replace(ME, home="/home/me")
    assert data_home(me, {"XDG_DATA_HOME": "/data", "HOME": "/elsewhere"}) == Path("/data")
    assert data_home(me, {"XDG_DATA_HOME": "relative", "HOME": "/elsewhere"}) == Path(
        "/elsewhere/.local/share"
    )
    assert data_home(me, {}) == Path("/home/me/.local/share")
    behind_sudo = {"XDG_DATA_HOME": "/root/data", "HOME": "/root"}
    assert data_home(user, behind_sudo) == Path("/home/alice/.local/share")


def test_variables_say_where_and_how_much(tmp_path: Path) -> None:
    assert Store.of(ME, None, {FOLDER: OFF}) is None
    named = Store.of(ME, None, {FOLDER: str(tmp_path), LIMIT: "500MB"})
    assert named == Store(tmp_path, 500_000_000)
    assert Store.of(ME, tmp_path / "a", {FOLDER: OFF}) == Store(tmp_path / "a")
    assert list_records(tmp_path) == []
    with pytest.raises(RequestError, match=r"OPTINC_RUNS_LIMIT='much': a size such as 500MB or 2GB"):
        Store.of(ME, None, {LIMIT: "much"})


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("1.5kB", 1500), ("10 GB", 10**10), ("2T", 2 * 10**12)]
)
def test_sizes(text: str, count: int) -> None:
    assert size_bytes(text, "x") == count
