"""A job in the queue: its request, its states with their times, and its view for policies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

from testbed.aggregation.packets import AS_USUAL
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.jobs.life import Job
from testbed.jobs.manager import Jobs
from testbed.jobs.placement import draw_server, draw_workers, place_in_queue
from testbed.jobs.request import JobRequest
from testbed.messages.queue import QueuedStatus
from testbed.messages.result import RunResult
from testbed.plugins.policies import Choice
from testbed.plugins.registry import AUTO
from testbed.queue.layouts import hub_of, meeting_of, served_where_asked
from testbed.queue.submission import JobSpec
from testbed.scheduling import live
from testbed.scheduling.model import Job as ModelJob
from testbed.scheduling.model import Progress, UnitIndex
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host
from testbed.topology.units import Unit


@dataclass(slots=True, eq=False)
class Queued:
    """A job in the queue, from its submission to its end. Times are seconds since the session's first time
    slot.

    `state` goes from coming (not arrived) to queued (no hosts yet), starting (its processes start), ready
    (shown to the policy), running, leaving (its workers have left their process group, and their processes
    end), finishing (its result is computed) and ended. `arrival` is the first time slot in which policies saw
    it; `inc` is the unit, from 0, whose switch sums for it by the policy's choice; `rates` are the time slots
    in which its rate changed, each with the new rate in declared Gb/s.
    """

    id: int
    spec: JobSpec
    request: JobRequest
    seed: str
    arrival_s: float
    gigabits: float
    state: str = "coming"
    job: Job | None = None
    hub: Unit | None = None  # where its circuits meet, once it has hosts
    meeting: int = 0  # see testbed/scheduling/model.py
    links_gbps: tuple[float, float] = (math.inf, math.inf)  # see live.host_limits
    refused_beside: frozenset[Host] | None = None  # the busy hosts with which it had no layout
    arrival: int | None = None
    started: int | None = None
    inc: UnitIndex | None = None
    mode: str | None = None  # the system that sums it, once it is started
    rates: list[tuple[int, float]] = field(default_factory=list)
    placed_s: float | None = None
    ready_s: float | None = None
    started_s: float | None = None
    trained_s: float | None = None
    ended_s: float | None = None
    failure: str | None = None
    was_cancelled: bool = False  # a user or the testbed cancelled it before it had ended
    run: RunResult | None = None
    done_share: float = 0.0

    @property
    def is_cancelled(self) -> bool:
        """Return whether it ended because it was cancelled."""
        return self.was_cancelled and self.failure is not None

    @property
    def rate_gbps(self) -> float:
        return self.rates[-1][1] if self.state == "running" else 0.0

    def lay_out(
        self, jobs: Jobs, between: Choice, busy: frozenset[Host], require: Callable[[Layout], None]
    ) -> Layout | None:
        """Lay the job out beside the hosts that are `busy`, by the system that it names, or by one of those
        `between` which its policy chooses; None while there are too few hosts. Raises RequestError if its
        system has no layout, or one that policies cannot decide on: `require` says so of this policy.
        """
        racks, spec, random = jobs.means.holdings.racks, self.spec, Random(self.seed)
        if spec.sync is None:
            wanted = (spec.workers, spec.place, spec.together, spec.ps)
            lay_out = partial(jobs.means.supply.lay_out, between.without_inc, packets=AS_USUAL)
            layout = place_in_queue(racks, busy, *wanted, random, lay_out)
            if layout is not None:
                require(layout)
            return layout
        chosen = draw_workers(racks, busy, spec.workers, spec.place, spec.together, spec.ps, random)
        if chosen is None:
            return None
        kept = draw_server(racks, {*busy, *chosen}, spec.ps, random)
        site = Site(racks, busy, frozenset(), kept)

        def check(layout: Layout) -> None:
            hub_of(layout)
            require(layout)
            if spec.sync == AUTO and spec.ps is not None and not served_where_asked(layout, spec.ps):
                raise RequestError(f"no host of {addresses.unit_name(spec.ps)} is free for its server")

        layout = jobs.lay_out(self.request, chosen, site, check, by_policy=True)
        return layout if served_where_asked(layout, spec.ps) else None

    # ------------------------------------------------------------------ its states

    def place(self, job: Job, topology: Topology, now_s: float) -> None:
        """Assign the job that holds its hosts."""
        self.job, self.state, self.placed_s = job, "starting", now_s
        self.hub = hub_of(job.layout)
        self.links_gbps = live.host_limits(topology, job.layout.workers, job.layout.server)
        self.meeting = 0 if self.spec.sync is None else meeting_of(job.layout)

    def update_ready(self, slot: int, now_s: float) -> None:
        """Update whether it is ready to run, and note the first time slot in which it was."""
        if self.state not in ("starting", "ready") or self.job is None:
            return
        self.state = "ready" if self.job.is_ready() else "starting"
        if self.state == "ready" and self.arrival is None:
            self.arrival, self.ready_s = slot, now_s

    def run_from(self, slot: int, inc: UnitIndex | None, mode: str, rate_gbps: float, began_s: float) -> None:
        """Note that its job was started in this time slot, summed by the system `mode` at a rate, as its
        policy decided; `began_s` as for `update_progress`.
        """
        assert self.job is not None
        assert self.job.started_at is not None
        self.inc, self.mode = inc, mode
        self.started, self.started_s = slot, self.job.started_at - began_s
        self.rates.append((slot, rate_gbps))
        self.state = "running"

    def finish(self, began_s: float) -> None:
        """Note that its hosts are free and its result will be computed; `began_s` as for
        `update_progress`.
        """
        assert self.job is not None
        self.update_progress(began_s)
        self.state = "finishing"
        self.ended_s = (self.job.ended_at or time.monotonic()) - began_s

    def give_up(self, why: str, now_s: float) -> None:
        """Note that it ended without hosts."""
        self.state, self.failure, self.ended_s = "ended", why, now_s

    def update_progress(self, began_s: float) -> None:
        """Update its progress. `began_s` is the time of the session's first slot on the system's monotonic
        clock. A job that may start again keeps the rate and circuits of its decision until its processes have
        ended.
        """
        if self.job is None or self.started is None:
            return
        self.done_share = self.job.summed_bytes() / (self.spec.iterations * self.spec.megabytes * 1e6)
        left_ns = self.job.left_ns()
        if left_ns and (self.job.state == "finishing" or not self.job.may_start_again):
            self.trained_s = left_ns / 1e9 - began_s
            self.state = "leaving" if self.state == "running" else self.state

    # ------------------------------------------------------------------ what policies see

    def model(self) -> ModelJob:
        """Return the job as policies see it, once it has hosts."""
        assert self.job is not None
        assert self.hub is not None
        update_s = self.spec.iterations * self.spec.update_ms / 1e3
        workers = self.job.layout.workers
        arrival, links_gbps = self.arrival or 0, self.links_gbps
        job = live.model_job(self.id, workers, self.hub, self.gigabits, update_s, arrival, links_gbps)
        return replace(job, meeting=self.meeting)

    def progress(self, slot_s: float) -> Progress:
        """Return its progress as policies see it, once they have seen the job."""
        assert self.arrival is not None
        slot_gigabits = self.rate_gbps * slot_s
        remaining = live.remaining_gigabits(self.gigabits, self.done_share, slot_gigabits)
        return Progress(self.model(), remaining, self.started, self.inc, self.rate_gbps)


def requested(request: JobRequest, spec: JobSpec) -> JobRequest:
    """Make the request of one job from the request that all jobs of its submission share."""
    return replace(
        request,
        script=spec.script,
        arguments=spec.arguments,
        sync=spec.sync or request.sync,
        logs=None if request.logs is None else request.logs / spec.name,
        timeout_s=spec.limit_s,
        options=spec.options,
        folders=Path(request.cwd) / spec.name if spec.options.folder_per_worker else None,
    )


def describe(queued: Queued) -> QueuedStatus:
    """Describe the job for `status` and the result."""
    job = queued.job
    units = dict.fromkeys(unit for unit, _ in job.layout.workers) if job else []
    return QueuedStatus(
        id=queued.id,
        name=queued.spec.name,
        state=queued.state,
        workers=queued.spec.workers,
        hosts=tuple(job.hosts) if job else (),
        units=tuple(addresses.unit_name(unit) for unit in units),
        ps_host=job.ps_host if job else None,
        mode=queued.mode,
        inc_unit=None if queued.inc is None else addresses.unit_name(live.unit_at(queued.inc)),
        rate_gbps=queued.rate_gbps,
        progress=min(1.0, queued.done_share),
        arrival_s=queued.arrival_s,
        placed_s=queued.placed_s,
        ready_s=queued.ready_s,
        started_s=queued.started_s,
        trained_s=queued.trained_s,
        ended_s=queued.ended_s,
        restarts=job.restarts if job else 0,
        failure=queued.failure,
        cancelled=queued.is_cancelled,
    )
