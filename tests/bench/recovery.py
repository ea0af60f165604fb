"""The window and ALEPH's integrity check at growing losses, by the model in recovery_model.py: the time of a
vector, and the retransmissions.

`python -m tests.bench.recovery [--json FILE] [--into FILE] [--seeds 3] [--fragments 2048] [--members 4]`. The
unit of time is a full frame's time on a link; nothing here is measured on a wire. Nothing here can fail
except by a wrong sum.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.host import facts
from tests.bench.recovery_model import RECOVERIES, Setup, Tree
from tests.bench.tables import publish, table

LOSSES = (0.0, 0.001, 0.01, 0.1)
DELAYS = (1.0, 25.0)  # round trips of 8 and 104 frames


def measured(fragments: int, members: int, seeds: int) -> Iterator[dict[str, Any]]:
    """Yield each case with the runs of both recoveries, by seed."""
    for delay in DELAYS:
        for loss in LOSSES:
            runs: dict[str, list[dict[str, Any]]] = {}
            for recovery in RECOVERIES:
                setups = (
                    Setup(members=members, fragments=fragments, loss=loss, delay=delay, seed=seed)
                    for seed in range(seeds)
                )
                runs[recovery] = [asdict(Tree(setup, recovery).run()) for setup in setups]
            yield {
                "delay": delay,
                "loss": loss,
                "round_trip": Setup(delay=delay).round_trip,
                "workers": Setup(members=members).workers,
                "fragments": fragments,
                "runs": runs,
            }


def shown(figures: dict[str, Any]) -> str:
    """Return the table: means over the seeds, and the spread of the ratios."""
    head = (
        *("loss a link, round trip", "window, time", "integrity, time", "integrity / window"),
        *("again: window", "integrity", "frames, integrity / window"),
    )
    return table(head, [row(case) for case in figures["cases"]])


def row(case: dict[str, Any]) -> list[str]:
    """Return a case's line. Times are relative to the vector's time on a link without loss."""
    window, integrity = case["runs"]["window"], case["runs"]["integrity"]
    fragments, pushes = case["fragments"], case["fragments"] * case["workers"]
    ratios = [b["time"] / a["time"] for a, b in zip(window, integrity, strict=True)]
    frames = statistics.mean(b["frames"] / a["frames"] for a, b in zip(window, integrity, strict=True))
    return [
        f"{case['loss']:.1%}, {case['round_trip']:.0f} frames",
        *(f"{statistics.mean(run['time'] for run in runs) / fragments:.2f}" for runs in (window, integrity)),
        f"{statistics.mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        *(f"{statistics.mean(run['again'] for run in runs) / pushes:.1%}" for runs in (window, integrity)),
        f"{frames:.2f}",
    ]


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recovery", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument("--seeds", type=int, default=3, help="of each case")
    parser.add_argument("--fragments", type=int, default=2048, help="of a vector")
    parser.add_argument("--members", type=int, default=4, help="of each of the two heads")
    arguments = parser.parse_args(argv)
    cases = []
    for case in measured(arguments.fragments, arguments.members, arguments.seeds):
        cases.append(case)
        print(f"loss {case['loss']:.1%}, round trip {case['round_trip']:.0f}", file=sys.stderr)
    figures = {"host": facts(), "cases": cases}
    publish("recovery", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
