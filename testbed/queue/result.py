"""The result of a submission, and the status of a session, from the session's data. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

from testbed.encoding import to_json
from testbed.messages.queue import QueueStatus
from testbed.messages.submission import QueuedRun, QueueModel, SubmissionResult
from testbed.queue.account import port_counts
from testbed.queue.queued import Queued, describe
from testbed.queue.session import Session
from testbed.topology.model import Topology

_COMPLAINTS_SHOWN = 3


def of_session(session: Session) -> QueueStatus:
    """Make a session's status."""
    account = session.account
    with session.lock:
        session.update_progress()
        return QueueStatus(
            policy=session.rules.policy,
            slot=session.slot,
            slot_s=session.rules.limits.slot_s,
            seconds=round(session.clock(), 3),
            jobs=tuple(describe(queued) for queued in session.all),
            reconfigured_connections=account.connections,
            reconfigurations=account.reconfigurations,
            overruns=account.overruns,
            policy_failures=account.failures,
            complaints=tuple(account.complaints[-_COMPLAINTS_SHOWN:]),
        )


def of_batch(jobs: Sequence[Queued], session: Session, topology: Topology) -> SubmissionResult:
    """Make a submission's result. Circuits and the policy's times are those of the whole session."""
    account = session.account
    done = [queued for queued in jobs if queued.failure is None and queued.ended_s is not None]
    started = [queued.started_s for queued in done if queued.started_s is not None]
    return SubmissionResult(
        policy=session.rules.policy,
        slot_s=session.rules.limits.slot_s,
        seed=session.rules.seed,
        scale=topology.scale,
        configuration=topology.name,
        jobs=tuple(_job(queued) for queued in jobs),
        done=len(done),
        failed=sum(queued.failure is not None and not queued.is_cancelled for queued in jobs),
        cancelled=sum(queued.is_cancelled for queued in jobs),
        total_jct_s=math.fsum(_end_s(queued) - queued.arrival_s for queued in done),
        ct_bti_s=max((_end_s(queued) for queued in done), default=0.0) - min(started, default=0.0),
        reconfigured_connections=account.connections,
        reconfigurations=account.reconfigurations,
        policy_s=math.fsum(account.policy_s),
        policy_s_max=max(account.policy_s, default=0.0),
        overruns=account.overruns,
        policy_failures=account.failures,
        last_failure=account.last_failure,
        late_slots=account.late_slots,
        complaints=tuple(account.complaints),
        slots=tuple(account.slots),
        model=QueueModel(
            limits=to_json(session.rules.limits),
            jobs=tuple(to_json(queued.model()) for queued in jobs if queued.arrival is not None),
            ports=port_counts(session.initial_ports or {}),
        ),
    )


def _end_s(queued: Queued) -> float:
    """Return when a job's workers left their process group; if they never joined one, when the job ended."""
    return queued.trained_s or queued.ended_s or 0.0


def _job(queued: Queued) -> QueuedRun:
    """Make a job's result. Its times count from the session's first time slot. JCT is waiting (for hosts,
    start-up and the policy) plus training.
    """
    described = describe(queued)
    waiting_s = start_up_s = training_s = jct_s = None
    if queued.ready_s is not None and queued.placed_s is not None:
        start_up_s = queued.ready_s - queued.placed_s
    if (
        queued.ended_s is not None and queued.ended_s >= queued.arrival_s
    ):  # otherwise it was ended before it arrived
        jct_s = _end_s(queued) - queued.arrival_s
    if queued.started_s is not None and queued.ended_s is not None:
        waiting_s = queued.started_s - queued.arrival_s
        training_s = _end_s(queued) - queued.started_s
    return QueuedRun(
        **{each.name: getattr(described, each.name) for each in fields(described)},
        waiting_s=waiting_s,
        start_up_s=start_up_s,
        training_s=training_s,
        jct_s=jct_s,
        iterations=queued.spec.iterations,
        megabytes=queued.spec.megabytes,
        gigabits=queued.gigabits,
        rates=tuple(queued.rates),
        run=queued.run,
    )
