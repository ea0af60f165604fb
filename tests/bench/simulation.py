"""The growth of the simulator and the policies with the network: time and memory of each scheme, on one core.

`python -m tests.bench.simulation [--json FILE] [--into FILE]`. Units from 16 to 1,024, with jobs, and jobs a
second, in proportion to them; and also with the paper's 20 jobs a second. Each run is a process of its own,
so that its memory is its own.

`--in-turn UNITS JOBS RATE TIMES` runs one case, all `--schemes` in turn in one process, which gives the most
reliable ratios on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.systems.p4inc.policies.catalogue import TITLES, make
from testbed.systems.p4inc.simulator.fluid import simulate
from testbed.systems.p4inc.simulator.settings import FOUR, SETTINGS
from tests.bench.host import ROOT, facts
from tests.bench.tables import publish, table

SEED = 0
PAPER_JOBS_PER_S = 20.0
# units, jobs, jobs a second
GROWING = tuple(
    (units, jobs, PAPER_JOBS_PER_S * units / 64)
    for units, jobs in (
        (16, 350),
        (32, 700),
        (64, 1400),
        (128, 2800),
        (256, 5000),
        (512, 10_000),
        (1024, 20_000),
    )
)
CASES = (*GROWING, (256, 5000, PAPER_JOBS_PER_S), (1024, 20_000, PAPER_JOBS_PER_S))


def measure(scheme: str, units: int, job_count: int, jobs_per_s: float) -> dict[str, Any]:
    """Make one run in this process. `run_s`: everything except making the jobs; `cpu_s`: its CPU time;
    `policy_s`: the policy's part of that.
    """
    setting = SETTINGS["fig8"].having({"units": units, "job_count": job_count, "jobs_per_s": jobs_per_s})
    began = time.perf_counter()
    jobs = setting.jobs(SEED)
    made, began_cpu = time.perf_counter(), time.process_time()
    outcome = simulate(setting.limits, jobs, make(scheme, SEED), setting.initial, clock=time.process_time)
    return {
        "scheme": scheme,
        "units": units,
        "jobs": job_count,
        "jobs_per_s": jobs_per_s,
        "make_s": made - began,
        "run_s": time.perf_counter() - made,
        "cpu_s": time.process_time() - began_cpu,
        "policy_s": outcome.policy_s,
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "slots": outcome.slots,
        "ct_bti_s": outcome.ct_bti_s,
        "reconfigured_connections": outcome.reconfigured_connections,
    }


def measured(cases: Sequence[tuple[int, int, float]], schemes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield all runs, one after the other, each on the same core."""
    core = min(os.sched_getaffinity(0))
    for units, job_count, jobs_per_s in cases:
        for scheme in schemes:
            argv = [
                sys.executable,
                "-m",
                "tests.bench.simulation",
                "--one",
                scheme,
                f"{units}",
                f"{job_count}",
                f"{jobs_per_s}",
            ]
            done = subprocess.run(
                ["taskset", "-c", f"{core}", *argv], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
            )
            yield json.loads(done.stdout)


def in_turn(
    schemes: Sequence[str], units: int, job_count: int, jobs_per_s: float, times: int
) -> dict[str, dict[str, float]]:
    """Return the least CPU time of each scheme's policy over the runs, and its ratio to the first
    scheme's.
    """
    took: dict[str, list[float]] = {scheme: [] for scheme in schemes}
    for _ in range(times):
        for scheme in schemes:
            took[scheme].append(measure(scheme, units, job_count, jobs_per_s)["policy_s"])
    first = min(took[schemes[0]])
    return {
        scheme: {"policy_s": min(seconds), "ratio": min(seconds) / first} for scheme, seconds in took.items()
    }


def shown(figures: dict[str, Any]) -> str:
    """Return the table: CPU seconds by scheme, a row for each size."""
    schemes = figures["schemes"]
    by_case: dict[tuple[int, int, float], dict[str, dict[str, Any]]] = {}
    for row in figures["rows"]:
        by_case.setdefault((row["units"], row["jobs"], row["jobs_per_s"]), {})[row["scheme"]] = row
    rows = []
    for (units, job_count, jobs_per_s), by_scheme in by_case.items():
        least, most = (
            min(row["slots"] for row in by_scheme.values()),
            max(row["slots"] for row in by_scheme.values()),
        )
        rows.append(
            [
                f"{units}",
                f"{job_count}",
                f"{jobs_per_s:g}",
                f"{least} to {most}",
                *(f"{by_scheme[scheme]['cpu_s']:.2f}" for scheme in schemes),
                f"{sum(row['cpu_s'] for row in by_scheme.values()):.1f}",
                f"{max(row['rss_bytes'] for row in by_scheme.values()) / 2**20:.0f}",
            ]
        )
    titles = [f"{TITLES[scheme]}, s" for scheme in schemes]
    return table(["units", "jobs", "jobs a second", "slots", *titles, "all, s", "most memory, MiB"], rows)


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument(
        "--schemes", nargs="+", choices=tuple(TITLES), default=FOUR, help="the four of section VII-A"
    )
    parser.add_argument(
        "--one", nargs=4, metavar=("SCHEME", "UNITS", "JOBS", "RATE"), help="one run, in this process"
    )
    parser.add_argument(
        "--in-turn", nargs=4, metavar=("UNITS", "JOBS", "RATE", "TIMES"), help="one case, in this process"
    )
    arguments = parser.parse_args(argv)
    if arguments.in_turn:
        units, job_count, jobs_per_s, times = arguments.in_turn
        print(
            json.dumps(in_turn(arguments.schemes, int(units), int(job_count), float(jobs_per_s), int(times)))
        )
        return 0
    if arguments.one:
        scheme, units, job_count, jobs_per_s = arguments.one
        print(json.dumps(measure(scheme, int(units), int(job_count), float(jobs_per_s))))
        return 0
    rows = []
    for row in measured(CASES, arguments.schemes):
        rows.append(row)
        print(
            f"{row['scheme']}, {row['units']} units, {row['jobs']} jobs: {row['run_s']:.2f} s, "
            f"{row['rss_bytes'] / 2**20:.0f} MiB, {row['slots']} slots",
            file=sys.stderr,
        )
    figures: dict[str, Any] = {
        "host": facts(),
        "seed": SEED,
        "schemes": list(arguments.schemes),
        "rows": rows,
    }
    publish("simulation", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
