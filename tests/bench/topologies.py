"""Thirty random valid topologies, each brought up, pinged between all units that circuits join, summed over,
and taken down.

    python -m tests.bench.topologies [--count 30] [--seed N] [--units 5]

Prints a line for each. The first failure ends the run, with the seed and the configuration. Needs root.
"""

from __future__ import annotations

import argparse
import random
import time

from tests import topologies
from tests.privileged.commands import open_folder
from tests.privileged.host_state import assert_unchanged, host_snapshot


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=30, help="of topologies (30)")
    parser.add_argument("--seed", type=int, help="of the draws (drawn)")
    parser.add_argument("--units", type=int, default=5, help="the most that one has (5)")
    arguments = parser.parse_args()
    number = random.randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {number}", flush=True)
    before, began, lines = host_snapshot(), time.monotonic(), []

    def say(line: str) -> None:
        lines.append(line)
        print(f"{len(lines):3d} {line}", flush=True)

    with open_folder() as folder:
        topologies.tried(arguments.count, number, folder, arguments.units, say)
    print(f"{len(lines)} topologies in {time.monotonic() - began:.0f} s", flush=True)
    assert_unchanged(before)
    print("nothing is left of them", flush=True)


if __name__ == "__main__":
    main()
