"""The jobs of one testbed: the living ones, and how a job of `testbed run` gets its hosts. Thread-safe: each
job lives in the thread of its request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from testbed.aggregation.admission import Places
from testbed.aggregation.segments import NoRoomError
from testbed.aggregation.site import Site, racks_of
from testbed.aggregation.system import Layout, System
from testbed.client.caller import Caller, user_name
from testbed.client.runtime import Runtime, running, running_of_others
from testbed.errors import RequestError, TestbedError
from testbed.jobs.attempt import Executor
from testbed.jobs.automatic import SIZE_BYTES, Automatic
from testbed.jobs.held_hosts import Holdings
from testbed.jobs.journal import ENDED, Journaling, ended_in_words, ended_job, running_job, silent
from testbed.jobs.life import Job, Means, Terms
from testbed.jobs.placement import host_for_server, place_workers
from testbed.jobs.processes import Emit
from testbed.jobs.request import JobRequest
from testbed.jobs.supply import Controller, Start, Supply
from testbed.jobs.surroundings import Surroundings
from testbed.jobs.user_files import UserFiles
from testbed.jobs.user_system import UserSystem
from testbed.machine.interface import Machine
from testbed.messages.coding import as_json
from testbed.messages.events import Event, JobNote
from testbed.messages.jobs import JobStatus
from testbed.messages.journal import RunningJob
from testbed.messages.result import RunResult
from testbed.plugins.registry import AUTO, find
from testbed.plugins.user_class import is_users
from testbed.telemetry.sampler import Sampler
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host
from testbed.wire.recovery import Recovery


def means_of(
    runtime: Runtime,
    topology: Topology,
    machine: Machine,
    controller: Controller,
    places: Places,
    files: UserFiles,
    require_programs: Callable[[Layout, Recovery], list[str]] = lambda layout, recovery: [],
) -> Means:
    """Make the means of the jobs of this runtime folder's testbed. `require_programs` raises TestbedError if
    a job's devices lack the testbed's programs, and returns a line for each that it attached again.
    """

    def segments() -> dict[str, int]:
        """Count the segments in use, by place."""
        return {str(place): count for place, count in places.occupancy().items()}

    def holders() -> dict[str, int]:
        """Return the number of the job that holds each host in use."""
        return {
            addresses.host_name(*host): number
            for number, layout in holdings.layouts().items()
            for host in layout.hosts()
        }

    def tell_users(users: Mapping[Host, int]) -> None:
        machine.hosts.set_users({addresses.host_name(*host): uid for host, uid in users.items()})

    holdings = Holdings(racks_of(topology), tell_users)
    return Means(
        machine=machine,
        holdings=holdings,
        supply=Supply(topology, machine.links, places, controller, holdings),
        executor=Executor(runtime.name, machine.hosts, runtime.jobs, files),
        sampler=Sampler(machine.links, segments, machine.counters.reading, holders=holders),
        controller=controller,
        require_programs=require_programs,
        mtu=topology.mtu,
        surroundings=Surroundings(
            runtime.name,
            topology,
            controller,
            lambda: [*running(), *running_of_others()],
            machine.counters,
        ),
    )


class Jobs:
    """Accepts requests for jobs, and owns the living ones."""

    def __init__(self, means: Means, journal: Journaling = silent) -> None:
        self.means, self._journal = means, journal
        self._idle = threading.Condition()  # guards the fields below
        self._living: dict[int, Job] = {}
        self._ending: str | None = None

    def visited(self, host: str, user: int, runs_as: int) -> AbstractContextManager[None]:
        """Keep a host from other users' jobs while the block runs, as `Holdings.visited`. Does nothing if
        there is no such host.
        """
        holdings = self.means.holdings
        named = {addresses.host_name(*each): each for rack in holdings.racks for each in rack.members()}
        return holdings.visited(named[host], user, runs_as) if host in named else nullcontext()

    def job(self, number: int) -> Job:
        """Return the living job of that number. Raises KeyError if there is none."""
        with self._idle:
            return self._living[number]

    def status(self) -> list[JobStatus]:
        """Return the status of each job that holds hosts."""
        held = self.means.holdings.layouts()
        return [job.status() for job in self._all() if job.id in held]

    def cores_busy(self) -> list[float] | None:
        """Return the share of the last sample in which each core was busy; None while no job runs."""
        return self.means.sampler.cores_busy()

    def so_far(self) -> tuple[RunningJob, ...]:
        """Return, for each running job, its start, the pairs of units that it joins, and the verdict on its
        last seconds.
        """
        running = [job for job in self._all() if job.state == "running"]
        return tuple(running_job(job) for job in running)

    def _with_journal(self, terms: Terms, number: int, queued: int | None) -> Terms:
        """Add the journal to a job's terms, so that it gets the notes too. A queued job's notes are reported
        by its queue.
        """
        if queued is not None:
            return terms

        def on_event(event: Event) -> None:
            if isinstance(event, JobNote):
                self._journal("job", f"job {number}: {event.note}")
            terms.emit(event)

        return replace(terms, emit=on_event)

    def stop(self, job_id: int, reason: str, asker: Caller) -> None:
        """Request the end of that user's job; root may end any. Raises RequestError if there is none of this
        number.
        """
        own_jobs = {job.id: job for job in self._all() if asker.uid in (0, job.request.caller.uid)}
        if job_id not in own_jobs:
            raise RequestError(
                f"job {job_id} is not a running job of {asker.user}; running: {sorted(own_jobs) or 'none'}"
            )
        own_jobs[job_id].stop(reason)

    def fail(self, generations: Mapping[int, int], reason: str) -> None:
        """Make jobs fail for an external reason, if they are still in these generations."""
        for job in self._all():
            if job.id in generations:
                job.fail(generations[job.id], reason)

    def fail_now(self, number: int, reason: str) -> None:
        """Make a job fail in its present generation, for an external reason."""
        self.fail({job.id: job.generation for job in self._all() if job.id == number}, reason)

    def rates_of_policies(self) -> dict[str, int]:
        """Return the links whose rates a policy sets now, each with the number of the worker's job."""
        return {name: job.id for job in self._all() if job.has_rate_of_policy for name in job.hosts}

    def hear_rates(self) -> None:
        """Send the workers of all jobs the present rates of their links."""
        for job in self._all():
            job.hear_rates()

    def stop_all(self, reason: str, timeout_s: float) -> bool:
        """Accept no more jobs, request the end of all, and wait; return whether all ended in time."""
        self.means.holdings.close()
        with self._idle:
            self._ending = reason
            for job in self._living.values():
                job.stop(reason)
            ended = self._idle.wait_for(lambda: not self._living, timeout_s)
        self.means.executor.close()
        return ended

    def run(self, asked: Mapping[str, Any], caller: Caller, emit: Emit, disconnected: threading.Event) -> Any:
        """Run a job as `caller`, and return its result as JSON data; `failure` says why it failed. Raises
        RequestError if it cannot be run at present, such as when no place has room for it.
        """
        request = JobRequest.parse(asked, caller)

        def choose(busy: frozenset[Host]) -> Layout:
            holdings = self.means.holdings
            try:
                workers = place_workers(holdings.racks, busy, request.place)
                return self._lay_out_for(request, workers, busy)
            except RequestError as error:
                kept = kept_in_words(holdings.guests(caller.uid))
                raise RequestError(f"{error}{'; ' if kept else ''}{kept}") from error

        def ends() -> str | None:
            return "the command that ran it went away" if disconnected.is_set() else None

        job = self.hold(
            request, choose, lambda layout: Terms(Start(layout, packets=request.options.packets), emit, ends)
        )
        assert job is not None
        try:
            return as_json(self.live(job))
        except NoRoomError as full:
            raise RequestError(str(full)) from full

    def _lay_out_for(self, request: JobRequest, workers: Sequence[Host], busy: frozenset[Host]) -> Layout:
        """Lay these workers out, with the server where the request wants it. Raises RequestError if the
        layout cannot have it there.
        """
        site = replace(self.means.supply.site(), busy=busy)
        if request.server_at is None:
            return self.lay_out(request, workers, site)
        host = host_for_server(site.racks, busy, workers, request.server_at)
        at = addresses.tor_name(request.server_at)

        def check(layout: Layout) -> None:
            if layout.server != host:
                raise RequestError(
                    f"--ps {at}: with --sync {layout.system} and these workers there is no server to place"
                )

        return self.lay_out(request, workers, replace(site, kept=host), check)

    def hold(
        self,
        request: JobRequest,
        choose: Callable[[frozenset[Host]], Layout | None],
        terms: Callable[[Layout], Terms],
        number: int | None = None,
    ) -> Job | None:
        """Make a job that holds the hosts of the layout that `choose` returns; None if it returns none.
        `choose` gets the busy hosts. Without `number`, the job gets a new one.
        """
        while True:  # other jobs may acquire hosts meanwhile
            user = request.caller.uid
            layout = choose(self.means.holdings.busy(user=user))
            if layout is None:
                return None
            held = self.means.holdings.take(layout, number, user)
            if held is not None:
                job = Job(
                    held, request, layout, self.means, self._with_journal(terms(layout), held[0], number)
                )
                with self._idle:
                    self._living[job.id] = job
                    if self._ending is not None:
                        job.stop(self._ending)
                return job

    def live(self, job: Job) -> RunResult:
        """Run a job, remove it, and return its result."""
        outcome: RunResult | None = None
        failure: str | None = "it raised an error, which the daemon's log has"
        try:
            outcome = job.live()
            failure = outcome.failure
            return outcome
        except TestbedError as error:
            failure = str(error)
            raise
        finally:
            self.forget(job)
            self._journal(ENDED, ended_in_words(job, failure), job=ended_job(job, failure, outcome))

    def forget(self, job: Job) -> None:
        """Free its hosts, if it still has any, and remove it."""
        self.means.holdings.free(job.id)
        with self._idle:
            del self._living[job.id]
            self._idle.notify_all()

    def lay_out(
        self,
        request: JobRequest,
        workers: Sequence[Host],
        site: Site,
        check: Callable[[Layout], object] = lambda layout: None,
        by_policy: bool = False,
    ) -> Layout:
        """Lay these workers out by the system that the request names, or by the best that `check` accepts.
        `by_policy`: a policy lights the circuits that the layout demands. Raises RequestError if no such
        system has a layout for them, or no program for one of its switches or for its packets, and what
        `check` raises.
        """
        supply, packets = self.means.supply, request.options.packets

        def lay_out_by(system: System, workers: Sequence[Host], site: Site) -> Layout:
            layout = supply.lay_out(system, workers, site, packets)
            check(layout)
            return layout

        if request.sync != AUTO:
            return lay_out_by(self._system(request), workers, site)
        bounds = partial(supply.forecast, packets=packets, size_bytes=SIZE_BYTES, by_policy=by_policy)
        return Automatic(lay_out_by, bounds).lay_out(workers, site)

    def _system(self, request: JobRequest) -> System:
        if not is_users(request.sync):
            return find(request.sync)
        return UserSystem(
            self.means.machine.hosts.popen_aside, request.sync, request.caller, request.cwd, request.environ
        )

    def _all(self) -> list[Job]:
        with self._idle:
            return list(self._living.values())


def kept_in_words(guests: Mapping[Host, Collection[int]]) -> str:
    """List the hosts in which users run commands, with those users; empty if there are none."""
    return "; ".join(
        f"a command of {' and '.join(map(user_name, sorted(users)))} (testbed exec) keeps "
        f"{addresses.host_name(*host)} from jobs of others"
        for host, users in guests.items()
    )


def held_hosts(jobs: Sequence[JobStatus]) -> dict[str, int]:
    """Return the number of the job that holds each host, from jobs' statuses."""
    return {host: job.id for job in jobs for host in (*job.hosts, *job.other_hosts)}
