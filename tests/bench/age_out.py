"""The time that a block takes which ages out, over its timeout: figure 14 of Trio-ML. 20 blocks are pushed
back to back by one of two workers, of whom the other never comes.

`python -m tests.bench.age_out [--runs N] [--json FILE]`, as root.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.host import facts
from tests.privileged.age_scenarios import fabric
from tests.privileged.inside import findings


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.age_out", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    runs = [findings("age_scenarios:recovered", fabric()) for _ in range(options.runs)]
    rows = {}
    for timeout_ms in runs[0]:
        over = [[took / float(timeout_ms) for took in run[timeout_ms]] for run in runs]
        medians = sorted(statistics.median(run) for run in over)
        rows[timeout_ms] = {"medians": medians, "most": max(max(run) for run in over)}
        print(
            f"{timeout_ms:>4} ms: {medians[0]:.2f} to {medians[-1]:.2f} timeouts (medians of {len(runs)} "
            f"runs), {rows[timeout_ms]['most']:.2f} at most"
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"host": facts(), "age_out": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
