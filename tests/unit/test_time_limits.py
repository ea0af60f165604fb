"""No test can wait for ever: pytest has a limit for each, and each wait for a process has one of its own, so
that the test says what it waited for, and lets go of what it holds.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.sources import ROOT, assert_no_faults

pytestmark = pytest.mark.text

TESTS = ROOT / "tests"
# a person waits for a measurement; a job's script ends with its job
ELSEWHERE = (TESTS / "bench", TESTS / "privileged" / "jobs")
RUNS = ("run", "call", "check_call", "check_output")
ALLOWED = {
    # the gate's own wait for pytest, which a timer of its ends: tests/unit/test_gate.py
    ("gate.py", "self._pytest.wait()"),
    # forks of the template, whose answer has a limit
    *(("test_jobs_template.py", f"{name}.wait()") for name in ("worker", "before", "after")),
}
MODULES = [
    path
    for path in sorted(TESTS.rglob("*.py"))
    if not any(path.is_relative_to(folder) for folder in ELSEWHERE)
]


def unlimited(source: str) -> list[tuple[int, str]]:
    """Return line and text of the calls that wait for a process, and have no limit."""
    return [
        (node.lineno, ast.unparse(node))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _waits(node, node.func)
    ]


def _waits(call: ast.Call, function: ast.Attribute) -> bool:
    if any(keyword.arg in ("timeout", None) for keyword in call.keywords):
        return False
    if function.attr in RUNS:
        return ast.unparse(function.value) == "subprocess"
    if function.attr == "communicate":
        return len(call.args) < 2
    return function.attr == "wait" and not call.args


def endless(path: Path) -> list[str]:
    """Return the faults of a module: its waits without a limit, but those allowed."""
    return [
        f"{line}: {call}: give it timeout=CALL_S of tests/limits.py"
        for line, call in unlimited(path.read_text())
        if (path.name, call) not in ALLOWED
    ]


def test_waits_for_processes_have_limits() -> None:
    assert_no_faults(MODULES, endless)


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("subprocess.run(['x'])", 1),
        ("subprocess.run(['x'], timeout=3)", 0),
        ("subprocess.run(['x'], **options)", 0),
        ("subprocess.check_output(['x'])", 1),
        ("process.wait()", 1),
        ("process.wait(3)", 0),
        ("process.communicate('x')", 1),
        ("process.communicate(None, 3)", 0),
        ("context.run(f)", 0),
    ],
)
def test_one_without_is_seen(source: str, number: int) -> None:
    assert len(unlimited(source)) == number


def test_every_test_has_a_limit_and_pytest_ends_where_that_does_not_help() -> None:
    settings = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert 0 < settings["timeout"] < settings["faulthandler_timeout"]
    assert settings["faulthandler_exit_on_timeout"] is True
