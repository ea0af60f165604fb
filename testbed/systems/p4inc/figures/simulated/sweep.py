"""A figure of section VII-C from its runs: who runs them, and the document of what they came to."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from testbed.report import host
from testbed.reproduction.pool import Pool
from testbed.systems.p4inc.figures.simulated.claims import TABLE1, findings, headline
from testbed.systems.p4inc.figures.simulated.means import AOI, CT_BTI, Sweep
from testbed.systems.p4inc.figures.simulated.points import Measured, Point, points_of, run
from testbed.systems.p4inc.simulator.coflows import Coflow
from testbed.systems.p4inc.simulator.settings import MILP, Setting

VERSION = 1


def sweep(
    setting: Setting,
    seeds: Sequence[int],
    trace: Sequence[Coflow],
    *,
    processes: int,
    time_limit_s: float,
    on_done: Callable[[Point], None],
) -> Sweep:
    """Runs every scheme with every seed at every value, in `processes` processes. Raises the first error of a
    run.
    """
    points = points_of(setting, seeds, time_limit_s)
    for _, point in setting.points():
        point.jobs(seeds[0], trace)  # what cannot be is refused before anything runs
    done: dict[tuple[float, str, int], Measured] = {}
    with Pool[Point, Measured](run, (trace,), processes) as pool:
        for point_, measured in pool.results(points):
            done[point_.value, point_.scheme, point_.seed] = measured
            on_done(point_)
    order = [
        (value, scheme, seed)
        for value in sorted(setting.values)
        for scheme in setting.schemes
        for seed in seeds
    ]
    return Sweep([done[at] for at in order])


def document(
    setting: Setting,
    found: Sweep,
    trace: Sequence[Coflow],
    *,
    took_s: float,
    checkout: Path,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """All that is printed and drawn, and every run."""
    return {
        "version": VERSION,
        "paper": "p4inc",
        "figure": setting.name,
        "setting": _plain(asdict(setting)),
        "options": dict(options),
        "seeds": list(found.seeds),
        "host": {**asdict(host.facts()), "commit": commit(checkout)},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "took_s": round(took_s, 1),
        "offered": offered(setting, found.seeds, trace),
        "means": [
            {"value": value, "scheme": scheme, **_mean(found, scheme, value)}
            for value in found.values
            for scheme in found.schemes
        ],
        "headline": headline(found),
        "claims": [asdict(finding) for finding in findings(setting.name, found)],
        "runs": [_plain(asdict(one)) for one in found.runs],
    }


def _mean(found: Sweep, scheme: str, value: float) -> dict[str, Any]:
    metrics = {
        name: asdict(found.spread(scheme, value, name)) for name in (CT_BTI, AOI, "mean_jct_s", "time_s")
    }
    metrics["reconfigurations"] = asdict(found.spread(scheme, value, "reconfigurations"))
    if found.has(MILP):
        metrics["delta"] = asdict(found.deviation(scheme, value))
        metrics["above_bound"] = asdict(found.excess(scheme, value))
    if scheme == MILP:
        metrics |= {name: asdict(found.spread(scheme, value, name)) for name in ("bound_s", "gap")}
    paper = TABLE1.get(round(value), {}).get(scheme) if found.has(MILP) else None
    if paper:
        metrics["paper"] = dict(
            zip(("time_s", "ct_bti_s", "delta_percent", "connections"), paper, strict=True)
        )
    return metrics


def offered(setting: Setting, seeds: Sequence[int], trace: Sequence[Coflow]) -> list[dict[str, float]]:
    """What the jobs ask for, by swept value, as means over the seeds; 1 is all there is from the first
    arrival to the last.

    `aoi_without_inc`: the bytes between units, of half of all ports' capacity, a circuit having two.
    `inc_places`: the time for which jobs with all workers in one unit would hold a place of a switch's INC,
    sending at a server's rate, or a port's. `local` is the share of such jobs.
    """
    found = []
    for value, point in setting.points():
        asked, held, local = [], [], []
        rate = min(point.host_gbps, point.port_gbps)
        for seed in seeds:
            jobs = point.jobs(seed, trace)
            span_s = len(jobs) / point.jobs_per_s
            between = sum(
                job.gigabits * sum(count for unit, count in job.workers if unit != job.ps) for job in jobs
            )
            asked.append(between / span_s / (point.units * point.ports * point.port_gbps / 2))
            alone = [job for job in jobs if job.is_local]
            places = point.units * point.inc
            held.append(sum(job.gigabits for job in alone) / rate / span_s / places if places else 0.0)
            local.append(len(alone) / len(jobs))
        means = {"aoi_without_inc": fmean(asked), "inc_places": fmean(held), "local": fmean(local)}
        found.append({"value": value, **means})
    return found


def commit(checkout: Path) -> str | None:
    """Of the source that ran; None where there is no git, or no checkout."""
    words = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: it is a word there."""
    return {key: "inf" if value == math.inf else value for key, value in record.items()}
