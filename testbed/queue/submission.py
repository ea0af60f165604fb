"""Read and check a submission, the jobs file of `testbed submit`, and make its random draws. Pure;
docs/scheduling.md is its reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from testbed.errors import RequestError
from testbed.jobs.option_table import ALL_OPTIONS, AS_USUAL, OPTIONS
from testbed.jobs.options import CommonOptions
from testbed.jobs.placement import parse_place
from testbed.jobs.request import system_name
from testbed.plugins.policies import usual
from testbed.scheduling.draws import poisson_s, stream
from testbed.topology.addresses import Dpid
from testbed.topology.fields import is_number, listed, mapping, shown, text, whole
from testbed.topology.units import Unit, unit_named
from testbed.wire.circuit_policies import STATIC
from testbed.wire.spec import MAX_WORKERS

TOGETHER = "together"
MAX_JOBS = 10_000
MAX_NAME = 64
KEEP, REPLAN = "keep", "replan"
ON_FAILURE = (REPLAN, KEEP)
"""Whether policies see that a circuit's link is down, and may set up another one, or not."""
_TOP = ("policy", "slot_s", "seed", "step_gbps", "arrivals", "on_failure", "jobs")
# options of `testbed run` that are keys of a job with the same name; for the others, the replacement
SAME_AS_RUN = ("script", "arguments", "place", "ps", "sync", *OPTIONS)
ELSEWHERE = {
    "timeout": "its key in a jobs file is limit_s",
    "python": "queued jobs run in the project's own environment: testbed run --python PATH",
    "preload": "its jobs are forks of one process, or none is: testbed submit --preload",
    "logs": "each of its jobs has a folder of its own in one folder: testbed submit --logs DIR",
    "json": "all its jobs have one result: testbed submit --json FILE",
    "records": "all its jobs have one record: testbed submit --records DIR",
    "no_record": "all its jobs have one record: testbed submit --no-record",
    "repeat": "its key in a jobs file is copies",
    "traffic": "testbed traffic sends flows while a queue runs",
    "traffic_seed": "testbed traffic sends flows while a queue runs",
}
_OF_A_JOB = (
    *("name", "script", "module", "arguments", "workers", "place", "ps", "copies", "iterations"),
    *("megabytes", "update_ms", "at_s", "limit_s", "sync", *(name for name in OPTIONS if name != "module")),
)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job of a submission. `arrival_s` counts from the submission. `place` are (unit, workers), None:
    automatic, `together` in one unit; `ps` is the unit of its parameter server, None: automatic; `sync` is
    the system that sums it, None: a switch or its parameter server, as the policy decides.
    """

    name: str
    script: str
    arguments: tuple[str, ...]
    workers: int
    place: tuple[tuple[Dpid, int], ...] | None
    together: bool
    ps: Unit | None
    iterations: int
    megabytes: float
    update_ms: float
    limit_s: float | None
    arrival_s: float
    sync: str | None = None
    options: CommonOptions = AS_USUAL


@dataclass(frozen=True, slots=True)
class Submission:
    """Jobs in the order of arrival. `step_gbps` None: a quarter of an optical port's rate. `on_failure` is
    one of ON_FAILURE.
    """

    policy: str
    slot_s: float
    seed: int
    step_gbps: float | None
    jobs: tuple[JobSpec, ...]
    on_failure: str = REPLAN


def parse(data: Any) -> Submission:
    """Make the submission that parsed YAML describes. Raises RequestError for the first fault. The same data
    gives the same jobs, to the last draw.
    """
    top = _mapping(data, "jobs file", _TOP)
    seed = whole(top.get("seed", 1), "seed", 0, 2**32 - 1)
    slot_s = _number(top.get("slot_s", 1.0), "slot_s", 0.1, 3600.0)
    per_slot = None
    if "arrivals" in top:
        arrivals = mapping(top["arrivals"], "arrivals", ("per_slot",))
        per_slot = _number(arrivals.get("per_slot"), "arrivals.per_slot", 1e-6, 1e6)
    if not isinstance(top.get("jobs"), list) or not top["jobs"]:
        raise RequestError(f"jobs: {shown(top.get('jobs', 'missing'))}; a list of jobs is accepted")
    drawing = Random(f"{seed}/workers")
    jobs: list[JobSpec] = []
    for at, raw in enumerate(top["jobs"]):
        jobs += _copies(raw, f"jobs[{at}]", drawing, per_slot is not None)
    if len(jobs) > MAX_JOBS:
        raise RequestError(f"jobs: {len(jobs)} of them; up to {MAX_JOBS} are accepted")
    names = Counter(job.name for job in jobs)
    if twice := [name for name, times in names.items() if times > 1]:
        raise RequestError(f"jobs: two are named {twice[0]!r}; each needs a name of its own")
    if per_slot is not None:
        Random(f"{seed}/order").shuffle(jobs)
        times = poisson_s(len(jobs), per_slot / slot_s, stream(seed, "arrivals"))
        jobs = [_at(job, time) for job, time in zip(jobs, times, strict=True)]
    jobs.sort(key=lambda job: job.arrival_s)
    step = None if "step_gbps" not in top else _number(top.get("step_gbps"), "step_gbps", 1e-6, 1e6)
    on_failure = text(top.get("on_failure", REPLAN), "on_failure")
    if on_failure not in ON_FAILURE:
        raise RequestError(f"on_failure: {shown(on_failure)}; accepted are {', '.join(ON_FAILURE)}")
    policy = text(top.get("policy", usual()), "policy")
    return Submission(policy, slot_s, seed, step, tuple(jobs), on_failure)


def _copies(raw: Any, path: str, drawing: Random, is_poisson: bool) -> list[JobSpec]:
    data = _mapping(raw, path, _OF_A_JOB)
    for key in ("script", "iterations", "megabytes"):
        if key not in data:
            raise RequestError(f"{path}.{key}: missing; a job needs script, iterations and megabytes")
    if is_poisson and "at_s" in data:
        raise RequestError(
            f"{path}.at_s: {shown(data['at_s'])}; with arrivals.per_slot the times of arrival are drawn"
        )
    copies = whole(data.get("copies", 1), f"{path}.copies", 1, MAX_JOBS)
    name = text(data.get("name", f"job-{path[5:-1]}"), f"{path}.name")
    if not all(character.isalnum() or character in "-_." for character in name) or name.startswith("."):
        raise RequestError(
            f"{path}.name: {shown(name)}; letters, digits, hyphens, underscores and dots are accepted"
        )
    if len(name) > MAX_NAME:
        raise RequestError(f"{path}.name: {shown(name)}; up to {MAX_NAME} characters are accepted")
    place = _place(data.get("place", TOGETHER), f"{path}.place")
    options = ALL_OPTIONS.parse(data, f"{path}.")
    if options.circuits != STATIC:
        raise RequestError(
            f"{path}.circuits: {shown(options.circuits)}; static is accepted: the queue's policy decides on "
            f"circuits; by testbed run a job has a policy for its own"
        )
    slow = options.slow_workers
    made = []
    for copy in range(1, copies + 1):
        made.append(
            JobSpec(
                name=name if copies == 1 else f"{name}-{copy}",
                script=text(data.get("script", ""), f"{path}.script"),
                arguments=_arguments(data.get("arguments", []), f"{path}.arguments"),
                workers=_workers(data.get("workers"), path, place, drawing),
                place=place,
                together=data.get("place") == TOGETHER,
                ps=_unit(data.get("ps"), f"{path}.ps"),
                iterations=whole(data.get("iterations", 1), f"{path}.iterations", 1, 10**9),
                megabytes=_number(data.get("megabytes"), f"{path}.megabytes", 1e-6, 1e6),
                update_ms=_number(data.get("update_ms", 0.0), f"{path}.update_ms", 0.0, 1e7),
                limit_s=None
                if "limit_s" not in data
                else _number(data.get("limit_s"), f"{path}.limit_s", 0.1, 1e7),
                arrival_s=_number(data.get("at_s", 0.0), f"{path}.at_s", 0.0, 1e7),
                sync=_sync(data.get("sync"), f"{path}.sync"),
                options=replace(options, stragglers=str(slow.of_copy(copy - 1)) if slow else None),
            )
        )
    return made


def _mapping(raw: Any, path: str, accepted: tuple[str, ...]) -> Mapping[str, Any]:
    """Return a mapping with accepted keys only. Raises RequestError; for an option of `testbed run` that goes
    elsewhere, it says where.
    """
    for key in ELSEWHERE if isinstance(raw, dict) else ():
        if key in raw and key not in accepted:
            raise RequestError(f"{'' if path == 'jobs file' else f'{path}.'}{key}: {ELSEWHERE[key]}")
    return mapping(raw, path, accepted)


def _workers(raw: Any, path: str, place: tuple[tuple[Dpid, int], ...] | None, drawing: Random) -> int:
    if place is not None:
        total = sum(count for _, count in place)
        if raw not in (None, total):
            raise RequestError(f"{path}.workers: {shown(raw)}; {path}.place has {total}")
        return total
    choices = raw if isinstance(raw, list) else [raw]
    if not choices or not all(type(choice) is int and 1 <= choice <= MAX_WORKERS for choice in choices):
        raise RequestError(
            f"{path}.workers: {shown(raw)}; a whole number from 1 to {MAX_WORKERS}, or a list of such to "
            f"draw from, is accepted"
        )
    return int(drawing.choice(choices))


def _place(raw: Any, at: str) -> tuple[tuple[Dpid, int], ...] | None:
    if raw == TOGETHER:
        return None
    accepted = f"UNIT:WORKERS such as u1:2,u2:2, or the word {TOGETHER}, is accepted"
    if not isinstance(raw, str):
        raise RequestError(f"{at}: {shown(raw)}; {accepted}")
    try:
        return parse_place(raw)
    except RequestError as error:
        raise RequestError(f"{at}: {str(error).removeprefix('--place ')}") from error


def _unit(raw: Any, at: str) -> Unit | None:
    if raw is None:
        return None
    try:
        return unit_named(raw)
    except RequestError as error:
        raise RequestError(f"{at}: {shown(raw)}; a unit such as u3 is accepted") from error


def _sync(raw: Any, at: str) -> str | None:
    if raw is None:
        return None
    name = text(raw, at)
    try:
        return system_name(name)
    except RequestError as error:
        raise RequestError(f"{at}: {str(error).removeprefix('--sync ')}") from error


def _arguments(raw: Any, at: str) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(word, str) or is_number(word) for word in raw):
        raise RequestError(f"{at}: {shown(raw)}; a list of words and numbers is accepted")
    return tuple(str(word) for word in raw)


def _number(raw: Any, at: str, low: float, high: float) -> float:
    """Check a number; None: it is missing."""
    if not is_number(raw) or not low <= raw <= high:
        value = "missing" if raw is None else shown(raw)
        raise RequestError(f"{at}: {value}; a number from {low:g} to {high:g} is accepted")
    return float(raw)


def _at(job: JobSpec, time_s: float) -> JobSpec:
    return replace(job, arrival_s=time_s)


def kinds(submission: Submission) -> str:
    """Describe the submitted jobs in words, for the user."""
    sizes = sorted({job.workers for job in submission.jobs})
    jobs = "1 job" if len(submission.jobs) == 1 else f"{len(submission.jobs)} jobs"
    return f"{jobs} of {listed(str(size) for size in sizes)} worker{'s' * (sizes != [1])}"
