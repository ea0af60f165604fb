"""Run torch's tests as the workers of jobs, and read their outcomes from the jobs' output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.privileged.commands import Testbed, command
from tests.torch.worker import BEGUN, MARK

JOB_LIMIT_S = 1500.0
AT_ONCE = 60  # most tests of a job


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a test (passed, skipped, failed or hung), and why."""

    what: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """A script whose workers run tests. Its arguments are `words`, a folder of the job's own, and the tests'
    names.
    """

    path: Path
    words: tuple[str, ...]
    place: str
    workers: int


def run_all(
    testbed: Testbed, label: str, script: Script, names: Sequence[str], folder: Path
) -> dict[str, Outcome]:
    """Run tests in jobs, one test after the other; each job continues with the tests that the one before did
    not reach. Return the outcome of each. RuntimeError where a job ran none.
    """
    outcomes: dict[str, Outcome] = {}
    left = list(names)
    while left:
        batch = folder / f"{label}-{script.workers}-{len(left)}"
        batch.mkdir(parents=True)
        job = ("--place", script.place, "--timeout", str(JOB_LIMIT_S), str(script.path), *script.words)
        ended = command(
            *("testbed.run", "--name", testbed.name, *job, str(batch), *left[:AT_ONCE]),
            timeout_s=JOB_LIMIT_S + 60,
        )
        made = outcomes_of(ended.stdout, left[:AT_ONCE], script.workers)
        if not made:
            raise RuntimeError(f"no test ran: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        outcomes |= made
        left = [name for name in left if name not in outcomes]
        print(f"{label}: {len(outcomes)} of {len(names)}", file=sys.stderr, flush=True)
    return outcomes


def outcomes_of(output: str, asked: Sequence[str], workers: int) -> dict[str, Outcome]:
    """Return the outcomes of the tests that a job reached. A last test that not all workers ended hung or
    failed; it is left out where an earlier failure may have spoiled it.
    """
    said: dict[str, list[dict[str, str]]] = {}
    for line in re.findall(rf"\] {MARK}(.*)", output):
        report = json.loads(line)
        said.setdefault(report["test"], []).append(report)
    outcomes: dict[str, Outcome] = {}
    for name in asked:
        if name not in said:
            break
        reports = [report for report in said[name] if report["outcome"] != BEGUN]
        kinds = {report["outcome"] for report in reports}
        why = next((report["why"] for report in reports if report["why"]), "")
        if "failed" in kinds:
            why = next(report["why"] for report in reports if report["outcome"] == "failed")
            outcomes[name] = Outcome("failed", why)
        elif len(reports) == workers:
            outcomes[name] = Outcome("skipped" if "skipped" in kinds else "passed", why)
        elif not outcomes or outcomes[next(reversed(outcomes))].what != "failed":
            lines = [line for line in output.splitlines() if MARK not in line][-12:]
            hung = "Timeout (" in output
            outcomes[name] = Outcome("hung" if hung else "failed", " | ".join(lines)[:600])
    return outcomes


def judged(
    inc: Mapping[str, Outcome], gloo: Mapping[str, Outcome], exceptions: Mapping[str, str]
) -> list[str]:
    """Return a line for each test that is not as it should be."""
    lines = []
    for name, ours in inc.items():
        worse = gloo[name].what == "passed" and ours.what != "passed"
        if worse and name not in exceptions:
            lines.append(f"{name}: {ours.what} on inc, and passes on gloo: {ours.why}")
        if not worse and gloo[name].what == "passed" and name in exceptions:
            lines.append(f"{name}: passes on inc: tests/torch/exceptions.py need not have it")
    return lines


def counted(outcomes: Mapping[str, Outcome]) -> str:
    """Return how many outcomes there are of each kind, in words."""
    kinds = [outcome.what for outcome in outcomes.values()]
    words = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("passed", "skipped", "failed", "hung"))
    return f"{words}, of {len(outcomes)}"
