"""The words of commands: what is wrong is one line, and what belongs to a script stays its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from testbed.client.arguments import Parser
from tests.limits import CALL_S
from tests.privileged.commands import ROOT


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["link", "set", "u1h1", "--rate", "10XB"], "testbed link set: --rate 10XB: a number is accepted"),
        (["run", "--repeat", "x", "a.py"], "testbed run: --repeat x: a whole number is accepted"),
        (["run"], "testbed run: SCRIPT, ARGS is missing"),
        (["up", "--con", "rack"], "testbed up: --con rack: not known here"),
        (["up", "--config"], "testbed up: --config: expected one argument"),
        (["circuits", "se", "u1-u2"], "testbed circuits: se: "),
        (["down", "--nonesuch"], "testbed down: --nonesuch: not known here"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_is_wrong_is_one_line_that_names_it(words: list[str], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"testbed.{words[0]}", *words[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(says), line
    assert line.endswith("--help"), line


def test_an_option_is_not_shortened() -> None:
    parser = Parser(prog="x")
    parser.add_argument("--name")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs="...")
    given = parser.parse_args(["s.py", "--n", "5", "--name", "mine"])
    assert (given.name, given.arguments) == (None, ["--n", "5", "--name", "mine"])
