"""The result of `testbed script`: what was done when. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import Number


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step: when it was due, begun and over, in s from the script's begin, its command's exit code, and
    what that said.
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
    """A script's `file`, as it was typed, the testbed, when it began (seconds since 1970), and its steps."""

    file: str
    testbed: str
    began: Number
    steps: tuple[DoneStep, ...]


@dataclass(frozen=True, slots=True)
class StepOfRun:
    """A step of a `script` that was done while a run was under way, `run_s` after the run's begin."""

    run_s: Number
    script: str
    at_s: Number
    began_s: Number
    did_s: Number
    command: str
    exit_code: int
    output: str
    error: str
