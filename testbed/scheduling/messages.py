"""States and plans as JSON, for policies that run in a process of their own. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from operator import index
from typing import Any

from testbed.scheduling.model import Fabric, Job, Pair, Plan, Progress, State


def fabric_to_json(fabric: Fabric) -> dict[str, Any]:
    return asdict(fabric)


def fabric_from_json(data: Mapping[str, Any]) -> Fabric:
    tuples = {name: tuple(data[name]) for name in ("ports", "inc", "switch_gbps")}
    return Fabric(**{**data, **tuples})


def job_to_json(job: Job) -> dict[str, Any]:
    return asdict(job)


def job_from_json(data: Mapping[str, Any]) -> Job:
    return Job(**{**data, "workers": tuple((unit, count) for unit, count in data["workers"])})


def ports_to_json(ports: Mapping[Pair, int]) -> list[list[int]]:
    return [[a, b, count] for (a, b), count in sorted(ports.items())]


def ports_from_json(data: Any) -> dict[Pair, int]:
    return {(a, b): count for a, b, count in data}


def state_to_json(state: State) -> dict[str, Any]:
    return {
        "fabric": fabric_to_json(state.fabric),
        "slot": state.slot,
        "jobs": [
            {
                "job": job_to_json(progress.job),
                "remaining_gigabits": progress.remaining_gigabits,
                "started": progress.started,
                "inc": progress.inc,
                "rate_gbps": progress.rate_gbps,
            }
            for progress in state.jobs
        ],
        "ports": ports_to_json(state.ports),
    }


def state_from_json(data: Mapping[str, Any]) -> State:
    jobs = tuple(Progress(**{**one, "job": job_from_json(one["job"])}) for one in data["jobs"])
    return State(fabric_from_json(data["fabric"]), data["slot"], jobs, ports_from_json(data["ports"]))


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Numbers of NumPy's kinds become Python's. ValueError or TypeError for what is no number, or no whole
    one where one is needed.
    """
    return {
        "rates": [[index(job), float(rate)] for job, rate in plan.rates.items()],
        "inc": [[index(job), index(unit)] for job, unit in plan.inc.items()],
        "ports": [[index(a), index(b), index(count)] for (a, b), count in plan.ports.items()],
    }


def plan_from_json(data: Any) -> Plan:
    """ValueError when it is no plan: whoever wrote it need not be one of ours."""
    try:
        rates = {_whole(job): float(rate) for job, rate in data["rates"]}
        inc = {_whole(job): _whole(unit) for job, unit in data["inc"]}
        ports = {(_whole(a), _whole(b)): _whole(count) for a, b, count in data["ports"]}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"no plan: {type(error).__name__}: {error}") from error
    if not all(math.isfinite(rate) for rate in rates.values()):
        raise ValueError(
            f"no plan: a rate of {next(rate for rate in rates.values() if not math.isfinite(rate))}"
        )
    return Plan(rates, inc, ports)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value
