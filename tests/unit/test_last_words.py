"""The last words of a testbed that died: what stays of its runtime folder, until when, and what `status`
says.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from testbed import down, status
from testbed.client import environment, last_words, rpc, runtime
from testbed.client.caller import Caller
from testbed.client.last_words import LastWords
from testbed.client.main_facts import MainFacts, MainState
from testbed.client.runtime import HeldName, Runtime, dead, remove_dead, running, sweep
from testbed.daemon.supervisor import _ended_in_words, _last_words
from testbed.errors import HostError, RequestError, TestbedError

ME = Caller.of(os.geteuid())
FACTS = MainFacts("one", 4242, "alice", "rack")
WORDS = LastWords.of_main(FACTS, "ovs-vswitchd was killed by signal 9", 1_000_000.0)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    of = Runtime.of
    monkeypatch.setattr(Runtime, "of", lambda name, root=tmp_path: of(name, root))
    monkeypatch.setattr(runtime, "RUN_DIR", tmp_path)
    return Runtime.of("one")


def die(made: Runtime, words: LastWords | None = WORDS) -> None:
    with HeldName(made, ME) as name:
        name.write_main(MainState(**asdict(FACTS), state="ready"))
        (made.log / "daemon.log").write_text("first\nlast\n")
        (made.jobs / "1").mkdir()
        if words:
            name.leave(words)


def test_reason_and_logs_stay_and_nothing_else(made: Runtime) -> None:
    die(made)
    assert sorted(path.name for path in made.folder.iterdir()) == ["died.json", "log"]
    assert (made.folder / "died.json").stat().st_mode & 0o777 == 0o600
    assert made.last_words() == WORDS
    assert not made.alive()
    assert (running(made.folder.parent), dead(made.folder.parent)) == ([], ["one"])


def test_who_asks_while_it_dies_is_told_why(made: Runtime) -> None:
    with ThreadPoolExecutor(1) as pool:
        with HeldName(made, ME) as name:
            name.write_main(MainState(**asdict(FACTS), state="ready"))
            asking = pool.submit(rpc.call, made.socket, "run")
            with pytest.raises(TimeoutError):
                asking.result(0.2)
            name.leave(WORDS)
        with pytest.raises(TestbedError, match=r"testbed 'one' is gone: it died at .*: ovs-vswitchd was"):
            asking.result(60)
    with pytest.raises(TestbedError, match="ovs-vswitchd was killed"):
        rpc.call(made.socket, "run")


def test_who_asks_while_it_comes_up_or_ends_in_order_is_not_held_up(made: Runtime) -> None:
    with HeldName(made, ME) as name:
        name.write_main(MainState(**asdict(FACTS), state="starting"))
        with pytest.raises(rpc.AbsentError, match="comes up or goes down"):
            rpc.call(made.socket, "run")
    with pytest.raises(rpc.AbsentError, match="comes up or goes down"):
        rpc.call(made.socket, "run")


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "killed by signal 9"), (137, "killed by signal 9"), (3, "status 3")]
)
def test_how_the_daemon_ended_is_told_by_its_signal(code: int, words: str) -> None:
    assert _ended_in_words(code) == words


def test_an_end_in_order_leaves_none(made: Runtime) -> None:
    die(made, None)
    assert not made.folder.exists()
    assert made.last_words() is None


def test_they_go_when_the_next_one_of_that_name_comes(made: Runtime) -> None:
    die(made)
    with HeldName(made, ME):
        assert made.last_words() is None
        assert list(made.log.iterdir()) == []
    assert not made.folder.exists()


def test_down_leaves_them(made: Runtime) -> None:
    die(made)
    assert not sweep("one", made.folder.parent)
    assert made.last_words() == WORDS


def test_one_whose_main_process_was_killed(made: Runtime) -> None:
    name = HeldName(made, ME).__enter__()
    name.write_main(MainState(**asdict(FACTS), state="ready"))
    (made.log / "daemon.log").write_text("last\n")
    for fd in (name._fd, name._owner_fd):
        os.close(fd)  # as the kernel does
    said = made.last_words()
    assert said is not None
    assert str(said) == "it died: its main process (pid 4242) was killed"
    assert sweep("one", made.folder.parent)
    assert sorted(path.name for path in made.folder.iterdir()) == ["died.json", "log"]
    assert made.last_words() == said
    assert not sweep("one", made.folder.parent)


def test_who_asks_is_told_why(made: Runtime) -> None:
    die(made)
    with pytest.raises(TestbedError) as error:
        made.require_alive()
    assert "is not running: it died at 1970-01-" in str(error.value)
    assert "ovs-vswitchd was killed by signal 9; more: " in str(error.value)
    assert str(error.value).endswith("status --name one")


def test_down_removes_all_that_one_that_died_has_left(
    made: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    die(made)  # and it is the only one that there is: no name is needed
    monkeypatch.setattr(runtime, "running", lambda root: [])
    monkeypatch.setattr(runtime, "dead", lambda root: ["one"])
    monkeypatch.setattr(Runtime, "of", lambda name, root: {"one": made}[name])
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert environment.exit_code("testbed down", down.main, []) == 3
    assert "it died at 1970-01-" in (said := capsys.readouterr().err)
    assert said.endswith("to remove what it left: sudo .venv/bin/testbed down --name one\n")
    assert made.folder.is_dir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("testbed.api.down.remove_dead", lambda name: remove_dead(name, made.folder.parent))
    assert environment.exit_code("testbed down", down.main, []) == 0
    assert capsys.readouterr().out == "testbed 'one' had died; what it left is removed\n"
    assert not made.folder.exists()


def test_of_several_that_died_one_must_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runtime, "running", lambda root: [])
    monkeypatch.setattr(runtime, "dead", lambda root: ["one", "two"])
    assert environment.exit_code("testbed down", down.main, []) == 2
    assert capsys.readouterr().err == "testbed down: several testbeds died: one, two; name one of them\n"


def test_one_that_lives_is_not_removed(made: Runtime) -> None:
    with HeldName(made, ME), pytest.raises(RequestError, match="'one' is running already"):
        remove_dead("one", made.folder.parent)


def test_status_shows_reason_and_logs(made: Runtime) -> None:
    die(made)
    text, answered = status.said(Namespace(name="one", json=False))
    assert not answered
    for part in (
        "testbed one is not running: it died at 1970-01-",
        "it was alice's, configuration rack, pid 4242",
        f"in {made.log}: daemon.log\n    first\n    last",
    ):
        assert part in text, text
    text, _ = status.said(Namespace(name="one", json=True))
    shown = json.loads(text)
    assert (shown["state"], shown["reason"]) == ("dead", WORDS.reason)
    assert shown["logs"] == [str(made.log / "daemon.log")]


def test_what_does_not_read_is_none(made: Runtime) -> None:
    die(made)
    for text in ("{", "[]", '{"name": "one"}'):
        (made.folder / last_words.FILE).write_text(text)
        assert made.last_words() is None


@pytest.mark.parametrize(
    ("error", "state", "leaves"),
    [
        (TestbedError("ovs-vswitchd died"), "ready", True),
        (HostError("no memory is left"), "ready", True),
        (TestbedError("the daemon ended unasked"), "starting", True),
        (HostError("BMv2 is not installed"), "starting", False),
    ],
)
def test_which_ends_leave_some(made: Runtime, error: TestbedError, state: str, leaves: bool) -> None:
    def up() -> None:
        with HeldName(made, ME) as name:
            name.write_main(MainState(**asdict(FACTS), state=state))
            with _last_words(name, FACTS):
                raise error

    with pytest.raises(type(error)):
        up()
    said = made.last_words()
    assert (said.reason if said else None) == (str(error) if leaves else None)
    if leaves:
        assert (made.log / "daemon.log").read_text() == f"the testbed ends: {error}\n"
    assert made.folder.exists() == leaves
