"""What a session and a submission come to, as JSON. Pure: reads what the session kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from testbed.queue.queued import Queued, describe
from testbed.queue.session import Session
from testbed.scheduling.messages import job_to_json, limits_to_json, ports_to_json
from testbed.topology.model import Topology

_COMPLAINTS_SHOWN = 3


def of_session(session: Session) -> dict[str, Any]:
    """For `status`."""
    account = session.account
    with session.lock:
        session.look()
        return {
            "policy": session.rules.policy,
            "slot": session.slot,
            "slot_s": session.rules.limits.slot_s,
            "seconds": round(session.clock(), 3),
            "jobs": [describe(one) for one in session.all],
            "reconfigured_connections": account.connections,
            "reconfigurations": account.reconfigurations,
            "overruns": account.overruns,
            "policy_failures": account.failures,
            "complaints": account.complaints[-_COMPLAINTS_SHOWN:],
        }


def of_batch(jobs: Sequence[Queued], session: Session, topology: Topology) -> dict[str, Any]:
    """A submission's result. Circuits and the policy's times are the whole session's."""
    account = session.account
    done = [one for one in jobs if one.failure is None and one.ended_s is not None]
    started = [one.started_s for one in done if one.started_s is not None]
    return {
        "policy": session.rules.policy,
        "slot_s": session.rules.limits.slot_s,
        "seed": session.rules.seed,
        "scale": topology.scale,
        "configuration": topology.name,
        "jobs": [_job(one) for one in jobs],
        "done": len(done),
        "failed": len(jobs) - len(done),
        "total_jct_s": math.fsum(_end_s(one) - one.arrival_s for one in done),
        "ct_bti_s": max((_end_s(one) for one in done), default=0.0) - min(started, default=0.0),
        "reconfigured_connections": account.connections,
        "reconfigurations": account.reconfigurations,
        "policy_s": math.fsum(account.policy_s),
        "policy_s_max": max(account.policy_s, default=0.0),
        "overruns": account.overruns,
        "policy_failures": account.failures,
        "late_slots": account.late_slots,
        "complaints": account.complaints,
        "slots": account.slots,
        "model": {
            "limits": limits_to_json(session.rules.limits),
            "jobs": [job_to_json(session.model(one)) for one in jobs if one.arrival is not None],
            "ports": ports_to_json(session.initial_ports or {}),
        },
    }


def _end_s(one: Queued) -> float:
    """When its workers left their process group; of a job that has none, when its processes had ended."""
    return one.trained_s or one.ended_s or 0.0


def _job(one: Queued) -> dict[str, Any]:
    """Times since the session's first slot. JCT is waiting, which is for hosts, start-up and the policy, and
    training.
    """
    times: dict[str, float | None] = {
        "waiting_s": None,
        "start_up_s": None,
        "training_s": None,
        "jct_s": None,
    }
    if one.ready_s is not None and one.placed_s is not None:
        times["start_up_s"] = one.ready_s - one.placed_s
    if one.ended_s is not None and one.ended_s >= one.arrival_s:  # else it was ended before it arrived
        times["jct_s"] = _end_s(one) - one.arrival_s
    if one.started_s is not None and one.ended_s is not None:
        times |= {"waiting_s": one.started_s - one.arrival_s, "training_s": _end_s(one) - one.started_s}
    return {
        **describe(one),
        **times,
        "iterations": one.spec.iterations,
        "megabytes": one.spec.megabytes,
        "gigabits": one.gigabits,
        "rates": [[slot, rate] for slot, rate in one.rates],
        "run": one.run,
    }
