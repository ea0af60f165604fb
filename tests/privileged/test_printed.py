"""The lines that commands print of a running testbed, by the table of commands: one JSON document with
`--json`, hints that can be pasted as they stand, and one exit code where the testbed is another user's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.__main__ import COMMANDS
from testbed.errors import OwnerError
from tests.privileged.commands import command, fresh_name, open_folder
from tests.unit.test_json import WITHOUT

pytestmark = pytest.mark.needs("namespaces", "xdp", "ovs")
LONG = str(Path(__file__).with_name("jobs") / "long.py")
NOBODY = 65534
CONFIG = """
units: [{hosts: 2, optical_ports: 2}, {hosts: 1, optical_ports: 2}]
scale: 1
host_rate_mbps: 100
optical_rate_mbps: 100
"""
JOBS = f"""
policy: inc-fcfs
slot_s: 0.1
jobs: [{{name: a, script: {LONG}, arguments: ["0.1"], iterations: 1, megabytes: 0.1, workers: 2}}]
"""
FLOWS = "[{kind: constant, from: u1h1, to: u1h2, rate_mbps: 1}]"
STEPS = "[{at: 0, do: link list}]"
TURNS = "{period_ms: 50, matchings: [{start_ms: 0, circuits: [[u1o1, u2o1]]}, {start_ms: 25, circuits: []}]}"

# What is asked of the testbed, in this order; FOLDER has the files of above.
ASKED: list[tuple[str, ...]] = [
    ("status", "--json"),
    ("run", "--place", "u1:2", "--json", "-", LONG, "0.1"),
    ("submit", "--json", "-", "FOLDER/jobs.yaml"),
    ("cancel", "--all", "--json"),
    ("circuits", "--json"),
    ("circuits", "plan", "u1-u2", "--json"),
    ("circuits", "request", "u1-u2", "--json"),
    ("circuits", "set", "u1o2-u2o2", "--json"),
    ("circuits", "clear", "--json"),
    ("circuits", "reset", "--json"),
    ("circuits", "history", "--json"),
    ("circuits", "schedule", "FOLDER/turns.yaml", "--json"),
    ("circuits", "crossings", "--json"),
    ("circuits", "unschedule", "--json"),
    ("link", "set", "u1h1", "--rate", "50", "--json"),
    ("link", "list", "--json"),
    ("link", "reset", "all", "--json"),
    ("fault", "set", "u1h1", "--loss", "1%", "--json"),
    ("fault", "list", "--json"),
    ("fault", "clear", "--json"),
    ("script", "--json", "-", "FOLDER/steps.yaml"),
    ("traffic", "FOLDER/flows.yaml", "--seconds", "0.2", "--json"),
    ("capture", "u1h1", "--seconds", "0.1", "--output", "FOLDER/u1h1.pcap", "--json"),
]
# The fixture brings it up, and ends it, with --json.
BY_FIXTURE = ("up", "down")
WITHOUT_TESTBED = (
    "cluster",
    "systems",
    "reproduce",
    "demo",
    "doctor",
    "runs",
)  # that they would have to reach
SERVES = ("web",)  # until it is ended; its JSON, and what it says of another's testbed, are test_web.py's


@dataclass(frozen=True, slots=True)
class Brought:
    """A testbed with a folder of files for it, and what commands said of it for people."""

    name: str
    folder: Path
    said: list[str]

    def asked(self, *words: str) -> subprocess.CompletedProcess[str]:
        module, *rest = (word.replace("FOLDER", str(self.folder)) for word in words)
        ended = command(f"testbed.{module}", "--name", self.name, *rest)
        self.said.append(ended.stderr if "--json" in words else ended.stderr + ended.stdout)
        return ended


@pytest.fixture(scope="module")
def brought() -> Iterator[Brought]:
    with open_folder() as folder:
        for name, text in (
            ("config.yaml", CONFIG),
            ("jobs.yaml", JOBS),
            ("steps.yaml", STEPS),
            ("turns.yaml", TURNS),
            ("flows.yaml", FLOWS),
        ):
            (folder / name).write_text(text)
        testbed = Brought(fresh_name(), folder, [])
        up = testbed.asked("up", "--config", "FOLDER/config.yaml", "--detach", "--json")
        assert up.returncode == 0, up.stderr
        try:
            assert document(up)["state"] == "ready"
            yield testbed
        finally:
            down = testbed.asked("down", "--json")
        assert document(down)["state"] == "down"


def document(ended: subprocess.CompletedProcess[str]) -> Any:
    """Return what stdout has, which is one JSON document, and nothing else."""
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_every_command_is_asked() -> None:
    asked = {words[0] for words in ASKED}
    assert asked | {*BY_FIXTURE, *WITHOUT_TESTBED, *SERVES, *WITHOUT} == set(COMMANDS)


def test_json_is_all_that_stdout_has(brought: Brought) -> None:
    for words in ASKED:
        document(brought.asked(*words))


# ------------------------------------------------------------------ hints


class Parsed(Exception):  # no error: what a test asked for
    """The options that a command's parser makes of its words, in place of what it would do."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options


HINT = re.compile(r"\S*bin/testbed [^;,()\n]*")
BARE = re.compile(rf"(?<![\w/'])testbed (?:{'|'.join(COMMANDS)})\b(?!:)")
PLACEHOLDERS = {"SCRIPT": "x.py", "[ARGS...]": ""}


def options_of(hint: str, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """Return what the command that is hinted at takes its words for."""
    for placeholder, word in PLACEHOLDERS.items():
        hint = hint.replace(placeholder, word)
    _, name, *words = shlex.split(hint)
    assert name in COMMANDS, hint

    with monkeypatch.context() as patch:
        for method in ("parse_args", "parse_intermixed_args"):
            original = getattr(argparse.ArgumentParser, method)

            def parse(*arguments: Any, original: Any = original) -> argparse.Namespace:
                raise Parsed(original(*arguments))

            patch.setattr(argparse.ArgumentParser, method, parse)
        with pytest.raises(Parsed) as parsed:
            importlib.import_module(f"testbed.{name}").main(words)
    return parsed.value.options


def test_hints_can_be_pasted(brought: Brought, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (
        ("link", "set", "u1h2", "--down"),
        ("fault", "set", "u1h1", "--loss", "1%"),
        ("status",),
        ("link", "reset", "all"),
        ("fault", "clear"),
        ("run", "--place", "u1:2", LONG, "0.1"),
        ("submit", "--detach", "FOLDER/jobs.yaml"),
        ("cancel", "--all"),
        ("circuits",),
        ("circuits", "schedule", "FOLDER/turns.yaml"),
        ("circuits", "clear"),  # refused
        ("circuits", "unschedule"),
        ("script", "FOLDER/steps.yaml"),
        ("up", "--config", "FOLDER/config.yaml", "--detach"),  # refused
    ):
        brought.asked(*words)
    absent = fresh_name()
    others = [command(f"testbed.{name}", "--name", absent).stderr for name in ("down", "status", "circuits")]
    said = "".join([*brought.said, *others])
    hints = HINT.findall(said)
    by_command = {shlex.split(hint)[1] for hint in hints}
    assert by_command >= {"link", "fault", "status", "cancel", "down"}, said
    for hint in hints:
        options = options_of(hint, monkeypatch)
        assert options.name in (brought.name, absent), hint
    assert BARE.findall(said) == []


def test_the_summary_of_up_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary is that of a testbed of any name; what `up --json` prints has no hints."""
    from testbed.client.screen import summary
    from testbed.client.up_messages import NetworkSummary, UpReady

    ready = NetworkSummary(1, 2, (), "netdev")
    for name in ("default", "other"):
        text = summary(UpReady(ready, name, 7, "alice", "rack", False), 1.0)
        options = [options_of(hint, monkeypatch) for hint in HINT.findall(text)]
        assert [each.name or "default" for each in options] == [name] * 3


# ------------------------------------------------------------------ another user's


def test_one_exit_code_where_it_is_another_users(brought: Brought) -> None:
    asked = {words[0]: words[1:] for words in ASKED} | {
        "exec": ("u1h1", "--", "true"),
        "shell": ("-c", "nodes"),
        "down": (),
        "up": (),
    }
    assert set(asked) == set(COMMANDS) - {*WITHOUT_TESTBED, *SERVES}
    for name, words in asked.items():
        rest = [word.replace("FOLDER", str(brought.folder)) for word in words]
        ended = command(f"testbed.{name}", "--name", brought.name, *rest, uid=NOBODY)
        assert ended.returncode == OwnerError.exit_code, (name, ended.stderr)
        assert len(ended.stderr.splitlines()) == 1, (name, ended.stderr)
        assert ended.stdout == "", name
        assert "belongs to another user" in ended.stderr or name == "up", (name, ended.stderr)
