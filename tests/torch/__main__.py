"""Compares torch's own distributed tests on `inc` and on gloo: `python -m tests.torch [TEST...]`.

Brings a testbed up and runs the tests of torch.testing._internal.distributed.distributed_test on it, by
`inc` and by gloo, each as workers of jobs. Fails where one passes by gloo and not by inc, unless
tests/torch/exceptions.py says why; and where an exception is no longer needed. Needs root.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.limits import CALL_S
from tests.privileged.commands import Testbed, command, running
from tests.torch.exceptions import EXCEPTIONS
from tests.torch.worker import BEGUN, MARK
from workloads.native import build

WORKER = Path(__file__).with_name("worker.py")
PLACE = "u1:2,u2:2"
WORKERS = 4  # fewer, and torch skips some of them
JOB_LIMIT_S = 1500.0
AT_ONCE = 60  # tests of a job


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a test: passed, skipped, failed or hung, and why."""

    what: str
    why: str = ""


def names_of_tests() -> list[str]:
    """The tests of torch's module, in the order of their names."""
    code = (
        "import os; os.environ.update(BACKEND='gloo', WORLD_SIZE='4');"
        "from torch.testing._internal.distributed.distributed_test import DistributedTest as D;"
        "print(*(n for n in dir(D._DistTestBase) if n.startswith('test_')))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=CALL_S
    )
    return ended.stdout.split()


def run_all(testbed: Testbed, backend: str, names: Sequence[str], folder: Path) -> dict[str, Outcome]:
    """Run tests. Return the outcome of each. A job runs them one by one, and the next job those that it did
    not come to.
    """
    outcomes: dict[str, Outcome] = {}
    left = list(names)
    while left:
        batch = folder / f"{backend}-{len(left)}"
        batch.mkdir()
        arguments = ["--place", PLACE, "--timeout", str(JOB_LIMIT_S), str(WORKER), backend]
        ended = command(
            *("testbed.run", "--name", testbed.name, *arguments, str(batch), *left[:AT_ONCE]),
            timeout_s=JOB_LIMIT_S + 60,
        )
        made = outcomes_of(ended.stdout, left[:AT_ONCE])
        if not made:
            raise RuntimeError(f"no test ran: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        outcomes |= made
        left = [name for name in left if name not in outcomes]
        print(f"{backend}: {len(outcomes)} of {len(names)}", file=sys.stderr, flush=True)
    return outcomes


def outcomes_of(output: str, asked: Sequence[str]) -> dict[str, Outcome]:
    """Return the outcomes of the tests that a job came to: the last, which not all workers ended, hung or
    failed. It is left out where what failed before may have spoiled it.
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
        elif len(reports) == WORKERS:
            outcomes[name] = Outcome("skipped" if "skipped" in kinds else "passed", why)
        elif not outcomes or outcomes[next(reversed(outcomes))].what != "failed":
            lines = [line for line in output.splitlines() if MARK not in line][-12:]
            hung = "Timeout (" in output
            outcomes[name] = Outcome("hung" if hung else "failed", " | ".join(lines)[:600])
    return outcomes


def judged(inc: dict[str, Outcome], gloo: dict[str, Outcome]) -> list[str]:
    """A line for each test that is not as it should be."""
    lines = []
    for name, ours in inc.items():
        worse = gloo[name].what == "passed" and ours.what != "passed"
        if worse and name not in EXCEPTIONS:
            lines.append(f"{name}: {ours.what} on inc, and passes on gloo: {ours.why}")
        if not worse and gloo[name].what == "passed" and name in EXCEPTIONS:
            lines.append(f"{name}: passes on inc: tests/torch/exceptions.py need not have it")
    return lines


def main(argv: Sequence[str]) -> int:
    build.compiled()  # its time is none of the first test's
    parser = argparse.ArgumentParser(prog="python -m tests.torch", description="torch's own tests on inc")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome there")
    parser.add_argument("--only", choices=("inc", "gloo"), help="run them by one of the two")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="such as test_all_reduce_sum; all of them")
    options = parser.parse_args(argv)
    known = names_of_tests()
    if unknown := set(options.tests) - set(known):
        parser.error(f"torch has no such test: {', '.join(sorted(unknown))}")
    names = options.tests or known
    began = time.monotonic()
    backends = (options.only,) if options.only else ("inc", "gloo")
    with tempfile.TemporaryDirectory(prefix="optinc-torch-") as folder, running() as testbed:
        outcomes = {backend: run_all(testbed, backend, names, Path(folder)) for backend in backends}
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        rows = {
            name: {backend: [each[name].what, each[name].why] for backend, each in outcomes.items()}
            for name in names
        }
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    for backend, each in outcomes.items():
        kinds = [outcome.what for outcome in each.values()]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("passed", "skipped", "failed", "hung"))
        print(f"{backend}: {counted}, of {len(names)}")
    wrong = [] if options.only else judged(outcomes["inc"], outcomes["gloo"])
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(EXCEPTIONS)} exceptions; {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
