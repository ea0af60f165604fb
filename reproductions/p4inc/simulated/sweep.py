"""Run a figure of section VII-C in several processes, and make its report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean

from reproductions.p4inc.simulated.claims import TABLE1, headline
from reproductions.p4inc.simulated.means import AOI, CT_BTI, BoundedSweep
from reproductions.p4inc.simulated.report import (
    OfferedLoad,
    PaperCell,
    SchemeMeans,
    SweepOptions,
    SweepReport,
)
from reproductions.p4inc.simulated.trials import Measured, Trial, run, trials_of
from reproductions.pool import Pool
from reproductions.progress import progress
from testbed.messages.coding import UNSET
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
    on_done: Callable[[Trial], None],
) -> BoundedSweep:
    """Run every scheme with every seed at every value, in `processes` processes. Raises the first error
    of a run.
    """
    trials = trials_of(setting, seeds, time_limit_s)
    for _, swept in setting.swept():
        swept.jobs(seeds[0], trace)  # raises for invalid settings before anything runs
    done: dict[tuple[float, str, int], Measured] = {}
    with Pool[Trial, Measured](run, (trace,), processes) as pool:
        for trial, measured in pool.results(trials):
            done[trial.value, trial.scheme, trial.seed] = measured
            on_done(trial)
    order = [
        (value, scheme, seed)
        for value in sorted(setting.values)
        for scheme in setting.schemes
        for seed in seeds
    ]
    return BoundedSweep([done[at] for at in order])


def shown(
    setting: Setting,
    seeds: Sequence[int],
    trace: Sequence[Coflow],
    *,
    processes: int,
    time_limit_s: float,
) -> BoundedSweep:
    """Run `sweep` with its progress on standard error."""
    total = len(setting.values) * len(setting.schemes) * len(seeds)
    with progress(f"{setting.name}, {setting.about}", total) as on_done:
        return sweep(
            setting,
            seeds,
            trace,
            processes=processes,
            time_limit_s=time_limit_s,
            on_done=lambda trial: on_done(str(trial)),
        )


def document(
    setting: Setting, runs: BoundedSweep, trace: Sequence[Coflow], *, options: SweepOptions
) -> SweepReport:
    """Make the report: all numbers that are printed and drawn, and every run."""
    return SweepReport(
        version=VERSION,
        setting=_plain(asdict(setting)),
        options=options,
        seeds=list(runs.seeds),
        offered=offered(setting, runs.seeds, trace),
        means=[_means(runs, scheme, value) for value in runs.values for scheme in runs.schemes],
        headline=headline(runs),
        runs=[_plain(asdict(run_)) for run_ in runs.runs],
    )


def _means(runs: BoundedSweep, scheme: str, value: float) -> SchemeMeans:
    has_bound, is_milp = runs.has(MILP), scheme == MILP
    paper = TABLE1.get(round(value), {}).get(scheme) if has_bound else None
    return SchemeMeans(
        value=value,
        scheme=scheme,
        ct_bti_s=runs.spread(scheme, value, CT_BTI),
        connections=runs.spread(scheme, value, AOI),
        mean_jct_s=runs.spread(scheme, value, "mean_jct_s"),
        time_s=runs.spread(scheme, value, "time_s"),
        reconfigurations=runs.spread(scheme, value, "reconfigurations"),
        delta=runs.deviation(scheme, value) if has_bound else UNSET,
        above_bound=runs.excess(scheme, value) if has_bound else UNSET,
        bound_s=runs.spread(scheme, value, "bound_s") if is_milp else UNSET,
        gap=runs.spread(scheme, value, "gap") if is_milp else UNSET,
        paper=PaperCell(*paper) if paper else UNSET,
    )


def offered(setting: Setting, seeds: Sequence[int], trace: Sequence[Coflow]) -> list[OfferedLoad]:
    """Compute the load that the jobs ask for, by swept value."""
    offers = []
    for value, swept in setting.swept():
        asked, held, local = [], [], []
        rate = min(swept.host_gbps, swept.port_gbps)
        for seed in seeds:
            jobs = swept.jobs(seed, trace)
            span_s = len(jobs) / swept.jobs_per_s
            between = sum(
                job.gigabits * sum(count for unit, count in job.workers if unit != job.ps) for job in jobs
            )
            asked.append(between / span_s / (swept.units * swept.ports * swept.port_gbps / 2))
            alone = [job for job in jobs if job.is_local]
            places = swept.units * swept.inc
            held.append(sum(job.gigabits for job in alone) / rate / span_s / places if places else 0.0)
            local.append(len(alone) / len(jobs))
        offers.append(OfferedLoad(value, fmean(asked), fmean(held), fmean(local)))
    return offers


def _plain(record: Mapping[str, object]) -> dict[str, object]:
    """Return the fields with "inf" for infinity, which JSON lacks."""
    return {key: "inf" if value == math.inf else value for key, value in record.items()}
