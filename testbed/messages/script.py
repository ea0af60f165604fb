"""The result of `testbed script`: its steps and their times. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import Number


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step: when it was due, started and done, in s since the script's start; its command's exit code and
    output.
    """

    at_s: Number
    began_s: Number
    did_s: Number
    command: str
    exit_code: int
    output: str
    error: str


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """A script's `file`, as it was typed, the testbed, the start (seconds since 1970), and the steps."""

    file: str
    testbed: str
    began: Number
    steps: tuple[DoneStep, ...]


@dataclass(frozen=True, slots=True)
class StepOfRun:
    """A step that a `script` did while a run was under way, `run_s` after the run's start."""

    run_s: Number
    script: str
    at_s: Number
    began_s: Number
    did_s: Number
    command: str
    exit_code: int
    output: str
    error: str
