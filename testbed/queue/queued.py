"""A job in the queue: what was asked for, when it came where, and what policies see of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from testbed.jobs.life import Job
from testbed.jobs.request import JobRequest
from testbed.queue.hub import hub_of, meeting_of
from testbed.queue.submission import JobSpec
from testbed.topology import addresses
from testbed.topology.places import Host


@dataclass(slots=True, eq=False)
class Queued:
    """A job in the queue, from its submission to its end. Times are seconds since the session's first slot.

    `state` goes from coming (not arrived) to queued (no hosts yet), starting (its processes start), ready
    (shown to the policy), running, leaving (its workers have left their process group, and their processes
    end), finishing (its result is made) and ended. `arrival` is the first slot that it was shown in; `inc`
    the unit, from 0, whose switch sums for it by the policy's choice; `rates` are the slots in which its rate
    changed, each with the new one in declared Gb/s.
    """

    id: int
    spec: JobSpec
    request: JobRequest
    seed: str
    arrival_s: float
    gigabits: float
    state: str = "coming"
    job: Job | None = None
    hub: int = 0  # the unit where its circuits meet
    meeting: int = 0  # see testbed/scheduling/model.py
    refused_beside: frozenset[Host] | None = None  # the hosts that were busy when it had no layout
    arrival: int | None = None
    started: int | None = None
    inc: int | None = None
    rates: list[tuple[int, float]] = field(default_factory=list)
    placed_s: float | None = None
    ready_s: float | None = None
    started_s: float | None = None
    trained_s: float | None = None
    ended_s: float | None = None
    failure: str | None = None
    run: dict[str, Any] | None = None
    done_share: float = 0.0

    @property
    def rate_gbps(self) -> float:
        return self.rates[-1][1] if self.state == "running" else 0.0

    @property
    def mode(self) -> str | None:
        """How it is summed: PS or INC, as policies choose, or the system that it asks for."""
        if self.started is None:
            return None
        if self.spec.sync is not None:
            return self.spec.sync
        return "PS" if self.inc is None else "INC"

    def place(self, job: Job, now_s: float) -> None:
        """It has hosts."""
        self.job, self.state, self.placed_s = job, "starting", now_s
        self.hub = hub_of(job.layout)
        self.meeting = 0 if self.spec.sync is None else meeting_of(job.layout)

    def look(self, began_s: float) -> None:
        """Takes note of how far it is; `began_s` is the session's first slot by the system's monotonic
        clock. One that may start again keeps what its decision gave it until its processes have ended.
        """
        if self.job is None or self.started is None:
            return
        self.done_share = self.job.summed_bytes() / (self.spec.iterations * self.spec.megabytes * 1e6)
        left_ns = self.job.left_ns()
        if left_ns and (self.job.state == "finishing" or not self.job.may_start_again):
            self.trained_s = left_ns / 1e9 - began_s
            self.state = "leaving" if self.state == "running" else self.state


def requested(request: JobRequest, spec: JobSpec) -> JobRequest:
    """What a job of a submission asks for, whose own request is common to all of them."""
    return replace(
        request,
        script=spec.script,
        arguments=spec.arguments,
        sync=spec.sync or request.sync,
        logs=None if request.logs is None else request.logs / spec.name,
        timeout_s=spec.limit_s,
        restarts=spec.restarts,
    )


def describe(one: Queued) -> dict[str, Any]:
    """For `status` and the result."""
    job = one.job
    units = dict.fromkeys(unit for unit, _ in job.layout.workers) if job else []
    return {
        "id": one.id,
        "name": one.spec.name,
        "state": one.state,
        "workers": one.spec.workers,
        "hosts": job.hosts if job else [],
        "units": [addresses.unit_name(unit) for unit in units],
        "ps_host": job.ps_host if job else None,
        "mode": one.mode,
        "inc_unit": None if one.inc is None else addresses.unit_name(one.inc + 1),
        "rate_gbps": one.rate_gbps,
        "progress": min(1.0, one.done_share),
        "arrival_s": one.arrival_s,
        "placed_s": one.placed_s,
        "ready_s": one.ready_s,
        "started_s": one.started_s,
        "trained_s": one.trained_s,
        "ended_s": one.ended_s,
        "restarts": job.restarts if job else 0,
        "failure": one.failure,
    }
