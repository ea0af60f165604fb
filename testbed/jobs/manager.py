"""The jobs of one testbed: who holds which hosts, what each needs of optics and aggregators, and its way from
request to result. Thread-safe: each job runs in the thread of its request.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from testbed.aggregation.admission import Admission, Places
from testbed.aggregation.registry import find
from testbed.aggregation.segments import NoRoomError
from testbed.aggregation.system import Layout, Rack, Site, System
from testbed.aggregation.ways import ways
from testbed.contract.user_class import is_users
from testbed.emulation.spawner import Started
from testbed.errors import RequestError, TestbedError
from testbed.jobs import result
from testbed.jobs.execution import Executor, traffic_of
from testbed.jobs.job import Job, JobRequest
from testbed.jobs.launch import Emit
from testbed.jobs.observation import Observation
from testbed.jobs.placement import place_workers
from testbed.jobs.retry import outliving_switches
from testbed.jobs.template import Template
from testbed.jobs.user_files import UserFiles
from testbed.jobs.user_system import UserSystem
from testbed.runtime import Caller
from testbed.telemetry.sampler import Sampler
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host

MAX_JOB_ID = 65535  # 16 bits in the wire format


class Hosts(Protocol):
    """What jobs need of the fabric (testbed/emulation/fabric.py)."""

    def popen_in(self, host: str, argv: Sequence[str], **options: Any) -> Started: ...
    def host_namespace(self, host: str) -> Path: ...
    def statistics(self, queues_only: bool = False) -> Mapping[str, Any]: ...
    def unsent(self, hosts: Sequence[str]) -> Mapping[str, int]: ...
    def fault_states(self) -> Sequence[Mapping[str, Any]]: ...


Controller = Callable[..., Any]  # (op, **arguments) -> result


class Jobs:
    """Takes requests and runs them."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        hosts: Hosts,
        controller: Controller,
        places: Places | None,
        folder: Path,
        files: UserFiles,
    ) -> None:
        self._topology, self._hosts, self._controller, self._places = topology, hosts, controller, places
        self.racks = [Rack(unit.index, unit.kind, unit.hosts) for unit in topology.units]
        self.sampler = Sampler(hosts, self._segments, holders=self._holders)
        self._spawn = partial(hosts.popen_in, topology.host_names[-1])
        template = Template(self._spawn)
        self.executor = Executor(name, hosts, folder, template, files)
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self.circuits_are_scheduled: Callable[[], bool] = lambda: False
        self._closed = False
        self._lock = threading.Lock()  # the fields above
        self._optics = (
            threading.Lock()
        )  # one job at a time asks for circuits; taken before _lock, never after
        self._idle = threading.Condition(self._lock)

    def status(self) -> list[dict[str, Any]]:
        with self._lock:
            return [job.status() for job in self._jobs.values()]

    def cores_busy(self) -> list[float] | None:
        """The share of the last moments in which each core was busy; None while no job runs."""
        return self.sampler.cores_busy()

    def stop(self, job_id: int, reason: str, asker: Caller) -> None:
        """Asks a job of that user to end, root any. Raises RequestError when there is none of this number."""
        with self._lock:
            mine = sorted(id_ for id_, job in self._jobs.items() if asker.uid in (0, job.request.caller.uid))
            if job_id not in mine:
                raise RequestError(
                    f"job {job_id} is not a running job of {asker.user}; running: {mine or 'none'}"
                )
            self._jobs[job_id].stop_reason = reason

    def fail(self, generations: Mapping[int, int], reason: str) -> None:
        """Has jobs that are in these generations still fail by something that is not theirs; with restarts
        left they start again.
        """
        with self._lock:
            for job_id, generation in generations.items():
                job = self._jobs.get(job_id)
                if job and job.generation == generation:
                    job.failure = reason

    def stop_all(self, reason: str, timeout_s: float) -> bool:
        """Takes no more jobs, asks all to end, and waits; whether they all did."""
        with self._idle:
            self._closed = True
            for job in self._jobs.values():
                job.stop_reason = reason
            ended = self._idle.wait_for(lambda: not self._jobs, timeout_s)
        self.executor.close()
        return ended

    def run(
        self, asked: Mapping[str, Any], caller: Caller, emit: Emit, disconnected: threading.Event
    ) -> dict[str, Any]:
        """From request to result, which says in `failure` why it failed, if it did. It runs as `caller`."""
        request = JobRequest.parse(asked, caller)
        with self._held(request) as job, contextlib.ExitStack() as stack:
            logs = request.logs or self.executor.folder_of(job)
            emit({"job": job.id, "hosts": job.hosts, "ps_host": job.ps_host, "logs": str(logs)})
            history = result.last_id(self._controller("history"))
            held = stack.enter_context(contextlib.ExitStack())
            admission = held.enter_context(self._network(job))
            told = self._tell_notes(job, emit, 0)
            folder = stack.enter_context(self.executor.folder(job))
            senders = [*job.hosts, *([job.ps_host] if job.ps_host else [])]
            attempts: list[dict[str, Any]] = []
            stop = self._stop_reason(job, disconnected, time.monotonic())
            with Observation(self.sampler, self._hosts, senders, self._topology.mtu) as observation:
                while True:
                    specs, outcome = self.executor.attempt(job, admission, folder, len(attempts), emit, stop)
                    held.close()
                    attempts.append(
                        {"generation": job.generation, "wall_s": outcome.wall_s, "failure": outcome.failure}
                    )
                    if outcome.failure is None or outcome.stopped or len(attempts) > request.restarts:
                        break
                    job.notes.append(
                        f"{outcome.failure}: restart {len(attempts)} of at most {request.restarts}"
                    )
                    with self._lock:
                        job.generation, job.failure = next(self._numbers), None
                    try:
                        admission = held.enter_context(self._network(job))
                    except TestbedError as error:
                        outcome.failure = f"{outcome.failure}; and no restart: {error}"
                        break
                    told = self._tell_notes(job, emit, told)
            report = self.executor.report(job, specs, outcome)
            self._tell_notes(job, emit, told)
            stats = [worker["stats"] for worker in report["workers"]]
            return {
                **result.without_timelines(report),
                "asked_sync": request.sync,
                "attempts": attempts,
                "wall_s": sum(attempt["wall_s"] for attempt in attempts),
                "ocs": {"events": result.events_after(self._controller("history"), history)},
                **observation.report(
                    stats, traffic_of(job, self._topology.mtu), outcome.failure, request.with_series
                ),
            }

    @staticmethod
    def _tell_notes(job: Job, emit: Emit, told: int) -> int:
        for note in job.notes[told:]:
            emit({"note": note})
        return len(job.notes)

    def _segments(self) -> dict[str, int]:
        """How many segments are taken, by switch, or by PS host."""
        taken = self._places.occupancy() if self._places else {}
        return {str(place): count for place, count in taken.items()}

    def _holders(self) -> dict[str, int]:
        """Which job has each host that is taken."""
        with self._lock:
            return {
                addresses.host_name(*host): job.id
                for job in self._jobs.values()
                for host in job.layout.hosts()
            }

    # ------------------------------------------------------------------ for jobs that are scheduled

    def number(self) -> int:
        """A number that no other job will have."""
        with self._lock:
            return self._new_number()[1]

    def hold(
        self, job_id: int, request: JobRequest, choose: Callable[[set[Host]], Layout | None]
    ) -> Job | None:
        """A job of that number with the hosts that `choose` names, told which are busy; None where it names
        none.
        """
        with self._lock:
            if self._closed:
                raise TestbedError("the testbed is ending")
            layout = choose(self._busy())
            if layout is None:
                return None
            job = self._jobs[job_id] = Job(job_id, next(self._numbers), request, layout)
            return job

    def replace(self, job: Job, layout: Layout) -> None:
        """The job has these hosts from now on, and gives up the others that it had."""
        with self._lock:
            job.layout = layout

    def drop(self, job: Job) -> None:
        """Its hosts are free again."""
        with self._idle:
            del self._jobs[job.id]
            self._idle.notify_all()

    def joining_units(self) -> list[int]:
        """The numbers of those jobs that asked for circuits."""
        with self._lock:
            return [job.id for job in self._jobs.values() if job.layout.demands]

    def _busy(self) -> set[Host]:
        return {host for job in self._jobs.values() for host in job.layout.hosts()}

    def _new_number(self) -> tuple[int, int]:
        """A generation, and the number of a job that begins with it."""
        generation = next(self._numbers)
        job_id = (generation - 1) % MAX_JOB_ID + 1
        if job_id in self._jobs:
            raise TestbedError(f"job number {job_id} is still running, after {MAX_JOB_ID} others")
        return generation, job_id

    # ------------------------------------------------------------------ what a job holds

    @contextlib.contextmanager
    def _held(self, request: JobRequest) -> Iterator[Job]:
        """A number and hosts that no other job has."""
        system, joined = self._system(request), self._joined_units()
        job = None
        while job is None:  # others may take hosts while a system lays the job out
            with self._lock:
                busy = self._busy()
            workers = place_workers(self.racks, busy, request.place)
            layout = system.lay_out(workers, Site(tuple(self.racks), frozenset(busy), joined))
            self._check_engines(layout, system.engines)
            job = self._taken(request, layout)
        try:
            yield job
        finally:
            with self._idle:
                del self._jobs[job.id]
                self._idle.notify_all()

    def _taken(self, request: JobRequest, layout: Layout) -> Job | None:
        """A job with the layout's hosts; None if one of them is another job's by now."""
        with self._lock:
            if self._closed:
                raise TestbedError("the testbed is ending")
            if layout.hosts() & self._busy():
                return None
            generation, job_id = self._new_number()
            job = self._jobs[job_id] = Job(job_id, generation, request, layout)
            return job

    def _system(self, request: JobRequest) -> System:
        if not is_users(request.sync):
            return find(request.sync)
        return UserSystem(self._spawn, request.sync, request.caller, request.cwd, request.environ)

    def _joined_units(self) -> frozenset[frozenset[int]]:
        pairs = self._controller("circuits")["circuits"]
        return frozenset(frozenset(addresses.parse_optical_port(end)[0] for end in pair) for pair in pairs)

    def _check_engines(self, layout: Layout, accepted: frozenset[str]) -> None:
        """RequestError where a switch is to sum that has no program of the job's system."""
        if layout.forest is None:
            return
        for place in layout.forest.places:
            if not place.is_switch:
                continue
            engine = "none" if self._places is None else self._topology.unit(place.unit).engine
            if engine not in accepted:
                raise RequestError(
                    f"--sync {layout.system}: {place} has engine: {engine}, which cannot sum for it; "
                    f"accepted are units with {' or '.join(sorted(accepted))}, and there ring and ps"
                )

    @contextlib.contextmanager
    def _network(self, job: Job) -> Iterator[Admission | None]:
        """Circuits for this job and all that run, and its place on the aggregators."""
        admission = outliving_switches(
            lambda: self._admit(job), self._places, lambda: job.stop_reason is not None
        )
        try:
            yield admission
        finally:
            if admission and self._places:
                self._places.release(job.id)

    def _admit(self, job: Job) -> Admission | None:
        with self._optics:
            self._ask_for_circuits(job)
            forest = job.layout.forest
            if forest and self._places:
                try:
                    return self._places.admit(job.id, job.generation, forest, ways(forest, self._controller))
                except NoRoomError as full:
                    self._lay_out_instead(job, full)
                    self._ask_for_circuits(job)
        return None

    def _ask_for_circuits(self, job: Job) -> None:
        if not job.layout.demands:
            return
        if self.circuits_are_scheduled():
            raise RequestError(
                "the circuits are the scheduler's while jobs are queued (testbed status): place the job "
                "within one unit, or wait"
            )
        with self._lock:
            jobs = list(self._jobs.values())
        demands = list(dict.fromkeys(pair for each in jobs for pair in each.layout.demands))
        names = [[addresses.unit_name(a), addresses.unit_name(b)] for a, b in demands]
        if self._controller("request", demands=names) is not None and self._places:
            for other in jobs:
                if other is not job and other.layout.forest and other.layout.demands:
                    self._places.reroute(other.id, ways(other.layout.forest, self._controller))

    def _lay_out_instead(self, job: Job, full: NoRoomError) -> None:
        """The job is summed by the system that its own names for when no place has room, on the same workers
        and, where it has one, by the same server. Raises RequestError where there is no such system, or it
        finds no host.
        """
        instead = None if is_users(job.layout.system) else find(job.layout.system).instead
        if instead is None:
            raise full
        joined = self._joined_units()
        with self._lock:
            busy = {
                host for other in self._jobs.values() if other is not job for host in other.layout.hosts()
            }
            site = Site(tuple(self.racks), frozenset(busy), joined, job.layout.server)
            job.layout = find(instead).lay_out(job.layout.workers, site)
        job.notes.append(f"no INC capacity ({full}): sums at the parameter server on {job.ps_host}")

    def across_units(self) -> list[Job]:
        """The running jobs whose sums cross the optical switch."""
        with self._lock:
            return [job for job in self._jobs.values() if job.layout.forest and job.layout.demands]

    def follow_circuits(self) -> None:
        """Sends the results of running jobs by the circuits that there are now, whoever changed them.

        A job that the new circuits cut off waits, with its results where they were; the next change may join
        it again.
        """
        with self._optics:
            for job in self.across_units():
                with contextlib.suppress(TestbedError):
                    if self._places and job.layout.forest:
                        self._places.reroute(job.id, ways(job.layout.forest, self._controller))

    @staticmethod
    def _stop_reason(job: Job, disconnected: threading.Event, began: float) -> Callable[[], str | None]:
        """What says why a job must end now, if it must. Its time limit is for all its starts together."""
        limit_s = job.request.timeout_s

        def reason() -> str | None:
            if job.stop_reason is None and disconnected.is_set():
                return "the command that ran it went away"
            if job.stop_reason is None and limit_s is not None and time.monotonic() - began > limit_s:
                return f"not done after {limit_s:g} s"
            return job.stop_reason

        return reason


def held_hosts(jobs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Host -> number of the job that holds it, from jobs' status."""
    return {host: job["id"] for job in jobs for host in [*job["hosts"], job["ps_host"]] if host}
