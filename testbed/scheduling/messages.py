"""Encode states and decisions as JSON, for policies in a process of their own. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from testbed.encoding import from_json, to_json
from testbed.scheduling.model import Decision, Job, Limits, Pair, State


def limits_to_json(limits: Limits) -> dict[str, Any]:
    return dict(to_json(limits))


def limits_from_json(data: Mapping[str, Any]) -> Limits:
    """Decode limits, also those in a result of an earlier version."""
    return from_json(Limits, data, defaults=True)


def job_to_json(job: Job) -> dict[str, Any]:
    return dict(to_json(job))


def job_from_json(data: Mapping[str, Any]) -> Job:
    """Decode a job, also one in a result of an earlier version."""
    return from_json(Job, data, defaults=True)


def ports_from_json(data: Any) -> dict[Pair, int]:
    return {(a, b): count for a, b, count in data}


def state_to_json(state: State) -> dict[str, Any]:
    return dict(to_json(state))


def state_from_json(data: Mapping[str, Any]) -> State:
    return from_json(State, data)


def decision_to_json(decision: Decision) -> dict[str, Any]:
    """Encode a decision; NumPy's numbers become Python's. Raises ValueError or TypeError for anything but a
    number, or a whole number where one is needed.
    """
    return dict(to_json(decision))


def decision_from_json(data: Any) -> Decision:
    """Decode a decision. Raises ValueError if it is none: any program may have written it."""
    try:
        decision = from_json(Decision, data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"no decision: {type(error).__name__}: {error}") from error
    for rate in decision.rates.values():
        if not math.isfinite(rate):
            raise ValueError(f"no decision: a rate of {rate}")
    return decision
