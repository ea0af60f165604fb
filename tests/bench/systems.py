"""The cost of summing by block records without slow workers: Trio-ML beside P4INC-AOI at the same gradients
per packet, and SwitchML-256 with its pool of 512.

`python -m tests.bench.systems [--json FILE]`, as root. Workers at one switch without declared rates sum a
vector of known values (workloads/jobs/vectors.py); all ways take turns, a job each, in one run. A way's time
is the median over its jobs of a job's median sum. Ratios are of the jobs of one round, so that other load on
the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproductions import live
from testbed.client.environment import CHECKOUT
from testbed.topology.yaml_text import written
from tests.bench.host import facts

MTU = 4200  # 1,024 gradients of a packet, and headers
POOL, WHOLE = 2, 1  # jobs that share a switch's slots: 512 of them each, and all 1,024


@dataclass(frozen=True, slots=True)
class SummedWay:
    """A system with options, on a testbed whose slots are shared among `jobs` jobs."""

    title: str
    sync: str
    lanes: int
    jobs: int


WAYS = (
    SummedWay("P4INC-AOI", "switches", 256, WHOLE),
    SummedWay("SwitchML-256", "switches", 256, POOL),
    SummedWay("Trio-ML", "trio", 256, WHOLE),
    SummedWay("P4INC-AOI", "switches", 1024, WHOLE),
    SummedWay("Trio-ML", "trio", 1024, WHOLE),
)


def network(workers: int, jobs: int) -> dict[str, Any]:
    """Return a rack."""
    return {"units": [{"hosts": workers}], "host_rate_mbps": "unshaped", "mtu": MTU, "inc": {"jobs": jobs}}


def sum_ms(
    testbed: live.TestbedOfFigures, way: SummedWay, workers: int, values: int, turns: int, file: Path
) -> float:
    """Run a job, and return the median of its sums in milliseconds."""
    testbed.command(
        *("run", "--place", f"u1:{workers}", "--sync", way.sync, "--lanes", str(way.lanes)),
        *(str(CHECKOUT / "workloads" / "jobs" / "vectors.py"), "--values", str(values)),
        *("--turns", str(turns + 2), "--warm-up", "2", "--out", str(file)),
    )
    return float(json.loads(file.read_text())["sum_ms"])


def measured(workers: int, values: int, turns: int, rounds: int, folder: Path) -> list[list[float]]:
    """Return, for each way, its jobs' medians in milliseconds, by round."""
    times: list[list[float]] = [[] for _ in WAYS]
    with ExitStack() as stack:
        testbeds = {
            jobs: stack.enter_context(
                live.testbed(f"systems-{jobs}", written(network(workers, jobs)), folder)
            )
            for jobs in (POOL, WHOLE)
        }
        for _ in range(rounds):
            for way, medians in zip(WAYS, times, strict=True):
                file = folder / "sums.json"
                medians.append(sum_ms(testbeds[way.jobs], way, workers, values, turns, file))
    return times


def compared(times: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Return a row for each way; `over` is its time over P4INC-AOI's at the same gradients per packet."""
    base = {way.lanes: its for way, its in zip(WAYS, times, strict=True) if way.title == WAYS[0].title}
    rows = []
    for way, its in zip(WAYS, times, strict=True):
        ratios = [each / other for each, other in zip(its, base[way.lanes], strict=True)]
        rows.append(
            {
                "way": way.title,
                "gradients_per_packet": way.lanes,
                "pool": 1024 // way.jobs if way.sync == "switches" else None,
                "ms": statistics.median(its),
                "ms_list": list(its),
                "over": statistics.median(ratios),
                "over_least": min(ratios),
                "over_most": max(ratios),
            }
        )
    return rows


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.systems", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--values", type=int, default=1_000_003, help="of the vector (%(default)s)")
    parser.add_argument("--turns", type=int, default=11, help="sums of a job (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="jobs of each way (%(default)s)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        times = measured(options.workers, options.values, options.turns, options.rounds, Path(folder))
    rows = compared(times)
    print(f"{'':>14} {'gradients':>9} {'ms a sum':>8} {'over P4INC-AOI':>24}")
    for row in rows:
        span = f"{row['over']:.2f} ({row['over_least']:.2f} to {row['over_most']:.2f})"
        print(f"{row['way']:>14} {row['gradients_per_packet']:>9} {row['ms']:>8.1f} {span:>24}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        settings = {key: getattr(options, key) for key in ("workers", "values", "turns", "rounds")}
        options.json.write_text(json.dumps({"host": facts(), **settings, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
