"""TW+ against TW and a lower bound, by seed: CT-BTI, circuits set up, and the policies' CPU time in the same
run.

`python -m tests.bench.policies [--json FILE] [--into FILE] [--seeds 20] [--bound-s 4]`. The bound of a small
case is the larger of the MILP's after `--bound-s` seconds and `least_s` below; that of a large case is
`least_s`. Nothing here can fail.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from testbed.scheduling.model import Job, Limits, Load, load
from testbed.systems.p4inc import milp as exact
from testbed.systems.p4inc.policies.catalogue import make
from testbed.systems.p4inc.simulator.fluid import Simulated, simulate
from testbed.systems.p4inc.simulator.settings import SETTINGS
from tests.bench.host import facts
from tests.bench.tables import publish, table

UPDATES = 6
"""How many update times of a unit's jobs are considered."""


@dataclass(frozen=True, slots=True)
class Case:
    """A setting with other numbers of jobs and values, with INC or not; at most `runs` seeds; `small` where
    the MILP is solved too.
    """

    label: str
    setting: str
    jobs: int
    others: tuple[tuple[str, Any], ...] = ()
    inc: bool = True
    small: bool = True
    runs: int = 1000


CASES = (
    *(Case("8 units", "table1", jobs) for jobs in (40, 50, 60, 80, 100)),
    *(Case("8 units, no INC", "table1", jobs, inc=False, runs=8) for jobs in (40, 80)),
    *(Case("64 units", "fig8", jobs, small=False, runs=3) for jobs in (800, 1400)),
    Case("64 units, no INC", "fig8", 800, inc=False, small=False, runs=3),
    Case("64 units, 2 places", "fig11", 1000, (("inc", 2),), small=False, runs=3),
    Case("40 units", "fig10", 1000, (("units", 40),), small=False, runs=3),
)


def least_s(limits: Limits, jobs: Sequence[Job], *, whole: bool) -> float:
    """Return a lower bound of CT-BTI in seconds: in every interval that ends with the last job, the demand
    for INC places and optical ports must fit the time. One mode is chosen for each job, or a mixture of modes
    unless `whole`.
    """
    slot_s, began = limits.slot_s, min(job.arrival for job in jobs)
    modes: list[tuple[Job, Load, float]] = []
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []

    def row(terms: Sequence[tuple[int, float]], least: float, most: float) -> None:
        for column, value in terms:
            rows.append(len(low))
            columns.append(column)
            values.append(value)
        low.append(least)
        high.append(most)

    for job in jobs:
        first = len(modes)
        for unit in (None, *job.inc_units(limits)):
            its = load(limits, job, unit)
            if its.limit_gbps > 0:
                held = math.ceil(job.gigabits / (its.limit_gbps * slot_s) - 1e-9) * slot_s
                modes.append((job, its, held))
        own = range(first, len(modes))
        row([(at, 1.0) for at in own], 1.0, 1.0)
        # -1 stands for the last column, the end, until the number of columns is known
        row(
            [(-1, 1.0), *((at, -modes[at][2] - modes[at][1].update_s) for at in own)],
            job.arrival * slot_s,
            math.inf,
        )
    for unit in limits.units:
        places = [(job.arrival, at, s) for at, (job, its, s) in enumerate(modes) if its.inc == unit]
        for arrival in sorted({entry[0] for entry in places}):
            terms = [(at, s) for when, at, s in places if when >= arrival]
            row([*terms, (-1, -limits.inc[unit])], -math.inf, -limits.inc[unit] * arrival * slot_s)
        gbps = limits.optical_gbps(unit)
        sent = []
        for at, (job, its, _) in enumerate(modes):
            if streams := sum(
                count * limits.port_weight(unit, pair) for pair, count in its.links if unit in pair
            ):
                sent.append((job.arrival, its.update_s, at, streams * job.gigabits))
        updates = sorted({0.0, *(entry[1] for entry in sent)})
        picked = {updates[round(at)] for at in np.linspace(0, len(updates) - 1, min(len(updates), UPDATES))}
        for arrival in sorted({entry[0] for entry in sent}):
            for update_s in picked:
                terms = [
                    (at, volume)
                    for when, last_s, at, volume in sent
                    if when >= arrival and last_s >= update_s
                ]
                if terms:
                    row([*terms, (-1, -gbps)], -math.inf, -gbps * (arrival * slot_s + update_s))
    size = len(modes) + 1
    matrix = coo_array((values, (rows, np.array(columns) % size)), shape=(len(low), size)).tocsr()
    target, kinds, most = np.zeros(size), np.full(size, float(whole)), np.ones(size)
    target[-1], kinds[-1], most[-1] = 1.0, 0.0, math.inf
    options = {"time_limit": 20.0, "mip_rel_gap": 2e-3}
    solution = milp(
        target,
        constraints=LinearConstraint(matrix, low, high),
        integrality=kinds,
        bounds=Bounds(0, most),
        options=options,
    )
    return float(solution.mip_dual_bound if whole else solution.fun) - began * slot_s


def measured(cases: Sequence[Case], seeds: int, bound_s: float) -> Iterator[dict[str, Any]]:
    """Yield the results of each case; within a case, seeds follow one another."""
    for case in cases:
        setting = SETTINGS[case.setting].having({"job_count": case.jobs, **dict(case.others)})
        runs = []
        for seed in range(min(seeds, case.runs)):
            limits, jobs = setting.limits, setting.jobs(seed)
            outcomes: dict[str, Simulated] = {}
            for name in ("tw", "tw+"):
                policy = make(f"{'inc' if case.inc else 'noinc'}-{name}", seed)
                outcomes[name] = simulate(
                    limits, jobs, policy, setting.initial, record=case.small, clock=time.process_time
                )
            bounded = limits if case.inc else setting.having({"inc": 0}).limits
            low = least_s(bounded, jobs, whole=case.small)
            if case.small and case.inc:
                schedule = outcomes["tw+"].schedule
                solved = exact.solve(
                    limits,
                    jobs,
                    ports=setting.initial,
                    time_limit_s=bound_s,
                    gap=0.01,
                    warm=schedule,
                    clock=time.perf_counter,
                )
                low = max(low, solved.bound_s)
            elif case.small:
                solved = exact.solve(
                    bounded,
                    jobs,
                    ports=setting.initial,
                    time_limit_s=bound_s,
                    gap=0.01,
                    clock=time.perf_counter,
                )
                low = max(low, solved.bound_s)
            runs.append(
                {"seed": seed, "bound_s": low, **{name: _told(outcome) for name, outcome in outcomes.items()}}
            )
        yield {"label": case.label, "jobs": case.jobs, "inc": case.inc, "runs": runs}


def _told(outcome: Simulated) -> dict[str, Any]:
    return {
        "ct_bti_s": outcome.ct_bti_s,
        "connections": outcome.reconfigured_connections,
        "policy_s": outcome.policy_s,
        "total_jct_s": outcome.total_jct_s,
    }


def shown(figures: dict[str, Any]) -> str:
    """Return the table: a row for each case, means over seeds, the worst seed in brackets."""
    rows = []
    for case in figures["cases"]:
        runs = case["runs"]
        over = {n: [run[n]["ct_bti_s"] / run["bound_s"] - 1 for run in runs] for n in ("tw", "tw+")}
        ours, theirs = [run["tw+"] for run in runs], [run["tw"] for run in runs]
        cells = [f"{statistics.mean(over[n]):.1%} ({max(over[n]):.0%})" for n in ("tw", "tw+")]
        connections = [statistics.mean(run["connections"] for run in side) for side in (theirs, ours)]
        more = sum(b["connections"] > a["connections"] for a, b in zip(theirs, ours, strict=True))
        took = sum(run["policy_s"] for run in ours) / sum(run["policy_s"] for run in theirs)
        jct = sum(run["total_jct_s"] for run in ours) / sum(run["total_jct_s"] for run in theirs)
        near = sum(gap <= 0.05 for gap in over["tw+"])
        rows.append(
            [
                case["label"],
                f"{case['jobs']}",
                f"{len(runs)}",
                *cells,
                f"{near}",
                f"{connections[0]:.0f}",
                f"{connections[1]:.0f}",
                f"{more}",
                f"{took:.2f}",
                f"{jct:.2f}",
            ]
        )
    head = [
        *("limits", "jobs", "runs", "TW over the bound", "TW+ over it", "of them within 5 %"),
        *("connections, TW", "TW+", "runs with more", "time, TW+ / TW", "total JCT, TW+ / TW"),
    ]
    return table(head, rows)


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.policies", description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--into", type=Path, help="a document whose table to replace")
    parser.add_argument("--seeds", type=int, default=20, help="at most, of each case")
    parser.add_argument("--bound-s", type=float, default=4.0, help="for the MILP's bound of each run")
    arguments = parser.parse_args(argv)
    cases = []
    for case in measured(CASES, arguments.seeds, arguments.bound_s):
        cases.append(case)
        print(f"{case['label']}, {case['jobs']} jobs: {len(case['runs'])} runs", file=sys.stderr)
    figures = {"host": facts(), "bound_s": arguments.bound_s, "cases": cases}
    publish("policies", shown(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
