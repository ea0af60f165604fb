"""Every text that a user can set, with escape sequences and new lines in it, where another user reads it: in
records, their page, the host commands of `testbed exec`, requests, environment variables, rich's tables.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from testbed import exec as exec_command
from testbed import runs
from testbed.client import environment, rpc
from testbed.client.caller import Caller
from testbed.client.requests import CommandRequest, asked
from testbed.client.runtime import Runtime
from testbed.daemon.commands import Commands
from testbed.errors import RequestError
from testbed.host_commands import client
from testbed.jobs.request import JobRequest
from testbed.messages.coding import as_json
from testbed.records.record import CONFIGURATION, FILE, RESULT, RUNS
from testbed.records.recorder import Asked, Recorder
from testbed.records.store import Store
from testbed.report.console import standard_output
from testbed.webpage.page import RECORDS, shown
from tests.processes import ENCLOSURES
from tests.unit import recorded, results
from tests.unit.page_world import World
from tests.unit.test_page_records import RESULT_OF_RUN, written
from tests.unit.test_terminal_text import ALL, is_clean

FORGED = f"{ALL}\nforged: down\r"
WORDS = ("state", "kind", "name", "host", "format", "command", "ports", "dtype")
"""Fields that a program looks at: a record with other words there does not read."""


def poisoned(data: Any, key: str = "") -> Any:
    """Return JSON's data with the attacks behind each text, but for the words that a program looks at."""
    if isinstance(data, Mapping):
        return {each: poisoned(value, each) for each, value in data.items()}
    if isinstance(data, list):
        return [poisoned(each, key) for each in data]
    return f"{data}{FORGED}" if isinstance(data, str) and key not in WORDS else data


def no_forged(text: str) -> None:
    assert is_clean(text)
    assert "\\x1b" in text, "what a user wrote is there"
    assert not [row for row in text.splitlines() if row.lstrip().startswith("forged")]


# ------------------------------------------------------------------ records


def poison(place: Path) -> None:
    """Poison each text of a record and its result."""
    file, result = place / FILE, place / RUNS / "1" / RESULT
    data = poisoned(json.loads(file.read_text()))
    data["notes"], data["failure"] = [FORGED], FORGED
    set_up = data["set_up"]
    set_up["seeds"] = {FORGED: 1}
    set_up["versions"] = {FORGED: FORGED}
    set_up["source"] = {"commit": FORGED, "script_commit": FORGED}
    set_up["environment"] = {FORGED: FORGED}
    set_up["host"] = {each: FORGED for each in ("name", "processor", "cores", "kernel")}
    set_up["testbed"] |= {"name": FORGED}
    set_up["inputs"] = [{"role": FORGED, "path": FORGED, "bytes": 1, "sha256": "0", "copy": "inputs/a"}]
    data["runs"][0] |= {"failure": FORGED, "verdict": FORGED}
    step = {"run_s": 1.0, "script": FORGED, **results.step(FORGED, exit_code=1, output=FORGED, error=FORGED)}
    data["runs"][0]["steps"] = [step]
    file.write_text(json.dumps(data))
    result.write_text(json.dumps(poisoned(json.loads(result.read_text()))))
    (place / "inputs").mkdir()
    (place / "inputs" / "a").write_bytes(FORGED.encode(errors="surrogateescape"))
    configuration = json.loads((place / CONFIGURATION).read_text())
    (place / CONFIGURATION).write_text(json.dumps({**configuration, "name": FORGED}))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    whole = recorded.result() | RESULT_OF_RUN
    telemetry = {**whole["telemetry"], "samples": 9}
    links = [{**link, "bytes": 1} for link in whole["links"]]
    result = whole | {"workers": recorded.result()["workers"], "telemetry": telemetry, "links": links}
    poison(written(tmp_path / "runs", result).folder)
    other = written(tmp_path / "others", result).folder
    other.rename(tmp_path / "runs" / "20330518-033321-run")
    return Store(tmp_path / "runs")


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (("list",), 6),
        (("show", "20330518-033320"), None),
        (("compare", "20330518-033320", "20330518-033321"), None),
        (("remove", "--all"), 1),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_records(
    words: tuple[str, ...], rows: int | None, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (store.folder / f"20330518-033322-run{FORGED.replace(chr(0), '')}").mkdir()
    with contextlib.suppress(UnicodeEncodeError):
        (store.folder / f"20330518-033322-run{FORGED.replace(chr(0), '')}" / FILE).write_text("{}")
    code = environment.exit_code("testbed runs", runs.main, [*words, "--records", str(store.folder)])
    out, err = capsys.readouterr()
    assert code == 0, err
    if words[0] != "remove":
        no_forged(out)
    assert is_clean(out + err)
    assert rows is None or len((out + err).splitlines()) == rows


def test_a_note_of_the_recorder_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Asked("run", ["x.py"], {})
    Recorder(asked, Store(tmp_path), Caller.of_this_process()).say(f"record {FORGED}")
    assert len(capsys.readouterr().err.splitlines()) == 1


def texts(component: Any) -> list[str]:
    """Return all texts of a part of the page."""
    data = json.loads(json.dumps(component, default=lambda each: each.to_plotly_json()))

    def walk(each: Any) -> list[str]:
        if isinstance(each, str):
            return [each]
        below = [*each, *each.values()] if isinstance(each, dict) else each if isinstance(each, list) else []
        return [text for inner in below for text in walk(inner)]

    return walk(data)


@pytest.mark.parametrize("path", [RECORDS, "/record/20330518-033320-run", f"/record/{FORGED}"])
def test_the_page_of_records(path: str, store: Store, tmp_path: Path) -> None:
    page = shown(path, None, World(tmp_path).source, store)
    every = [text for part in page.values() for text in texts(part.content)]
    assert any("\\x1b" in text for text in every), "what a user wrote is there"
    assert all(is_clean(text) and "\n" not in text for text in every if not text.startswith("<br>"))


def test_the_page_of_what_lives_with_the_controller_s_history(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.changes[0]["added"] = [[f"u1o1{FORGED}", "u2o1"]]
    view = world.source.look()
    assert is_clean(repr(view.changes))
    assert view.changes[0].added[0][0].startswith("u1o1\\x1b")


# ------------------------------------------------------------------ host commands


class Hosts:
    def popen_in(self, host: str, *_: Any, **__: Any) -> Any:
        raise RequestError(f"host {host}: no such host")

    enclosed = ENCLOSURES.opened


@pytest.mark.parametrize(
    "request_",
    [
        {"host": FORGED},
        {"host": "u1h1\0"},
        {"argv": [FORGED, FORGED]},
        {"argv": [f"{FORGED}\0"]},
        {"cwd": FORGED},
        {"environ": {f"{FORGED}=": FORGED}},
        {"environ": {FORGED: f"{FORGED}\0"}},
    ],
    ids=["host", "NUL", "argv", "NUL in argv", "cwd", "name of a variable", "variable"],
)
def test_what_the_daemon_refuses_of_a_host_command(request_: dict[str, Any], tmp_path: Path) -> None:
    commands = Commands(Hosts(), lambda host, user, runs_as: contextlib.nullcontext(), 3)

    def answer(request: Any, peer: Any, emit: Any, gone: Any) -> Any:
        command = asked(CommandRequest, request)
        return as_json(commands.answer(command, Caller.asking(peer), peer, emit, gone))

    whole = {"host": "u1h1", "argv": ["true"], "cwd": "/", "environ": {}, **request_}
    refused = pytest.raises(RequestError)
    with rpc.serve(tmp_path / "s", answer), refused as error:
        rpc.call(tmp_path / "s", "exec", **whole)
    assert is_clean(str(error.value))
    assert "\n" not in str(error.value)


def alive(runtime: Runtime) -> None:
    """Stand in for the look whether a testbed lives."""


@pytest.mark.parametrize("words", [["u1h1", FORGED], [FORGED, "true"], ["u1h1"], ["u1h1", f"-{FORGED}"]])
def test_exec_names_its_host_command_and_shell_in_a_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def attended(_: Path, host: str, argv: list[str], *__: Any) -> tuple[int, str]:
        return 127, f"run {argv[0]}: No such file or directory"

    monkeypatch.setattr(Runtime, "require_alive", alive)
    monkeypatch.setattr(client, "attended", attended)
    monkeypatch.setenv("SHELL", FORGED.replace("\0", ""))
    environment.exit_code("testbed exec", exec_command.main, ["--name", "one", *words])
    err = capsys.readouterr().err
    no_forged(err)
    assert len(err.splitlines()) == 1


# ------------------------------------------------------------------ requests, variables, tables


@pytest.mark.parametrize(
    "field",
    [
        *("script", "sync", "place", "cwd", "logs", "python", "server_at", "recovery", "stragglers"),
        *("limit_s", "lanes", "window", "restarts", "age_out_ms", "leave_after", "arguments", "environ"),
    ],
)
@pytest.mark.parametrize("value", [FORGED, f"{FORGED}\0", [FORGED], {FORGED: f"{FORGED}\0"}])
def test_what_is_refused_of_a_job(field: str, value: Any, tmp_path: Path) -> None:
    whole = {"script": "x.py", "sync": "inc", "cwd": "/", "environ": {}, "arguments": []}

    def answer(request: Any, peer: Any, emit: Any, gone: Any) -> Any:
        job = JobRequest.parse(request, Caller.asking(peer))
        raise RequestError(f"job of {job.script} by {job.sync} at {job.place}: {job}")

    with rpc.serve(tmp_path / "s", answer), pytest.raises(RequestError) as error:
        rpc.call(tmp_path / "s", "run", **{**whole, field: value})
    assert is_clean(str(error.value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["OPTINC_RUNS", "OPTINC_RUNS_LIMIT"])
def test_an_environment_variable_is_shown_in_a_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPTINC_RUNS")
    monkeypatch.setenv(name, FORGED.replace("\0", ""))
    for words in (["list"], ["show", "last"]):
        environment.exit_code("testbed runs", runs.main, words)
        out, err = capsys.readouterr()
        no_forged(out + err)
        assert len((out + err).splitlines()) == 1


def test_rich_s_tables_show_a_user_s_text_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=FORGED)
    table.add_column(FORGED, style="bold")
    table.add_row(Text(FORGED, style="red"))
    table.add_row(FORGED)
    console = standard_output(120)
    console.print(table)
    console.print(FORGED, markup=False)
    out = capsys.readouterr().out
    assert is_clean(out)
    assert "\\x1b" in out
