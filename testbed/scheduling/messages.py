"""Decode the states, jobs and decisions of policies in a process of their own, as `encoding.to_json` encodes
them. Pure.
"""

from __future__ import annotations

import math
from typing import Any

from testbed.encoding import from_json
from testbed.scheduling.model import Decision, Job, Limits, Pair, State


def limits_from_json(data: Any) -> Limits:
    """Decode limits, also those in a result of an earlier version."""
    return from_json(Limits, data, defaults=True)


def job_from_json(data: Any) -> Job:
    """Decode a job, also one in a result of an earlier version."""
    return from_json(Job, data, defaults=True)


def ports_from_json(data: Any) -> dict[Pair, int]:
    return {(a, b): count for a, b, count in data}


def state_from_json(data: Any) -> State:
    return from_json(State, data)


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
