"""The window and ALEPH's integrity check at growing losses, on running testbeds: the time of sums, and the
packets sent for them.

`python -m tests.bench.recoveries [--json FILE] [--into FILE] [--pairs 3]`, as root. Jobs run by turns:
window, integrity, integrity, window. A ratio is of two adjacent jobs. Every link loses frames in both
directions. The only assertion is that sums are exact.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.wire.recovery import Recovery
from tests.bench.host import ROOT, facts
from tests.bench.recovery_worker import MARK, PACKETS
from tests.bench.tables import publish, table
from tests.privileged.commands import Testbed, command, running

WORKER = ROOT / "tests" / "bench" / "recovery_worker.py"
SUMS = {0.0: 60, 0.1: 60, 1.0: 30, 10.0: 6}  # by loss in percent
LIMIT_S = 150
RACK = """
units: [{hosts: 4, optical_ports: 0}]
host_rate_mbps: 200
scale: 1
"""
HEADS = """
units:
  - hosts: [{rate_mbps: 600}, {rate_mbps: 600}, {}, {}, {}, {}, {}, {}]
  - {kind: cpu, hosts: [{rate_mbps: 600}]}
ocs: {circuits: [[u1o1, u2o1]]}
host_rate_mbps: 200
optical_rate_mbps: 600
scale: 1
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A testbed and the system of its jobs."""

    name: str
    config: str
    system: str
    workers: int
    links: tuple[str, ...]  # with loss, in addition to the workers' links


CASES = (
    Case("4 workers of a rack", RACK, "inc", 4, ()),
    Case("8 workers below heads", HEADS, "aleph", 8, ("u1o1", "u2h1")),
)


def run(testbed: Testbed, case: Case, recovery: Recovery, sums: int, folder: Path) -> dict[str, Any]:
    """Run one job. Return the milliseconds of a sum, and the packets that its workers sent besides first
    pushes, as shares of these.
    """
    file = folder / "result.json"
    words = ("--sync", case.system, "--recovery", recovery, "--json", str(file), "--timeout", str(LIMIT_S))
    ended = command("testbed.run", "--name", testbed.name, *words, str(WORKER), str(sums))
    if ended.returncode:
        raise SystemExit(f"{case.name}, {recovery}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    said = next(line for line in ended.stdout.splitlines() if MARK in line).partition(MARK)[2]
    stats = [worker["stats"] for worker in json.loads(file.read_text())["workers"]]
    pushed = sum(each["pushed"] for each in stats)
    return {
        "sum_ms": 1e3 * json.loads(said)["seconds"] / sums,
        "again": sum(each["retransmits"] for each in stats) / pushed,
        "asked": sum(each["asked"] for each in stats) / pushed,
    }


def measured(pairs: int, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """Yield each case and loss with the runs of both recoveries, by pair."""
    turns = (Recovery.WINDOW, Recovery.INTEGRITY)
    for case in cases:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            config = folder / "testbed.yaml"
            config.write_text(case.config)
            with running(str(config)) as testbed:
                for loss, sums in SUMS.items():
                    _set_loss(testbed, case, loss)
                    runs: dict[str, list[dict[str, Any]]] = {recovery: [] for recovery in turns}
                    for pair in range(pairs):
                        for recovery in turns[:: -1 if pair % 2 else 1]:
                            runs[recovery].append(run(testbed, case, recovery, sums, folder))
                    yield {"case": case.name, "loss": loss, "runs": runs}


def _set_loss(testbed: Testbed, case: Case, loss: float) -> None:
    links = (*(f"u1h{worker}" for worker in range(1, case.workers + 1)), *case.links)
    words = ("set", *links, "--loss", f"{loss}%") if loss else ("clear", "all")
    ended = command("testbed.fault", "--name", testbed.name, *words)
    assert ended.returncode == 0, ended.stderr


def shown(figures: dict[str, Any]) -> str:
    """Return the table: medians over the pairs, and the spread of the ratios."""
    head = (
        *("workers, loss a link", "window, ms a sum", "integrity, ms", "integrity / window"),
        *("again: window", "integrity", "questions"),
    )
    return table(head, [row(case) for case in figures["cases"]])


def row(case: dict[str, Any]) -> list[str]:
    """Return a case's line."""
    window, integrity = (case["runs"][recovery] for recovery in (Recovery.WINDOW, Recovery.INTEGRITY))
    ratios = [b["sum_ms"] / a["sum_ms"] for a, b in zip(window, integrity, strict=True)]

    def median(runs: Sequence[dict[str, Any]], key: str) -> float:
        return statistics.median(run[key] for run in runs)

    return [
        f"{case['case']}, {case['loss']:g} %",
        *(f"{median(runs, 'sum_ms'):.1f}" for runs in (window, integrity)),
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        *(f"{median(runs, 'again'):.1%}" for runs in (window, integrity)),
        f"{median(integrity, 'asked'):.1%}",
    ]


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recoveries", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument("--pairs", type=int, default=3, help="jobs of each recovery, for each case and loss")
    arguments = parser.parse_args(argv)
    cases = []
    for case in measured(arguments.pairs, CASES):
        cases.append(case)
        print(*row(case), sep=" | ", file=sys.stderr)
    figures = {"host": facts(), "packets": PACKETS, "cases": cases}
    publish("recoveries", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
