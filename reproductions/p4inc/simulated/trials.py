"""One run of a sweep: a scheme, a seed and a value of the swept field. Owns the measurement of a run."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.errors import TestbedError
from testbed.messages.coding import decode
from testbed.scheduling.model import Job
from testbed.systems.p4inc.checker import Checked, check
from testbed.systems.p4inc.policies import catalogue
from testbed.systems.p4inc.simulator.coflows import Coflow
from testbed.systems.p4inc.simulator.fluid import Simulated, simulate
from testbed.systems.p4inc.simulator.settings import MILP, OWN, Setting

TITLES = {MILP: "MILP", **catalogue.TITLES}
WARM = ("inc-tw+", "inc-tw", "inc-fcfs")
"""Schemes whose schedules the MILP may start from: it takes the best of them."""
LEAST_S = 0.1
"""The MILP's time limit where the policies have used up its time."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a sweep. `setting` already contains the swept value."""

    setting: Setting
    value: float
    scheme: str
    seed: int
    time_limit_s: float

    def __str__(self) -> str:
        return f"{TITLES[self.scheme]}, {self.setting.sweep} {self.value:g}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of a run. `time_s`: the time of deciding, of all calls of the policy or of the MILP.

    `bound_s`: the MILP's proven bound on the CT-BTI; `gap`: (CT-BTI - bound) / CT-BTI; `status`: HiGHS's
    outcome; `stages_s`: the time of each stage of the MILP. `connections_bound`: no schedule with that CT-BTI
    sets up fewer circuits, as far as proven.
    """

    value: float
    scheme: str
    seed: int
    ct_bti_s: float
    connections: int
    reconfigurations: int
    mean_jct_s: float
    time_s: float
    bound_s: float | None = None
    gap: float | None = None
    status: str | None = None
    stages_s: Mapping[str, float] | None = None
    connections_bound: int | None = None


def read(run: Mapping[str, object]) -> Measured:
    """Decode a run from a report, where infinity is "inf". TestbedError where it has another form."""
    return decode(Measured, {key: math.inf if value == "inf" else value for key, value in run.items()}, "run")


def run(trial: Trial, trace: Sequence[Coflow]) -> Measured:
    """Run a trial, and check its schedule against the paper's equations. TestbedError where a check fails."""
    jobs = trial.setting.jobs(trial.seed, trace)
    if trial.scheme == MILP:
        return _solved(trial, jobs)
    simulation = _simulated(trial, trial.scheme, jobs)
    assert simulation.schedule is not None
    assert simulation.policy_s is not None
    report = check(simulation.schedule)
    simulated = (simulation.ct_bti_s, simulation.reconfigured_connections, simulation.reconfigurations)
    checked = (report.ct_bti_s, report.reconfigured_connections, report.reconfigurations)
    if abs(simulated[0] - checked[0]) > 1e-6 or simulated[1:] != checked[1:]:
        raise TestbedError(
            f"the simulator has CT-BTI, circuits and reconfigurations {simulated}, the checker {checked}"
        )
    return _measured(trial, jobs, report, simulation.policy_s)


def _simulated(trial: Trial, scheme: str, jobs: Sequence[Job]) -> Simulated:
    setting = trial.setting
    policy = catalogue.make(scheme, trial.seed, None if setting.steps == OWN else setting.steps)
    return simulate(setting.limits, jobs, policy, setting.initial, record=True, clock=time.perf_counter)


def _measured(trial: Trial, jobs: Sequence[Job], report: Checked, time_s: float) -> Measured:
    waited_s = sum(report.finish_s[job.id] - job.arrival * trial.setting.slot_s for job in jobs)
    return Measured(
        trial.value,
        trial.scheme,
        trial.seed,
        report.ct_bti_s,
        report.reconfigured_connections,
        report.reconfigurations,
        mean_jct_s=waited_s / len(jobs),
        time_s=time_s,
    )


def _solved(trial: Trial, jobs: Sequence[Job]) -> Measured:
    """Solve the MILP, started from the best schedule of the policies. Their time counts in its time and
    its limit.
    """
    from testbed.systems.p4inc import milp

    setting, began = trial.setting, time.perf_counter()
    starts = [_simulated(trial, scheme, jobs) for scheme in WARM]
    best = min(starts, key=lambda start: (start.ct_bti_s, start.reconfigured_connections))
    solution = milp.solve(
        setting.limits,
        jobs,
        ports=setting.initial,
        time_limit_s=max(LEAST_S, trial.time_limit_s - (time.perf_counter() - began)),
        warm=best.schedule,
        fewest=True,
        clock=time.perf_counter,
    )
    took_s = time.perf_counter() - began
    if solution.schedule is None:
        raise TestbedError(
            f"the MILP is {solution.status} after {took_s:.0f} s, although it began with a schedule"
        )
    measured = _measured(trial, jobs, check(solution.schedule), took_s)
    # take the MILP's own CT-BTI, which counts from the first arrival: its first job need not start at once
    return dataclasses.replace(
        measured,
        ct_bti_s=solution.ct_bti_s,
        bound_s=solution.bound_s,
        gap=solution.gap,
        connections_bound=solution.connections_bound,
        status=solution.status,
        stages_s={stage.name: round(stage.seconds, 3) for stage in solution.stages},
    )


def trials_of(setting: Setting, seeds: Sequence[int], time_limit_s: float) -> list[Trial]:
    """List all runs of a sweep, the longest first, so that no process ends long after the others."""
    trials = [
        Trial(swept, value, scheme, seed, time_limit_s)
        for value, swept in setting.swept()
        for scheme in setting.schemes
        for seed in seeds
    ]
    return sorted(
        trials, key=lambda p: (p.scheme == MILP, p.setting.job_count / p.setting.units), reverse=True
    )
