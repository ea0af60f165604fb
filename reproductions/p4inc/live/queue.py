"""Figures 6 and 7: jobs of one kind arrive, one per slot on average, and each policy in turn schedules them
on the testbed. Owns the runs.

Total JCT has two values. The measured one includes starting and ending real processes on this machine (torch
alone takes two seconds of a core for each worker), which the paper's does not. "Less start-ups" is the
waiting time without the start of the job's own processes, plus the time from its first iteration to its last.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.example_jobs import LAYERS, LayersResult
from reproductions.p4inc.live.model import JobKind, Pace, iteration_s
from reproductions.p4inc.live.prediction import Asked, Given, Predicted, Queue, predict
from reproductions.p4inc.live.report import Costs, JobTraining, QueuePrediction, QueueRow, mean_errors
from testbed.aggregation.site import racks_of
from testbed.client.caller import Caller
from testbed.errors import TestbedError
from testbed.figures import finished_runs
from testbed.messages.coding import Number, as_json, decode
from testbed.messages.submission import QueuedRun, SubmissionResult
from testbed.plugins.policies import choice
from testbed.scheduling.draws import poisson_s, stream
from testbed.scheduling.live import gigabits, limits_of
from testbed.scheduling.messages import job_from_json, limits_from_json, ports_from_json
from testbed.scheduling.model import Job
from testbed.systems.p4inc.policies import catalogue
from testbed.topology.model import Topology
from testbed.topology.yaml_text import written

WORKERS = (2, 4)
STEP_GBPS = 10.0
LIMIT_S = 120.0
"""Time limit of a job, to which four times its training time at its lowest possible rate is added."""


@dataclass(frozen=True, slots=True)
class LiveTrial:
    """One run of a queue of jobs on a testbed."""

    kind: JobKind
    scheme: str
    jobs: int
    seed: int

    def __str__(self) -> str:
        return f"{self.kind.model}, {self.jobs} jobs, {catalogue.TITLES[self.scheme]}, seed {self.seed}"

    @property
    def stem(self) -> str:
        return f"{self.kind.model}.{self.jobs}.{self.scheme}.{self.seed}"


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job of a jobs file. The last argument of its script is the file of its result."""

    name: str
    script: str
    arguments: Sequence[str | int]
    workers: int
    iterations: int
    megabytes: Number
    at_s: Number
    limit_s: Number


@dataclass(frozen=True, slots=True)
class JobsFile:
    """The contents of a jobs file, which `testbed submit` reads."""

    policy: str
    slot_s: Number
    seed: int
    step_gbps: Number
    jobs: Sequence[SubmittedJob]


@dataclass(frozen=True, slots=True)
class TrainedJob:
    """A job of a trial that trained to its end, and the result that its script wrote."""

    job: QueuedRun
    script: LayersResult

    @property
    def trained_s(self) -> float:
        """Return the seconds from its first iteration to its last."""
        return float(self.script.done_s - self.script.ready_s)

    @property
    def start_up_s(self) -> float:
        return self.known("start_up_s")

    @property
    def less_start_up_s(self) -> float:
        """Return the seconds that it waited and trained, without the start of its own processes."""
        return self.known("waiting_s") - self.start_up_s + self.trained_s

    def costs(self) -> Costs:
        """Return the process costs measured in this job."""
        handling_s = self.known("training_s") - self.trained_s
        leaving_s = self.known("ended_s") - self.known("trained_s")
        return Costs(self.start_up_s / self.job.workers, handling_s, leaving_s)

    def known(self, time: str) -> float:
        """Return one of its times by field name. TestbedError where the job did not get so far."""
        seconds: float | None = getattr(self.job, time)
        if seconds is None:
            raise TestbedError(f"job {self.job.id}: it has no {time}: it has not trained to its end")
        return seconds


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial, and its jobs, all of which trained to their end."""

    result: SubmissionResult
    jobs: tuple[TrainedJob, ...]


def demands(jobs: int, seed: int, slot_s: float) -> list[tuple[float, int]]:
    """Draw the arrival in seconds and the number of workers of each job; the same for every scheme and
    kind.
    """
    times = poisson_s(jobs, 1 / slot_s, stream(seed, "arrivals"))
    numbers = stream(seed, "workers").integers(0, len(WORKERS), jobs)
    return [(time_s, WORKERS[int(number)]) for time_s, number in zip(times, numbers, strict=True)]


def submission(
    trial: LiveTrial, topology: Topology, slot_s: float, folder: Path, asked: Sequence[tuple[float, int]]
) -> JobsFile:
    """Return the contents of the jobs file."""
    kind, scale = trial.kind, topology.scale
    lowest_gbps = min(STEP_GBPS, (topology.optical_link.rate_mbps or 0.0) / 1e3 / max(WORKERS))
    longest_s = kind.iterations * iteration_s(kind, kind.volume_gigabits(topology), lowest_gbps)
    jobs = []
    for number, (time_s, workers) in enumerate(asked, 1):
        out = folder / f"{trial.stem}.job-{number}.json"
        words: list[str | int] = [
            "--model",
            kind.model,
            "--profile",
            kind.profile,
            "--iterations",
            kind.iterations,
            "--scale",
            scale,
        ]
        words += ["--warm-up", 0, "--batch", kind.batch, "--out", str(out)]
        jobs.append(
            SubmittedJob(
                name=f"job-{number}",
                script=str(LAYERS),
                arguments=words,
                workers=workers,
                iterations=kind.iterations,
                megabytes=kind.megabytes(scale),
                at_s=time_s,
                limit_s=LIMIT_S + 4 * longest_s,
            )
        )
    return JobsFile(trial.scheme, slot_s, trial.seed, STEP_GBPS, jobs)


def run(
    testbed: live.TestbedOfFigures,
    trial: LiveTrial,
    slot_s: float,
    folder: Path,
    asked: Sequence[tuple[float, int]] | None = None,
) -> TrialResult:
    """Submit a trial's jobs, wait until all have trained, and return their result."""
    asked = demands(trial.jobs, trial.seed, slot_s) if asked is None else asked
    wanted, result = folder / f"{trial.stem}.jobs.yaml", folder / f"{trial.stem}.run.json"
    data = submission(trial, testbed.topology, slot_s, folder, asked)
    logs = folder / f"{trial.stem}.logs"
    caller = Caller.of_this_process()
    with caller.acting():
        wanted.write_text(written(as_json(data)))
        logs.mkdir(exist_ok=True)
    testbed.light_initial_circuits()
    testbed.command("submit", "--preload", "--json", str(result), "--logs", str(logs), str(wanted))
    with caller.acting():
        answer = live.submission_result(result)
        arrived = sorted(answer.jobs, key=lambda ended: ended.arrival_s)
        scripts = {
            ended.id: _script_result(Path(str(job.arguments[-1])))
            for job, ended in zip(data.jobs, arrived, strict=True)
        }
    return TrialResult(answer, tuple(TrainedJob(job, scripts[job.id]) for job in answer.jobs))


def _script_result(file: Path) -> LayersResult:
    return decode(LayersResult, json.loads(file.read_text()), file.name)


def costs(testbed: live.TestbedOfFigures, slot_s: float, folder: Path, times: int) -> Costs:
    """Measure process costs before the trials, with jobs of four workers that compute nothing, alone on the
    testbed. Return the medians of `times` jobs; a first job, which loads the modules that workers are forked
    with, is not counted.
    """
    trial = LiveTrial(JobKind("resnet50", 3, profile="none"), "inc-fcfs", 1, 0)
    jobs = [run(testbed, trial, slot_s, folder, [(0.0, max(WORKERS))]).jobs[0] for _ in range(1 + times)]
    known_costs = [job.costs() for job in jobs[1:]]
    return Costs(
        *(statistics.median(getattr(known, each.name) for known in known_costs) for each in fields(Costs))
    )


def measured(trial: LiveTrial, ended: TrialResult, topology: Topology, costs_: Costs) -> QueueRow:
    """Return a run's numbers, each with its prediction."""
    result, jobs = ended.result, [each.job for each in ended.jobs]
    given = predicted_from(trial, result, topology)
    ahead = predicted_ahead(trial, result, topology, costs_)
    rows = [
        JobTraining(
            id=each.job.id,
            workers=each.job.workers,
            mode=each.job.mode,
            training_s=each.trained_s,
            predicted_s=given.ended_s[each.job.id] - given.started_s[each.job.id],
            waiting_s=each.known("started_s") - each.known("ready_s"),
            predicted_waiting_s=max(0.0, given.started_s[each.job.id] - each.known("ready_s")),
            late_ms=max(each.script.late_ms_list),
            error_over_bound=each.script.error_over_bound,
        )
        for each in sorted(ended.jobs, key=lambda each: each.job.id)
    ]
    return QueueRow(
        model=trial.kind.model,
        scheme=trial.scheme,
        jobs=trial.jobs,
        seed=trial.seed,
        total_jct_s=result.total_jct_s,
        total_jct_less_start_ups_s=math.fsum(each.less_start_up_s for each in ended.jobs),
        connections=result.reconfigured_connections,
        reconfigurations=result.reconfigurations,
        inc_jobs=sum(job.mode == choice(trial.scheme).with_inc.name for job in jobs),
        ct_bti_s=result.ct_bti_s,
        start_up_s=math.fsum(each.start_up_s for each in ended.jobs) / len(jobs),
        policy_s_max=result.policy_s_max,
        overruns=result.overruns,
        late_slots=result.late_slots,
        complaints=result.complaints,
        trust=live.trust([job.run.verdict for job in jobs if job.run]),
        per_job=rows,
        predicted=QueuePrediction(
            connections=given.connections,
            training_error=mean_errors([row.predicted_s / row.training_s - 1 for row in rows]),
            ahead_total_jct_s=_total_jct_s(ahead, jobs, costs_),
            ahead_connections=ahead.connections,
        ),
    )


def _total_jct_s(predicted: Predicted, jobs: Sequence[QueuedRun], costs_: Costs) -> float:
    return math.fsum(predicted.ended_s[job.id] + costs_.handling_s - job.arrival_s for job in jobs)


def pace(kind: JobKind, topology: Topology) -> Pace:
    return Pace(kind, kind.volume_gigabits(topology))


def predicted_from(trial: LiveTrial, result: SubmissionResult, topology: Topology) -> Predicted:
    """Predict a run, given the measured placements and the slots in which jobs reached the policy."""
    model = result.model
    jobs: list[Job] = [job_from_json(job) for job in model.jobs]
    policy = catalogue.make(trial.scheme, trial.seed)
    limits, ports = limits_from_json(model.limits), ports_from_json(model.ports)
    return predict(limits, Given(jobs), policy, ports, pace(trial.kind, topology))


def predicted_ahead(
    trial: LiveTrial, result: SubmissionResult, topology: Topology, costs_: Costs
) -> Predicted:
    """Predict a run from the submission alone: placements and the wait for hosts are predicted too. From the
    result it uses only the jobs' identity, arrival and size, and the initial circuits.
    """
    slot_s = result.slot_s
    volume = gigabits(topology, trial.kind.megabytes(topology.scale), trial.kind.iterations)
    asked = [
        Asked(job.id, job.arrival_s, job.workers, volume, f"{trial.seed}/place/{index}")
        for index, job in enumerate(sorted(result.jobs, key=lambda ended: ended.arrival_s))
    ]
    racks = racks_of(topology)
    queue = Queue(racks, asked, costs_.start_up_s, costs_.handling_s + costs_.leaving_s)
    policy = catalogue.make(trial.scheme, trial.seed)
    limits = limits_of(topology, slot_s, STEP_GBPS, choice(trial.scheme).with_inc.programs)
    return predict(limits, queue, policy, ports_from_json(result.model.ports), pace(trial.kind, topology))


def _one(
    testbed: live.TestbedOfFigures, trial: LiveTrial, slot_s: float, folder: Path, costs_: Costs
) -> QueueRow:
    return measured(trial, run(testbed, trial, slot_s, folder), testbed.topology, costs_)


def sweep(
    trials: Sequence[LiveTrial],
    slot_s: float,
    configuration: str,
    folder: Path,
    on_done: Callable[[str], None],
    costs_times: int = 3,
) -> tuple[list[QueueRow], Costs]:
    """Run all trials on one testbed of this configuration (YAML), after `costs_times` jobs that measure
    process costs. Raises the first error of a run, with the trial's name.
    """
    with live.testbed("fig7", configuration, folder) as testbed:
        costs_ = finished_runs.row(
            folder, "costs", Costs, lambda: costs(testbed, slot_s, folder, costs_times)
        )
        rows = []
        for trial in trials:
            try:
                rows.append(
                    finished_runs.row(
                        folder,
                        trial.stem,
                        QueueRow,
                        partial(_one, testbed, trial, slot_s, folder, costs_),
                    )
                )
            except TestbedError as error:
                raise type(error)(f"{trial}: {error}") from error
            on_done(str(trial))
    return rows, costs_
