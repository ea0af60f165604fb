"""FSDP2 over the network's sums against gloo's: bytes on each link beside their bounds, and an iteration's
time.

`python -m tests.bench.fsdp [--rates 100,200] [--json FILE] [--into FILE]`, as root. A small transformer is
sharded over four workers, in one unit and in two; across units, sums are made at a server's host or at a
switch. Both kinds train in turn in the same processes, over the same links. Bytes are whole frames on rank
0's link, and time is the slowest worker's; medians over turns.

Bounds, for W workers and S bytes of all workers together: an all-gather sends S / W up and receives S (W - 1)
/ W down; a reduce-scatter sends S (W - 1) / W up and receives S / W down. Frame headers are not included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.fsdp_worker import MARK
from tests.bench.host import ROOT, facts
from tests.bench.tables import publish, table
from tests.privileged.commands import command, running

WORKERS = 4
PLACES = {
    "one unit": ("u1:4", "inc"),
    "two units, summed at a host": ("u1:2,u2:2", "inc"),
    "two units, at a switch": ("u1:2,u2:2", "switches"),
}
CONFIG = (
    "units: [{{hosts: 4}}, {{hosts: 4}}, {{kind: cpu, hosts: 2}}]\n"
    "host_rate_mbps: {0}\noptical_rate_mbps: {0}\nscale: 1\n"
)
TURNS, ITERATIONS, LIMIT_S = 4, 2, 120


def bounds(row: Mapping[str, float], workers: int = WORKERS) -> tuple[float, float]:
    """Return the least bytes that a worker's link must carry: up, down."""
    gathered, scattered = row["gathered_bytes"], row["scattered_bytes"]
    others = (workers - 1) / workers
    return gathered / workers + scattered * others, gathered * others + scattered / workers


def measured(rate_mbps: float, turns: int, iterations: int) -> list[dict[str, Any]]:
    """Measure each placement of the workers on links of this rate, and return the rows."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "units.yaml"
        config.write_text(CONFIG.format(f"{rate_mbps:g}"))
        with running(str(config)) as testbed:
            for where, (place, sync) in PLACES.items():
                script = str(ROOT / "tests" / "bench" / "fsdp_worker.py")
                options = ("--name", testbed.name, "--place", place, "--sync", sync)
                options = (*options, "--timeout", f"{LIMIT_S}")
                ended = command("testbed.run", *options, script, f"{turns}", f"{iterations}")
                rows.append({"where": where, "rate_mbps": rate_mbps, "runs": _said(ended)})
    return rows


def _said(ended: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, float]]]:
    lines = [line.partition(MARK)[2] for line in ended.stdout.splitlines() if MARK in line]
    if ended.returncode or not lines:
        raise SystemExit(f"exit code {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-1000:]}")
    runs: dict[str, list[dict[str, float]]] = json.loads(lines[-1])
    return runs


def _median(rows: Iterable[Mapping[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def shown(figures: Mapping[str, Any]) -> str:
    """Return the table."""
    lines: list[Sequence[str]] = []
    for row in figures["rows"]:
        inc, gloo = row["runs"]["inc"], row["runs"]["gloo"]
        up, down = bounds(inc[0])
        by_kind = [
            f"{_median(rows, name) / bound:.2f}"
            for name, bound in (("up_bytes", up), ("down_bytes", down))
            for rows in (inc, gloo)
        ]
        times = [_median(rows, "iteration_s") for rows in (inc, gloo)]
        size = f"{inc[0]['gathered_bytes'] / 1e6:.1f}, {inc[0]['scattered_bytes'] / 1e6:.1f}"
        ratio = f"{times[1] / times[0]:.2f}"
        lines.append([row["where"], f"{row['rate_mbps']:g}", size, *by_kind, f"{times[0] * 1e3:.0f}", ratio])
    head = [
        "4 workers in",
        "link, Mb/s",
        "gathered, scattered, MB",
        "up / bound, inc",
        "gloo",
        "down / bound, inc",
        "gloo",
        "inc, ms",
        "gloo's time / inc's",
    ]
    return table(head, lines)


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fsdp", description=__doc__)
    parser.add_argument("--rates", default="100,200", help="of all links, in Mb/s")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    parser.add_argument("--into", type=Path, metavar="FILE", help="put the table into this document, too")
    arguments = parser.parse_args(argv)
    rates = [float(word) for word in arguments.rates.split(",")]
    rows = [row for rate in rates for row in measured(rate, arguments.turns, arguments.iterations)]
    figures = {"host": facts(), "rows": rows}
    publish("fsdp", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
