"""ALEPH's clusterings against the optimum, by size and by who can head whom: the communication time of ours
and of M-WCHA, M-WCHA's number of aggregators, and the time that ours takes for 10,000 workers.

`python -m tests.bench.clusters [--json FILE] [--into docs/aleph.md] [--seeds 20] [--sizes 10,20,50,100]`. The
deviations of rates are 0, 0.1, 0.2 and 0.3 in turn. Nothing here can fail.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.systems.aleph import fastest, mwcha, optimum
from testbed.systems.aleph.model import Instance
from tests.bench.host import facts
from tests.bench.tables import publish, table
from tests.unit.aleph_instances import instance, paired

DEVIATIONS = (0.0, 0.1, 0.2, 0.3)
DRAWS = 20  # random runs of M-WCHA on each instance
TIME_LIMIT_S = 30.0
MOST = 8  # the largest capacity that is drawn


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of instance: who can head whom, and how capacities are set."""

    label: str
    joined: float | None = None
    rack: int = 0  # mean workers per rack
    drawn: bool = False

    def instance(self, size: int, seed: int) -> Instance:
        return instance(
            size,
            DEVIATIONS[seed % len(DEVIATIONS)],
            seed,
            joined=self.joined,
            racks=max(1, size // self.rack) if self.rack else 0,
            most=MOST if self.drawn else None,
        )


SHAPES = tuple(
    Shape(f"{label}, {'drawn' if drawn else 'rates'}", joined, rack, drawn)
    for label, joined, rack in (
        ("anybody", None, 0),
        ("racks of 8", None, 8),
        ("pairs, 5 %", 0.05, 0),
        ("pairs, 10 %", 0.1, 0),
        ("pairs, 20 %", 0.2, 0),
        ("pairs, 50 %", 0.5, 0),
    )
    for drawn in (False, True)
)


@dataclass(frozen=True, slots=True)
class Compared:
    """An instance's results: communication times over the least time, and the number of contributors over the
    fewest; M-WCHA's are by run.
    """

    ours: float
    mwcha: tuple[float, ...]
    factors: tuple[float, ...]
    proven: bool
    took_s: float


def compared(asked: Instance) -> Compared:
    """Cluster an instance by both algorithms, and compare with the optimum."""
    began = time.process_time()
    ours = fastest.cluster(asked)
    took_s = time.process_time() - began
    ours.check(asked)
    least, fewest = optimum.least_time(asked, TIME_LIMIT_S), optimum.fewest(asked, TIME_LIMIT_S)
    runs = [mwcha.cluster(asked, random.Random(seed)) for seed in range(DRAWS)]
    return Compared(
        ours.time(asked) / least.value,
        tuple(run.time(asked) / least.value for run in runs),
        tuple(len(run.contributors) / fewest.value for run in runs),
        least.proven and fewest.proven,
        took_s,
    )


def rows(sizes: Sequence[int], seeds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each shape and size."""
    for shape in SHAPES:
        for size in sizes:
            each = [compared(shape.instance(size, seed)) for seed in range(seeds)]
            print(f"{shape.label}, {size} workers", file=sys.stderr, flush=True)
            yield {
                "shape": shape.label,
                "workers": size,
                "ours": statistics.fmean(run.ours for run in each),
                "ours_most": max(run.ours for run in each),
                "mwcha": statistics.fmean(ratio for run in each for ratio in run.mwcha),
                "factor": statistics.fmean(factor for run in each for factor in run.factors),
                "factor_most": max(factor for run in each for factor in run.factors),
                "behind": sum(min(run.mwcha) < run.ours * (1 - 1e-9) for run in each),
                "unproven": sum(not run.proven for run in each),
                "took_s": statistics.fmean(run.took_s for run in each),
                "instances": [asdict(run) for run in each],
            }


def large() -> dict[str, float]:
    """Return the CPU seconds that our algorithm takes for 10,000 workers, by who can head whom."""
    asked_by = {
        "anybody": instance(10_000, DEVIATIONS[-1], 3),
        "racks of 20": racked(10_000, 20),
        "100,000 pairs": paired(10_000, DEVIATIONS[-1], 100_000),
        "these pairs with drawn capacities": paired(10_000, DEVIATIONS[-1], 100_000, MOST),
        "these pairs, drawn capacities and a server of 1 Tb/s": paired(
            10_000, DEVIATIONS[-1], 100_000, MOST, 1000.0
        ),
    }
    took = {}
    for label, asked in asked_by.items():
        times = []
        for _ in range(3):
            began = time.process_time()
            fastest.cluster(asked).check(asked)
            times.append(time.process_time() - began)
        took[label] = min(times)
    return took


def racked(size: int, rack: int) -> Instance:
    """Return an instance of full racks; drawing every pair of 10,000 would take a minute."""
    whole = instance(size, DEVIATIONS[-1], 1)
    near = tuple(
        frozenset(range(worker // rack * rack, min(size, worker // rack * rack + rack))) - {worker}
        for worker in range(size)
    )
    return Instance(whole.rates, whole.capacities, whole.servers, near)


def shown(figures: dict[str, Any]) -> str:
    """Return the table and the text below it."""
    head = [
        "who can head whom, capacities",
        *("workers", "ours", "worst", "M-WCHA", "its \\|D\\|", "worst", "ours took, ms"),
    ]
    lines = [
        [
            row["shape"],
            f"{row['workers']}",
            f"{row['ours']:.3f}",
            f"{row['ours_most']:.3f}",
            f"{row['mwcha']:.2f}",
            f"{row['factor']:.2f}",
            f"{row['factor_most']:.2f}",
            f"{1e3 * row['took_s']:.0f}",
        ]
        for row in figures["rows"]
    ]
    behind, unproven = (sum(row[key] for row in figures["rows"]) for key in ("behind", "unproven"))
    seconds = ", ".join(f"{label} {took:.2f} s" for label, took in figures["large"].items())
    return (
        f"{table(head, lines)}\n\nEach row is computed from {figures['seeds']} instances, with {DRAWS} runs "
        f"of M-WCHA on each. On {behind} of all instances the method `fastest` is slower than the best run "
        f"of M-WCHA. On {unproven} of them HiGHS did not prove the optimum within {TIME_LIMIT_S:g} s. The "
        f"CPU time of `fastest` for 10,000 workers depends on which pairs of workers can be head and "
        f"member: {seconds}."
    )


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.clusters", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sizes", default="10,20,50,100")
    arguments = parser.parse_args(argv)
    figures = {
        "host": facts(),
        "seeds": arguments.seeds,
        "rows": list(rows([int(size) for size in arguments.sizes.split(",")], arguments.seeds)),
        "large": large(),
    }
    publish("clusters", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
