"""Figures 6 and 7: jobs of one kind arrive one a slot and are scheduled on the testbed by each policy in
turn. Owns the runs.

Total JCT is given twice. As measured, it has in it what starting and ending real processes takes here (torch
alone is two seconds of a core for each worker), which the paper's has not: "less start-ups" is waiting,
without the start of the job's own processes, and the time from its first iteration to its last.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from reproductions import live
from reproductions.example_jobs import LAYERS
from reproductions.p4inc.live.model import JobKind, Pace, iteration_s
from reproductions.p4inc.live.prediction import Asked, Given, Predicted, Queue, predict
from testbed.aggregation.site import racks_of
from testbed.client.caller import Caller
from testbed.errors import TestbedError
from testbed.figures import finished_runs
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
"""Of a job, beside four times what its training takes at the lowest rate that it can have."""


@dataclass(frozen=True, slots=True)
class LiveTrial:
    """A trial on a testbed: one run of a queue of jobs."""

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
class Costs:
    """The seconds that processes take on this machine: from hosts to ready, by worker of a job; around a
    job's training; from then until its hosts are free.
    """

    start_up_s: float
    handling_s: float
    leaving_s: float


def demands(jobs: int, seed: int, slot_s: float) -> list[tuple[float, int]]:
    """(seconds of arrival, workers) of each job: the same for every scheme and kind."""
    times = poisson_s(jobs, 1 / slot_s, stream(seed, "arrivals"))
    numbers = stream(seed, "workers").integers(0, len(WORKERS), jobs)
    return [(time_s, WORKERS[int(number)]) for time_s, number in zip(times, numbers, strict=True)]


def submission(
    trial: LiveTrial, topology: Topology, slot_s: float, folder: Path, asked: Sequence[tuple[float, int]]
) -> dict[str, Any]:
    """The jobs file."""
    kind, scale = trial.kind, topology.scale
    lowest_gbps = min(STEP_GBPS, (topology.optical_link.rate_mbps or 0.0) / 1e3 / max(WORKERS))
    longest_s = kind.iterations * iteration_s(kind, kind.volume_gigabits(topology), lowest_gbps)
    jobs = []
    for number, (time_s, workers) in enumerate(asked, 1):
        out = folder / f"{trial.stem}.job-{number}.json"
        words = [
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
            {
                "name": f"job-{number}",
                "script": str(LAYERS),
                "arguments": words,
                "workers": workers,
                "iterations": kind.iterations,
                "megabytes": kind.megabytes(scale),
                "at_s": time_s,
                "limit_s": LIMIT_S + 4 * longest_s,
            }
        )
    return {
        "policy": trial.scheme,
        "slot_s": slot_s,
        "seed": trial.seed,
        "step_gbps": STEP_GBPS,
        "jobs": jobs,
    }


def run(
    testbed: live.TestbedOfFigures,
    trial: LiveTrial,
    slot_s: float,
    folder: Path,
    asked: Sequence[tuple[float, int]] | None = None,
) -> dict[str, Any]:
    """Submits a trial's jobs and waits for them; the result of `testbed submit`, each job with what its
    script wrote as `script`.
    """
    asked = demands(trial.jobs, trial.seed, slot_s) if asked is None else asked
    wanted, result = folder / f"{trial.stem}.jobs.yaml", folder / f"{trial.stem}.run.json"
    data = submission(trial, testbed.topology, slot_s, folder, asked)
    logs = folder / f"{trial.stem}.logs"
    caller = Caller.of_this_process()
    with caller.acting():
        wanted.write_text(written(data))
        logs.mkdir(exist_ok=True)
    testbed.light_initial_circuits()
    testbed.command("submit", "--preload", "--json", str(result), "--logs", str(logs), str(wanted))
    with caller.acting():
        answer: dict[str, Any] = json.loads(result.read_text())
        for job, of_job in zip(
            data["jobs"], sorted(answer["jobs"], key=lambda ended: ended["arrival_s"]), strict=True
        ):
            of_job["script"] = json.loads(Path(job["arguments"][-1]).read_text())
    return answer


def costs(testbed: live.TestbedOfFigures, slot_s: float, folder: Path, times: int) -> Costs:
    """Measure the costs by jobs of four workers that compute nothing, alone on the testbed, before anything
    is measured: the medians of so many, after one that loads what workers are forks of.
    """
    trial = LiveTrial(JobKind("resnet50", 3, profile="none"), "inc-fcfs", 1, 0)
    jobs = [run(testbed, trial, slot_s, folder, [(0.0, max(WORKERS))])["jobs"][0] for _ in range(1 + times)]
    known_costs = [costs_of(job) for job in jobs[1:]]
    return Costs(
        *(statistics.median(getattr(known, each.name) for known in known_costs) for each in fields(Costs))
    )


def costs_of(job: dict[str, Any]) -> Costs:
    """Return the costs in such a job's result."""
    handling_s = job["training_s"] - _trained_s(job)
    return Costs(job["start_up_s"] / job["workers"], handling_s, job["ended_s"] - job["trained_s"])


def _trained_s(job: dict[str, Any]) -> float:
    return float(job["script"]["done_s"] - job["script"]["ready_s"])


def measured(trial: LiveTrial, result: dict[str, Any], topology: Topology, costs_: Costs) -> dict[str, Any]:
    """A run's numbers beside what was predicted of them."""
    jobs = result["jobs"]
    less = [job["waiting_s"] - job["start_up_s"] + _trained_s(job) for job in jobs]
    given = predicted_from(trial, result, topology)
    ahead = predicted_ahead(trial, result, topology, costs_)
    own = {job["id"]: job for job in jobs}
    rows = [
        {
            "id": id_,
            "workers": own[id_]["workers"],
            "mode": own[id_]["mode"],
            "training_s": _trained_s(own[id_]),
            "predicted_s": given.ended_s[id_] - given.started_s[id_],
            "waiting_s": own[id_]["started_s"] - own[id_]["ready_s"],
            "predicted_waiting_s": max(0.0, given.started_s[id_] - own[id_]["ready_s"]),
            "late_ms": max(own[id_]["script"]["late_ms_list"]),
            "error_over_bound": own[id_]["script"]["error_over_bound"],
        }
        for id_ in sorted(own)
    ]
    return {
        "model": trial.kind.model,
        "scheme": trial.scheme,
        "jobs": trial.jobs,
        "seed": trial.seed,
        "total_jct_s": result["total_jct_s"],
        "total_jct_less_start_ups_s": math.fsum(less),
        "connections": result["reconfigured_connections"],
        "reconfigurations": result["reconfigurations"],
        "inc_jobs": sum(job["mode"] == choice(trial.scheme).with_inc.name for job in jobs),
        "ct_bti_s": result["ct_bti_s"],
        "start_up_s": math.fsum(job["start_up_s"] for job in jobs) / len(jobs),
        "policy_s_max": result["policy_s_max"],
        "overruns": result["overruns"],
        "late_slots": result["late_slots"],
        "complaints": result["complaints"],
        "trust": live.trust([job["run"] for job in jobs]),
        "per_job": rows,
        "predicted": {
            "connections": given.connections,
            "training_error": _mean_error([(row["predicted_s"], row["training_s"]) for row in rows]),
            "ahead_total_jct_s": _total_jct_s(ahead, jobs, costs_),
            "ahead_connections": ahead.connections,
        },
    }


def _mean_error(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return, of pairs (predicted, measured), the mean of the signed and of the absolute relative errors."""
    errors = [predicted / actual - 1 for predicted, actual in pairs]
    return {"mean": math.fsum(errors) / len(errors), "absolute": math.fsum(map(abs, errors)) / len(errors)}


def _total_jct_s(predicted: Predicted, jobs: Sequence[dict[str, Any]], costs_: Costs) -> float:
    return math.fsum(predicted.ended_s[job["id"]] + costs_.handling_s - job["arrival_s"] for job in jobs)


def pace(kind: JobKind, topology: Topology) -> Pace:
    return Pace(kind, kind.volume_gigabits(topology))


def predicted_from(trial: LiveTrial, result: dict[str, Any], topology: Topology) -> Predicted:
    """Predict with the placements, and the slots in which jobs came to the policy, as they were measured."""
    model = result["model"]
    jobs: list[Job] = [job_from_json(job) for job in model["jobs"]]
    policy = catalogue.make(trial.scheme, trial.seed)
    limits, ports = limits_from_json(model["limits"]), ports_from_json(model["ports"])
    return predict(limits, Given(jobs), policy, ports, pace(trial.kind, topology))


def predicted_ahead(trial: LiveTrial, result: dict[str, Any], topology: Topology, costs_: Costs) -> Predicted:
    """Predict from the submission alone: placements and waiting for hosts are predicted as well. Of the
    result it has only the jobs' numbers.
    """
    slot_s = result["slot_s"]
    volume = gigabits(topology, trial.kind.megabytes(topology.scale), trial.kind.iterations)
    asked = [
        Asked(job["id"], job["arrival_s"], job["workers"], volume, f"{trial.seed}/place/{index}")
        for index, job in enumerate(sorted(result["jobs"], key=lambda ended: ended["arrival_s"]))
    ]
    racks = racks_of(topology)
    model = result["model"]
    queue = Queue(racks, asked, costs_.start_up_s, costs_.handling_s + costs_.leaving_s)
    policy = catalogue.make(trial.scheme, trial.seed)
    limits = limits_of(topology, slot_s, STEP_GBPS, choice(trial.scheme).with_inc.programs)
    return predict(limits, queue, policy, ports_from_json(model["ports"]), pace(trial.kind, topology))


def _one(
    testbed: live.TestbedOfFigures, trial: LiveTrial, slot_s: float, folder: Path, costs_: Costs
) -> dict[str, Any]:
    return measured(trial, run(testbed, trial, slot_s, folder), testbed.topology, costs_)


def sweep(
    trials: Sequence[LiveTrial],
    slot_s: float,
    config: dict[str, Any],
    folder: Path,
    on_done: Callable[[str], None],
    costs_times: int = 3,
) -> tuple[list[dict[str, Any]], Costs]:
    """All runs, on one testbed, after `costs_times` jobs for the costs of processes. Raises the first error
    of a run.
    """
    with live.testbed("fig7", config, folder) as testbed:
        costs_ = Costs(
            **finished_runs.row(folder, "costs", lambda: asdict(costs(testbed, slot_s, folder, costs_times)))
        )
        rows = []
        for trial in trials:
            try:
                rows.append(
                    finished_runs.row(
                        folder, trial.stem, partial(_one, testbed, trial, slot_s, folder, costs_)
                    )
                )
            except TestbedError as error:
                raise type(error)(f"{trial}: {error}") from error
            on_done(str(trial))
    return rows, costs_
