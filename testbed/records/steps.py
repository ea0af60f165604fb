"""Find the steps of scripts that were done during a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from testbed.messages.script import DoneStep, ScriptResult, StepOfRun
from testbed.records.record import Run


def steps_within(run: Run, scripts: Sequence[ScriptResult]) -> tuple[StepOfRun, ...]:
    """Return the steps in these scripts' results that were done between a run's start and end, in order."""
    steps = [_of_run(run, script, step) for script in scripts for step in script.steps]
    ended = run.ended if run.ended is not None else float("inf")
    within = [step for step in steps if 0 <= step.run_s <= ended - run.began]
    return tuple(sorted(within, key=lambda step: step.run_s))


def _of_run(run: Run, script: ScriptResult, step: DoneStep) -> StepOfRun:
    done = {each.name: getattr(step, each.name) for each in fields(step)}
    return StepOfRun(round(script.began + step.did_s - run.began, 4), script.file, **done)
