"""The workflow, the action and the example in docs/ci.md: what their schemas cannot say of them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import container
from tests.limits import CALL_S

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "action.yml"
WORKFLOW = ROOT / ".github/workflows/ci.yml"
NIGHTLY = ROOT / ".github/workflows/nightly.yml"
RELEASE = ROOT / ".github/workflows/release.yml"
PAGE = ROOT / "docs/ci.md"
SCHEMAS = {"workflow": "vendor.github-workflows", "action": "vendor.github-actions"}
PROGRAM = re.compile(r"(?:/optinc/|\bpython3 )?(scripts/\w+\.py|\.ci/run)")


def example() -> str:
    """The first YAML block of the page."""
    match = re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


def steps(text: str) -> list[dict[str, Any]]:
    """All steps of a workflow or of a composite action."""
    document = yaml.safe_load(text)
    jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
    return [step for job in jobs for step in job["steps"]]


def check(kind: str, path: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[kind], str(path)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_the_example_is_a_workflow_of_thirty_lines(tmp_path: Path) -> None:
    path = tmp_path / "example.yml"
    path.write_text(example())
    checked = check("workflow", path)
    assert checked.returncode == 0, checked.stdout
    assert 20 <= len(example().splitlines()) <= 36
    path.write_text(example().replace("runs-on:", "runs_on:"))
    assert check("workflow", path).returncode == 1, "a linter that finds nothing"


def test_the_example_fits_the_action() -> None:
    action = yaml.safe_load(ACTION.read_text())
    (used,) = (step for step in steps(example()) if "optinc" in step.get("uses", ""))
    assert set(used["with"]) <= set(action["inputs"])
    assert {name for name, put in action["inputs"].items() if put.get("required")} <= set(used["with"])
    outputs = re.findall(rf"steps\.{used['id']}\.outputs\.(\w+)", example())
    assert outputs
    assert set(outputs) <= set(action["outputs"])


def test_what_the_action_is_given_reaches_its_steps_as_variables_and_never_as_shell() -> None:
    action = yaml.safe_load(ACTION.read_text())
    named = set()
    for step in steps(ACTION.read_text()):
        assert "${{" not in step["run"], "an input would be run as shell"
        named |= {match for value in step["env"].values() for match in re.findall(r"inputs\.(\w+)", value)}
        assert set(re.findall(r"\$\{?([A-Z]+)\b", step["run"])) <= set(step["env"]) | {"GITHUB"}
    assert named == set(action["inputs"])


@pytest.mark.parametrize(
    "text",
    [ACTION.read_text(), WORKFLOW.read_text(), NIGHTLY.read_text(), RELEASE.read_text(), example()],
    ids=["action", "ci", "nightly", "release", "example"],
)
def test_every_run_is_shell_and_what_it_runs_is_there(text: str) -> None:
    for step in steps(text):
        if script := step.get("run"):
            plain = re.sub(r"\$\{\{.*?\}\}", "expression", script)
            checked = subprocess.run(
                ["bash", "-n"], input=plain, capture_output=True, text=True, check=False, timeout=CALL_S
            )
            assert checked.returncode == 0, checked.stderr
            for program in PROGRAM.findall(script):
                assert (ROOT / program).exists(), program


def test_the_workflow_runs_the_gate_in_a_privileged_container_and_keeps_what_it_leaves() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    (gate,) = (step for step in jobs["gate"]["steps"] if ".ci/run" in step.get("run", ""))
    (words,) = command_lines(gate["run"])
    options = container.parsed(words)
    argv = container.run_command(
        "docker", container.IMAGE, options.out, options.option, options.command, {"CI": "true"}
    )
    assert "--privileged" in argv
    assert "--env=CI=true" in argv
    assert argv[-3:] == ["sh", "-c", "make p4-tools && .ci/run"]
    required = gate["env"]["TESTBED_REQUIRE"].split(",")
    assert required[0] == "all", required
    assert not {"-bmv2", "-p4c"} & set(required), "the P4 half would be skipped"
    (kept,) = (step for step in jobs["gate"]["steps"] if "upload-artifact" in step.get("uses", ""))
    assert kept["if"] == "always()"
    assert str(options.out) in kept["with"]["path"]


def command_lines(text: str) -> list[list[str]]:
    """The arguments of every call of scripts/container.py in a text, with lines that go on joined and
    variables set.
    """
    joined = re.sub(r"\$\{\w+:\+([^}]*)\}", r"\1", re.sub(r"\\\n\s*", " ", text))
    plain = re.sub(r"\$\w+", "value", joined.replace("$ENGINE", container.ENGINES[0]))
    calls = re.findall(
        r"scripts/container\.py\"? +(.*\b(?:build|run)\b.*?)(?: +#.*| +2>&1.*)?$", plain, re.MULTILINE
    )
    return [shlex.split(call) for call in calls if "`" not in call]


@pytest.mark.parametrize(
    "path", [ACTION, WORKFLOW, NIGHTLY, PAGE, ROOT / "docs/containers.md"], ids=lambda path: path.name
)
def test_every_call_of_the_script_is_one_that_it_takes(path: Path) -> None:
    lines = command_lines(path.read_text())
    assert len(lines) >= 2
    for line in lines:
        options = container.parsed(line)
        assert options.action == "build" or options.command, line
        assert ("--" in line) == ("--" in getattr(options, "command", ()))
