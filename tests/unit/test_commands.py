"""The commands as a user types them, as far as they go without a running testbed; and what `status` and `up`
show.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import status, up
from testbed.__main__ import COMMANDS
from testbed.api import files
from testbed.client import environment, runtime
from testbed.client.caller import Caller
from testbed.client.screen import Screen
from testbed.client.up_messages import NetworkSummary, UpPhase, UpReady
from testbed.errors import HostError, RequestError
from testbed.messages.status import SilentStatus, Status
from tests.unit import page_world, results

ROOT = Path(__file__).resolve().parents[2]
ABSENT = "never-started"


def command(*argv: str) -> tuple[int, list[str]]:
    """Exit code, and the lines on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )
    return done.returncode, done.stderr.strip().splitlines()


class HelpAsked(Exception):  # no error: what a test asked for
    """The parser of a command, in place of what it would do."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


@pytest.fixture
def parser_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], argparse.ArgumentParser]:
    def asked(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise HelpAsked(parser)

    def of(name: str) -> argparse.ArgumentParser:
        with pytest.raises(HelpAsked) as asked_for:
            importlib.import_module(f"testbed.{name}").main([])
        return asked_for.value.parser

    for name in ("parse_args", "parse_intermixed_args", "parse_known_args"):
        monkeypatch.setattr(argparse.ArgumentParser, name, asked)
    return of


@pytest.mark.parametrize("name", COMMANDS)
def test_help_speaks_in_one_voice(name: str, parser_of: Callable[[str], argparse.ArgumentParser]) -> None:
    parser = parser_of(name)
    assert parser.description, "what it does"
    verb, *_ = parser.description.split()
    assert verb[0].isupper(), f"{verb!r} begins no sentence"
    assert not verb.endswith("s"), f"{verb!r} says what it does, and not what to do"
    assert parser.description.endswith((".", ")."))
    assert "daemon" not in parser.format_help(), "a word for those who read the sources"
    for action in parser._actions:
        assert action.help or action.choices, f"{name}: nothing is said of {action.dest}"
        if action.nargs != 0 and not action.choices:
            assert re.search(r"[A-Z]|\|", str(action.metavar or action.dest.upper())), action.dest
    assert "%" not in parser.format_help().replace(" %", ""), "a default that was not put in"


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["testbed.up", "--config", "nonesuch"], 2, "ready ones are default"),
        (["testbed.up", "--config", "/no/file.yaml"], 2, "/no/file.yaml"),
        (["testbed.up", "--name", "Not_A_Name"], 2, "--name 'Not_A_Name': a name is"),
        (["testbed.status", "--name", ABSENT], 2, f"'{ABSENT}' is not running"),
        (["testbed.down", "--name", ABSENT], 2, f"'{ABSENT}' is not running"),
        (["testbed.fault", "list", "--name", ABSENT], 2, f"'{ABSENT}' is not running"),
        (
            ["testbed.fault", "set", "u1h1", "--name", ABSENT, "--loss", "101%"],
            2,
            "--loss 101%: a percentage from 0% to 100% is accepted, with its sign",
        ),
        (
            ["testbed.fault", "set", "u1h1", "--name", ABSENT, "--corrupt", "many"],
            2,
            "--corrupt many: a percentage",
        ),
        (["testbed.run", "--name", ABSENT, "x.py"], 2, f"'{ABSENT}' is not running"),
        (
            ["testbed.run", "--name", ABSENT, "--sync", "tree", "x.py"],
            2,
            "accepted are auto, aleph, aleph-mwcha, aleph-servers, inc, luwu, ps, ring, switches",
        ),
        (["testbed.run", "--name", ABSENT, "--place", "u1", "x.py"], 2, "accepted is UNIT:WORKERS"),
        (
            ["testbed.run", "--name", ABSENT, "--place", "u1:2", "--place", "u2:2", "x.py"],
            2,
            "--place u2:2: it is given twice, u1:2 before; one is accepted, UNIT:WORKERS,...",
        ),
        (
            ["testbed.run", "--name", ABSENT, "--place", "u1:2", "x.py", "--place", "u2:2"],
            2,
            f"'{ABSENT}' is not running",
        ),
        (["testbed.cluster", "--place", "u1:2", "--place", "u1:2"], 2, "--place u1:2: it is given twice"),
        (["testbed.demo", "--place", "u1:2", "--place", "u1:3"], 2, "--place u1:3: it is given twice"),
        (["testbed.exec", "--name", ABSENT, "u1h1", "--", "true"], 2, f"'{ABSENT}' is not running"),
        (["testbed.exec", "--name", ABSENT, "u1h1", "--"], 2, "--: a command is to follow"),
        (["testbed.shell", "--name", ABSENT, "-c", "pingall"], 2, f"'{ABSENT}' is not running"),
        (["testbed.run", "--name", ABSENT, "--timeout", "0", "x.py"], 2, "--timeout 0: more than 0"),
    ],
)
def test_one_clear_line(argv: list[str], code: int, says: str) -> None:
    ended, lines = command(*argv)
    assert (ended, len(lines)) == (code, 1), lines
    assert says in lines[0]


ABOUT_ONE = {
    "run": [__file__],
    "submit": [],
    "cancel": ["--all"],
    "status": [],
    "circuits": [],
    "link": ["list"],
    "script": [],
    "traffic": [],
    "fault": ["list"],
    "capture": ["u1h1"],
    "exec": ["u1h1", "true"],
    "shell": ["-c", "nodes"],
    "down": [],
}
"""The commands about a testbed that runs, with what each needs; `web` shows that one has yet to come."""


JOB = {"name": "a", "script": __file__, "iterations": 1, "megabytes": 1.0, "workers": 2}


def words_of(name: str, tmp_path: Path) -> list[str]:
    files = {
        "submit": yaml.safe_dump({"jobs": [JOB]}),
        "script": "[{at: 0, do: link list}]",
        "traffic": "[{kind: constant, from: u1h1, to: u1h2, rate_mbps: 1}]",
    }
    if name not in files:
        return ABOUT_ONE[name]
    (tmp_path / "file.yaml").write_text(files[name])
    return [str(tmp_path / "file.yaml")]


@pytest.mark.parametrize("name", ABOUT_ONE)
def test_a_testbed_that_is_not_there_is_one_line_and_one_exit_code(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = importlib.import_module(f"testbed.{name}").main
    words = ["--name", ABSENT, *words_of(name, tmp_path)]
    assert environment.exit_code(f"testbed {name}", main, words) == RequestError.exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"testbed {name}: testbed '{ABSENT}' is not running")


@pytest.mark.parametrize("name", sorted(ABOUT_ONE.keys() - {"status"}))
def test_of_several_testbeds_one_must_be_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status` lists them."""
    monkeypatch.setattr(runtime, "running", lambda root: ["a", "b"])
    main = importlib.import_module(f"testbed.{name}").main
    assert environment.exit_code(f"testbed {name}", main, words_of(name, tmp_path)) == 2
    assert capsys.readouterr().err == f"testbed {name}: several testbeds run: a, b; name one of them\n"


@pytest.mark.parametrize("name", ABOUT_ONE)
def test_without_a_name_the_only_testbed_is_meant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def require_alive(self: runtime.Runtime) -> None:
        asked.append(self.name)
        raise RequestError("enough")

    monkeypatch.setattr(runtime, "running", lambda *root: ["only"])
    monkeypatch.setattr(runtime.Runtime, "require_alive", require_alive)
    monkeypatch.setattr(runtime.Runtime, "alive", lambda _: True)
    main = importlib.import_module(f"testbed.{name}").main
    environment.exit_code(f"testbed {name}", main, words_of(name, tmp_path))
    assert asked == ["only"]


@pytest.mark.parametrize(
    ("behind", "wanted"),
    [
        (["ls", "-l", "--", "--name", "x"], ["ls", "-l", "--", "--name", "x"]),
        (["--", "ls", "--", "-l"], ["ls", "--", "-l"]),
        (["ping", "-c", "1", "u2h1"], ["ping", "-c", "1", "u2h1"]),
        (["sh", "-c", "exit 3", "--help"], ["sh", "-c", "exit 3", "--help"]),
        ([], ["/bin/zsh"]),
    ],
    ids=" ".join,
)
def test_all_behind_the_host_is_the_command_s(
    behind: list[str], wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def attended(socket: Path, host: str, words: list[str], *_: Any) -> tuple[int, None]:
        asked.append((socket.parent.name, host, words))
        return 0, None

    monkeypatch.setattr("testbed.host_commands.client.attended", attended)
    monkeypatch.setattr(runtime.Runtime, "require_alive", lambda _: None)
    monkeypatch.setenv("SHELL", "/bin/zsh")
    assert importlib.import_module("testbed.exec").main(["--name", "mine", "u1h1", *behind]) == 0
    assert asked == [("mine", "u1h1", wanted)]


def test_all_behind_the_script_is_the_script_s() -> None:
    options = importlib.import_module("testbed.run").parser().parse_args(["x.py", "--n", "5", "--name", "x"])
    assert (options.script, options.arguments, options.name) == ("x.py", ["--n", "5", "--name", "x"], None)


def test_up_without_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Root's tests say that they are not; tests/privileged/test_up.py tries it as another user."""
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert environment.exit_code("testbed up", up.main, ["--name", ABSENT]) == 3
    assert (
        capsys.readouterr().err
        == "testbed up: needs root, for namespaces, network devices and XDP: run it with sudo\n"
    )


def check(
    tmp_path: Path, script: Path | None = None, result: Path | None = None, logs: Path | None = None
) -> None:
    if script is None:
        script = tmp_path / "script.py"
        script.touch()
    me = Caller.of(os.geteuid())
    files.check_result(me, result, with_series=True)
    files.check_job(me, str(script), logs)


def test_files_are_checked_before_the_job(tmp_path: Path) -> None:
    check(tmp_path, result=tmp_path / "new.json", logs=tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "new.json").exists()
    for bad, says in (
        ({"script": tmp_path / "none.py"}, "cannot read it: No such file"),
        ({"script": tmp_path}, "script .*: an ordinary file is accepted"),
        ({"script": Path("/dev/null")}, "script /dev/null: an ordinary file is accepted"),
        ({"result": tmp_path / "none" / "x.json"}, "--json .* cannot write it"),
        ({"result": tmp_path}, "--json .* cannot write it"),
        ({"logs": tmp_path / "script.py"}, "--logs .* cannot make it"),
    ):
        with pytest.raises(RequestError, match=says):
            check(tmp_path, **bad)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("package.train", None),
        ("package", None),
        ("bare.module", None),
        ("bare.below.module", None),
        ("bare", "module bare: a package without __main__; a module is accepted"),
        ("package.none", "module package.none: no module package.none is found from FOLDER"),
        ("none.train", "module none.train: no module none is found from FOLDER"),
        ("package.train.x", "module package.train.x: no module package.train.x is found from FOLDER"),
        ("train.py", "module train.py: no module train is found from FOLDER"),
        ("", "module : no module  is found from FOLDER"),
        ("..x", "module ..x: no module  is found from FOLDER"),
    ],
)
def test_a_module_is_found_before_the_job_and_nothing_of_it_runs(
    name: str, says: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (
        "package/__init__.py",
        "package/__main__.py",
        "package/train.py",
        "bare/module.py",
        "bare/below/module.py",
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    me = Caller.of(os.geteuid())
    if says is None:
        files.check_job(me, name, is_module=True)
        return
    with pytest.raises(RequestError) as error:
        files.check_job(me, name, is_module=True)
    assert str(error.value).replace(str(tmp_path), "FOLDER") == says


@pytest.mark.parametrize(("failure", "became"), [(None, "ended"), ("worker 1 left", "failed: worker 1 left")])
def test_a_result_that_cannot_be_written_does_not_hide_the_jobs(
    failure: str | None, became: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "series_path", lambda _: tmp_path / "samples.npz")
    result = results.read(failure=failure, series="")
    with pytest.raises(HostError, match=rf"^--json /dev/full: No space left on device; job 3 {became}$"):
        files.write_result(Path("/dev/full"), result)


def full() -> Status:
    """Return a status by what differs from that of the page's tests."""
    made = page_world.status()
    unit, host, link, job = (made[kind][0] for kind in ("units", "hosts", "links", "jobs"))
    return page_world.read(
        {
            **made,
            "name": "one",
            "state": "ready",
            "pid": 7,
            "user": "alice",
            "configuration": "default",
            "uptime_s": 12.3,
            "units": [
                {**unit, "name": "u1", "engine": "xdp"},
                {**unit, "name": "u2", "engine": "bmv2", "restarts": 1},
            ],
            "hosts": [
                {**host, "name": "u1h1", "unit": "u1", "job": 3, "rate_mbps": 30_000.0, "cpus": 0.5},
                {**host, "name": "u1h2", "unit": "u1", "job": None, "rate_mbps": None, "cpus": None},
                {**host, "name": "u2h1", "unit": "u2", "job": None, "rate_mbps": 40_000.0, "cpus": None},
            ],
            "circuits": [["u1o1", "u2o1"]],
            "dark": ["u1o2"],
            "controller": {"state": "running", "library": "ryu 4.34", "ready": True, "restarts": 2},
            "links": [
                {**link, "name": "u1h1", "rate_mbps": 200.0, "drops": 1},
                {**link, "name": "u1h2", "rate_mbps": None, "drops": 2},
            ],
            "circuit_jobs": [],
            "jobs": [
                {
                    **job,
                    "id": 3,
                    "state": "running",
                    "running_s": 4.0,
                    "sync": "inc",
                    "user": "alice",
                    "script": "x.py",
                    "hosts": ["u1h1"],
                    "ps_host": "u3h1",
                    "other_hosts": ["u3h1"],
                    "sums": [
                        {
                            "place": "u3h1",
                            "share": 0.25,
                            "workers": [],
                            "below": [{"place": "u1", "workers": ["u1h1"], "below": []}],
                        }
                    ],
                }
            ],
        }
    )


def test_status_page() -> None:
    text = status.page(full())
    for part in (
        "testbed one: ready, pid 7, up 12 s, alice's, configuration default",
        "x.py on u1h1, ps on u3h1\n    u3h1 sums 25%: u1 (u1h1)",
        "2 hosts (1 in use)  2 optical ports  engine xdp\n",
        "xdp\n        u1h1: 30 Gb/s, 0.5 cores\n        u1h2: unshaped\n  u2 ",
        "engine bmv2, restarted once\n\n",
        "engine bmv2, restarted once\n",
        "circuits    u1o1-u2o1; dark now: u1o2",
        "controller  running on ryu 4.34, restarted twice",
        "1 at 200 Mb/s, 1 at no limit; 3 frames dropped",
        "job 3: running for 4 s, inc, alice's x.py on u1h1, ps on u3h1",
    ):
        assert part in text


def test_status_of_one_that_is_starting() -> None:
    starting = SilentStatus("one", 7, "me", "default", "starting", (), (), (), (), "it has no socket yet")
    assert status.page(starting) == "testbed one: starting, pid 7"
    assert status.line(starting).startswith("one              starting   pid 7")


def test_circuits_while_the_controller_is_away() -> None:
    away = replace(full(), circuits=None, dark=None)
    assert status.circuits_text(away) == "not known while the controller is away"


def test_screen_prints_a_phase_once_when_it_is_done() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    for done in (0, 5, 9):
        screen.show(UpPhase("links", done, 9))
    ready = NetworkSummary(4, 12, (("u1o1", "u2o1"),), "netdev")
    screen.show(UpReady(ready, "one", 7, "alice", "rack", True))
    lines = stream.getvalue().splitlines()
    assert re.fullmatch(r" *links +9/9 +[0-9]+\.[0-9] s", lines[0])
    assert lines[1].startswith("testbed 'one' is up after")
    assert "testbed run --name one SCRIPT" in stream.getvalue()
    assert "Ctrl-C" not in stream.getvalue()
