"""Every command's `--json`: that there is one, and that stdout then has one JSON document and nothing else.
tests/privileged/test_printed.py has the commands that need a testbed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import demo
from testbed.__main__ import COMMANDS
from testbed.client.sole_json import sole_json
from testbed.errors import TestbedError
from testbed.messages.coding import plain
from testbed.messages.report import DemoReport
from testbed.report import document, host
from testbed.topology.catalogue import find
from tests.limits import CALL_S
from tests.unit.test_report import read_run, run_result, training

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = {
    "exec": "its stdout is that of the command that it runs",
    "shell": "a prompt, whose stdout is that of the commands that are typed",
}


class ParserMade(Exception):  # no error: what a test asked for
    """The parser of a command, in place of what it would do."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_json_or_says_why_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> argparse.Namespace:
        if parser.prog == "testbed reproduce":  # the figure's own parser comes next
            return argparse.Namespace(paper="p4inc", figure="fig8")
        raise ParserMade(parser)

    for method in ("parse_args", "parse_intermixed_args", "parse_known_args"):
        monkeypatch.setattr(argparse.ArgumentParser, method, asked)
    with pytest.raises(ParserMade) as made:
        importlib.import_module(f"testbed.{name}").main([])
    options = [option for action in made.value.parser._actions for option in action.option_strings]
    assert ("--json" in options) == (name not in WITHOUT)


def test_what_is_printed_meanwhile_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with sole_json(True) as stdout:
        print("by this process")
        subprocess.run([sys.executable, "-c", "print('by a child')"], timeout=CALL_S, check=True)
        os.write(1, b"by its descriptor\n")
        print("{}", file=stdout)
    print("afterwards")
    output, complaints = capfd.readouterr()
    assert output == "{}\nafterwards\n"
    assert sorted(complaints.splitlines()) == ["by a child", "by its descriptor", "by this process"]


def test_stdout_comes_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TestbedError), sole_json(True):
        raise TestbedError("no figure")
    print("afterwards")
    assert capfd.readouterr().out == "afterwards\n"


def test_nothing_changes_unless_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    with sole_json(False) as stdout:
        print("as ever")
        assert stdout is sys.stdout
    assert capfd.readouterr().out == "as ever\n"


@pytest.mark.parametrize(
    "words",
    [
        ("reproduce", "luwu", "fig10", "--out", "OUT", "--no-record", "--json"),
        ("systems", "--json"),
        ("cluster", "--config", "aleph", "--json"),
    ],
    ids=lambda words: words[0],
)
def test_stdout_is_one_document(words: tuple[str, ...], tmp_path: Path) -> None:
    argv = [str(tmp_path) if word == "OUT" else word for word in words]
    ended = subprocess.run(
        [sys.executable, "-m", "testbed", *argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert isinstance(json.loads(ended.stdout), dict)
    if words[0] == "reproduce":
        assert json.loads(ended.stdout) == json.loads((tmp_path / "fig10.json").read_text())
        assert "fig10.png" in ended.stderr


def test_the_demo_prints_its_report_and_fails_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trainings = {"inc": document.Training(read_run(run_result("inc", 1, 0.01)), training(accuracy=0.5))}
    report = document.document(host.facts(), find("default"), trainings)

    def trained(*_: object) -> DemoReport:
        print("[1/4] digits with inc")
        return report

    monkeypatch.setattr(demo, "_train_all", trained)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(TestbedError, match=r"inc: test accuracy 50\.00% is below 97%"):
        demo.main(["--out", str(tmp_path), "--json"])
    output, complaints = capfd.readouterr()
    assert json.loads(output) == plain(report)
    assert complaints == "[1/4] digits with inc\n"
