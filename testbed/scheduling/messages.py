"""States and decisions as JSON, for policies that run in a process of their own. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from operator import index
from typing import Any

from testbed.scheduling.model import (
    Decision,
    Job,
    Limits,
    Pair,
    Progress,
    Rotation,
    RotationTurn,
    State,
    UnitIndex,
)


def limits_to_json(limits: Limits) -> dict[str, Any]:
    return asdict(limits)


def limits_from_json(data: Mapping[str, Any]) -> Limits:
    names = ("ports", "inc", "switch_gbps", "unit_port_gbps")
    tuples = {name: tuple(data[name]) for name in names if name in data}
    return Limits(**{**data, **tuples})


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
        "limits": limits_to_json(state.limits),
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
    jobs = tuple(Progress(**{**progress, "job": job_from_json(progress["job"])}) for progress in data["jobs"])
    return State(limits_from_json(data["limits"]), data["slot"], jobs, ports_from_json(data["ports"]))


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """Numbers of NumPy's kinds become Python's. ValueError or TypeError for what is no number, or no whole
    one where one is needed.
    """
    return {
        "rates": [[index(job), float(rate)] for job, rate in decision.rates.items()],
        "inc": [[index(job), index(unit)] for job, unit in decision.inc.items()],
        "ports": _indices(decision.ports),
        "rotation": None if decision.rotation is None else rotation_to_json(decision.rotation),
    }


def rotation_to_json(rotation: Rotation) -> dict[str, Any]:
    """ValueError or TypeError for what is no number."""
    turns = [{"ports": _indices(turn.ports), "lasts_ms": float(turn.lasts_ms)} for turn in rotation.turns]
    return {"guard_ms": float(rotation.guard_ms), "turns": turns}


def _indices(ports: Mapping[Pair, int]) -> list[list[int]]:
    return [[index(a), index(b), index(count)] for (a, b), count in ports.items()]


def decision_from_json(data: Any) -> Decision:
    """ValueError when it is no decision: whoever wrote it need not be one of ours."""
    try:
        rates = {_whole(job): float(rate) for job, rate in data["rates"]}
        inc = {_whole(job): UnitIndex(_whole(unit)) for job, unit in data["inc"]}
        ports = _circuits(data["ports"])
        turning = data.get("rotation")
        rotation = None if turning is None else _rotation(turning)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ValueError(f"no decision: {type(error).__name__}: {error}") from error
    if not all(math.isfinite(rate) for rate in rates.values()):
        raise ValueError(
            f"no decision: a rate of {next(rate for rate in rates.values() if not math.isfinite(rate))}"
        )
    return Decision(rates, inc, ports, rotation)


def _rotation(data: Any) -> Rotation:
    turns = tuple(RotationTurn(_circuits(turn["ports"]), float(turn["lasts_ms"])) for turn in data["turns"])
    return Rotation(turns, float(data["guard_ms"]))


def _circuits(data: Any) -> dict[Pair, int]:
    return {(UnitIndex(_whole(a)), UnitIndex(_whole(b))): _whole(count) for a, b, count in data}


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value
