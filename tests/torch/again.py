"""Repeat a training that once hung now and then: `python -m tests.torch.again [--runs N]`.

A sharded model with tensor parallelism on four workers in two units, 40 iterations, each run a job of its own
(tests/privileged/jobs/habits.py). Fails where a run does not end properly. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

from tests.privileged.commands import ROOT, command, running

RUNS = 10
WORKERS = 4
HABITS = ROOT / "tests/privileged/jobs/habits.py"
HABIT = "sharded_and_parallel"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torch.again", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="(%(default)s)")
    options = parser.parse_args(argv)
    times_s: list[float] = []
    with running() as testbed:
        for run in range(1, options.runs + 1):
            begun_s = time.monotonic()
            job = ("--name", testbed.name, "--place", "u1:2,u2:2", str(HABITS), HABIT)
            ended = command("testbed.run", *job)
            if ended.returncode or ended.stdout.count(f"habit: {HABIT}: ok") != WORKERS:
                print(f"{HABIT}, run {run}: exit code {ended.returncode}: {ended.stdout}{ended.stderr}")
                return 1
            times_s.append(time.monotonic() - begun_s)
    spread = f"{min(times_s):.1f} to {max(times_s):.1f}"
    print(f"{HABIT}: {len(times_s)} runs ended, in {statistics.median(times_s):.1f} s each ({spread})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
