"""The MILP on Table I's jobs: its time, the gap that it reaches, and the time of its stages.

`python -m tests.bench.milp [--json FILE] [--into FILE] [--seeds 5] [--gap 0.02] [--limit-s 60]`. It starts
without a schedule; runs follow one another on one thread. Nothing here can fail.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reproductions.p4inc.simulated.claims import TABLE1
from testbed.systems.p4inc.checker import check
from testbed.systems.p4inc.milp import solve
from testbed.systems.p4inc.simulator.settings import MILP, SETTINGS
from tests.bench.host import facts
from tests.bench.tables import publish, table

JOBS = (40, 50, 60, 80, 100)


def measured(seeds: Sequence[int], gap: float, limit_s: float) -> Iterator[dict[str, Any]]:
    """Yield a run for each number of jobs and seed."""
    setting = SETTINGS["table1"]
    for count in JOBS:
        for seed in seeds:
            jobs = setting.jobs(seed, job_count=count)
            began = time.perf_counter()
            solution = solve(
                setting.limits,
                jobs,
                ports=setting.initial,
                time_limit_s=limit_s,
                gap=gap,
                clock=time.perf_counter,
            )
            took_s = time.perf_counter() - began
            report = check(solution.schedule) if solution.schedule is not None else None
            yield {
                "jobs": count,
                "seed": seed,
                "took_s": took_s,
                "ct_bti_s": solution.ct_bti_s if report else None,
                "bound_s": solution.bound_s,
                "gap": solution.gap if report else None,
                "status": solution.status,
                "connections": report.reconfigured_connections if report else None,
                "reconfigurations": report.reconfigurations if report else None,
                "stages": [
                    {"name": s.name, "seconds": s.seconds, "solves": s.solves} for s in solution.stages
                ],
            }


def shown(figures: dict[str, Any]) -> str:
    """Return the table: a row for each number of jobs; each cell lists the seeds' values in ascending
    order.
    """
    rows = []
    for count in JOBS:
        runs = [run for run in figures["runs"] if run["jobs"] == count]
        solved = [run for run in runs if run["gap"] is not None]
        paper = TABLE1[count].get(MILP)
        gaps = ", ".join(f"{gap:.1%}" for gap in sorted(run["gap"] for run in solved))
        bounds_s = [sum(s["seconds"] for s in run["stages"] if s["name"].endswith("bound")) for run in runs]
        rows.append(
            [
                f"{count}",
                "-" if paper is None else f"{paper[0]:g}",
                ", ".join(f"{took_s:.2f}" for took_s in sorted(run["took_s"] for run in runs)),
                _range(bounds_s, 2),
                gaps if len(solved) == len(runs) else f"{gaps}; {len(runs) - len(solved)} without a schedule",
                "-" if paper is None else f"{paper[3]}",
                _range([run["connections"] for run in solved], 0),
                _range([run["reconfigurations"] for run in solved], 0),
            ]
        )
    head = ["jobs", "paper, MILP, s", "ours, s", "of that the bounds, s", "gaps"]
    return table([*head, "paper, AOI", "circuits set up", "in so many slots"], rows)


def _range(values: Sequence[float], digits: int) -> str:
    if not values:
        return "-"
    least, most = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.milp", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument("--seeds", type=int, default=5, help="from 1 on, of each number of jobs")
    parser.add_argument("--gap", type=float, default=0.02, help="at which the MILP may end")
    parser.add_argument("--limit-s", type=float, default=60.0, help="of each run")
    arguments = parser.parse_args(argv)
    runs = []
    for run in measured(range(1, arguments.seeds + 1), arguments.gap, arguments.limit_s):
        runs.append(run)
        print(
            f"{run['jobs']} jobs, seed {run['seed']}: {run['took_s']:.2f} s, {run['status']}", file=sys.stderr
        )
    figures = {"host": facts(), "gap": arguments.gap, "limit_s": arguments.limit_s, "runs": runs}
    publish("milp", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
