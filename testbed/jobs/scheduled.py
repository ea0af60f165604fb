"""A scheduled job: its way from arrival to end, and its life as processes. Owns the job's thread and what it
gives back.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.aggregation.admission import Admission, Places
from testbed.aggregation.forest import Forest, below_top
from testbed.aggregation.system import Layout
from testbed.contract.transports import PACKETS, SERVER
from testbed.errors import TestbedError
from testbed.jobs import result
from testbed.jobs.execution import ps_address_of, traffic_of
from testbed.jobs.gates import Gates
from testbed.jobs.job import Job, JobRequest
from testbed.jobs.manager import Jobs
from testbed.jobs.observation import Hosts, Observation
from testbed.jobs.submission import JobSpec
from testbed.topology import addresses
from testbed.topology.places import Host, switch

START_UP_S = 120.0  # from a job's processes to their gates


class Links(Hosts, Protocol):
    """What this needs of the fabric (testbed/emulation/fabric.py)."""

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None: ...


@dataclass(slots=True, eq=False)
class Scheduled:
    """A job in the queue, from its submission to its end. Times are seconds since the session's first slot.

    `state` goes from coming (not arrived) to queued (no hosts yet), starting (its processes start), ready
    (shown to the policy), running, leaving (its workers have left their process group, and their processes
    end), finishing (its result is made) and ended. `arrival` is the first slot that it was shown in; `inc`
    the unit, from 0, whose switch sums for it; `rates` are the slots in which its rate changed, each with the
    new one in declared Gb/s.
    """

    id: int
    spec: JobSpec
    request: JobRequest
    seed: str
    arrival_s: float
    gigabits: float
    state: str = "coming"
    job: Job | None = None
    ps_unit: int = 0
    gates: Gates | None = None
    admission: Admission | None = None
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
        if self.started is None:
            return None
        return "PS" if self.inc is None else "INC"

    def look(self, began_s: float) -> None:
        """Takes note of how far it is; `began_s` is the session's first slot by the system's monotonic
        clock.
        """
        board = self.job.board if self.job else None
        if board is None or self.started is None:
            return
        with contextlib.suppress(ValueError):  # another thread closes the board
            self.done_share = board.summed_bytes() / (self.spec.iterations * self.spec.megabytes * 1e6)
            if self.state == "running" and (left_ns := board.left_ns()):
                self.trained_s, self.state = left_ns / 1e9 - began_s, "leaving"


class Runner:
    """Runs scheduled jobs: each in a thread of its own, from its processes to their end, when all that it
    held is given back.

    `lock` is held for each change of a job; `changed` is called when one has freed its hosts and when it has
    ended; `clock` gives the session's seconds.
    """

    def __init__(
        self,
        jobs: Jobs,
        links: Links,
        places: Places | None,
        mtu: int,
        host_mbps: float,
        lock: threading.RLock,
        clock: Callable[[], float],
        changed: Callable[[Scheduled], None],
        note: Callable[[str], None],
    ) -> None:
        self._jobs, self._links, self._places, self._mtu, self._host_mbps = (
            jobs,
            links,
            places,
            mtu,
            host_mbps,
        )
        self._lock, self._clock, self._changed, self._note = lock, clock, changed, note

    def begin(self, one: Scheduled, job: Job) -> None:
        """Starts its processes, which wait at their gates."""
        one.job, one.gates, one.state, one.placed_s = job, Gates(len(job.hosts)), "starting", self._clock()
        one.ps_unit = job.layout.server[0] if job.layout.server else 0
        threading.Thread(
            target=self._run, args=(one, job, one.gates), name=f"job-{job.id}", daemon=True
        ).start()

    def start(self, one: Scheduled, slot: int, inc: int | None, rate_gbps: float, rate_mbps: float) -> bool:
        """Gives it its rate and its place on a switch, and lets its workers go; False if it has ended
        meanwhile.

        Raises NoRoomError, SettingError or TestbedError when it cannot have them: it then waits on.
        """
        with self._lock:
            job = one.job
            if one.state != "ready" or job is None or one.gates is None:
                return False
            settings: dict[str, Any] = {
                "transport": SERVER,
                "engine": {},
                "ps": ps_address_of(job),
                "ps_host": job.ps_host,
            }
            admitted = None if inc is None else at_switch(job.layout.workers, inc + 1)
            if admitted is not None and admitted.forest is not None and self._places is not None:
                one.admission = self._places.admit(job.id, job.generation, admitted.forest)
            try:
                self._links.set_rates(dict.fromkeys(job.hosts, rate_mbps))
            except TestbedError:
                self._give_back(one, job)
                raise
            if one.admission is not None and admitted is not None:
                settings = {"transport": PACKETS, "ps": None, "ps_host": None}
                if job.processes is not None:
                    job.processes.dismiss_server()
                self._jobs.replace(job, admitted)
            started_s = self._clock()  # before a worker can begin
            for rank in range(len(job.hosts)):
                engine = one.admission.worker_env(rank) | {"rate_mbps": rate_mbps} if one.admission else {}
                fds = one.admission.worker_fds(rank) if one.admission else []
                one.gates.open(rank, {**settings, "engine": engine}, fds)
            one.inc, one.started, one.started_s = inc, slot, started_s
            one.rates.append((slot, rate_gbps))
            one.state = job.state = "running"
            return True

    def set_rate(self, one: Scheduled, slot: int, rate_gbps: float, rate_mbps: float) -> None:
        """Raises SettingError if it did not take effect."""
        with self._lock:
            if one.state == "running" and one.job is not None:
                self._links.set_rates(dict.fromkeys(one.job.hosts, rate_mbps))
                if one.job.board is not None:
                    one.job.board.set_rate(rate_mbps)
                one.rates.append((slot, rate_gbps))

    # ------------------------------------------------------------------ a job's thread

    def _run(self, one: Scheduled, job: Job, gates: Gates) -> None:
        try:
            self._live(one, job, gates)
        except TestbedError as error:
            one.failure = str(error)
        except Exception as error:  # a defect must not leave the job's hosts taken
            one.failure = f"{type(error).__name__}: {error}; the daemon's log says more"
            raise
        finally:
            self._release(one, job, gates)
            with self._lock:  # who sees that it has ended can rely on its having been told
                one.state = "ended"
                self._changed(one)

    def _live(self, one: Scheduled, job: Job, gates: Gates) -> None:
        executor = self._jobs.executor
        senders = [*job.hosts, *([job.ps_host] if job.ps_host else [])]
        with executor.folder(job) as folder:
            with Observation(self._jobs.sampler, self._links, senders, self._mtu) as observation:
                stop = self._stop_reason(one, job, time.monotonic())
                specs, outcome = executor.attempt(job, None, folder, 0, lambda event: None, stop, gates)
                one.ended_s = self._clock()
            self._release(one, job, gates)  # before the result is made, which takes a moment
            report = executor.report(job, specs, outcome)
            for note in job.notes:
                self._note(f"scheduler: job {one.id} ({one.spec.name}): {note}")
            one.failure = outcome.failure
            stats = [worker["stats"] for worker in report["workers"]]
            one.run = {
                **result.without_timelines(report),
                "wall_s": outcome.wall_s,
                **observation.report(stats, traffic_of(job, self._mtu), outcome.failure, False),
            }

    def _release(self, one: Scheduled, job: Job, gates: Gates) -> None:
        """Gives back all that it holds, if it holds it still."""
        with self._lock:
            if one.state == "finishing":
                return
            gates.close()
            try:
                self._give_back(one, job)
            except TestbedError as error:
                self._note(f"scheduler: job {one.id} ({one.spec.name}): {error}")
            finally:
                self._jobs.drop(job)
            one.state = "finishing"
            one.ended_s = one.ended_s or self._clock()
        self._changed(one)

    def _stop_reason(self, one: Scheduled, job: Job, began: float) -> Callable[[], str | None]:
        limit_s = one.spec.limit_s

        def reason() -> str | None:
            with self._lock:
                one.look(time.monotonic() - self._clock())
            if job.stop_reason is not None:
                return job.stop_reason
            if one.started_s is None:
                if one.state == "starting" and time.monotonic() - began > START_UP_S:
                    return f"its workers did not import torch within {START_UP_S:g} s"
            elif limit_s is not None and self._clock() - one.started_s > limit_s:
                return f"not done {limit_s:g} s after its start"
            return None

        return reason

    def _give_back(self, one: Scheduled, job: Job) -> None:
        """Its links' rates, and its place on a switch, whether or not the rates could be set."""
        with contextlib.ExitStack() as after:
            if one.admission is not None and self._places is not None:
                one.admission = None
                after.callback(self._places.release, job.id)
            self._links.set_rates(dict.fromkeys(job.hosts, self._host_mbps))


def at_switch(workers: Sequence[Host], unit: int) -> Layout:
    """The layout of workers in one unit that its switch sums for."""
    return Layout(
        "inc", tuple(workers), PACKETS, forest=Forest(tuple(workers), (below_top(workers, switch(unit)),))
    )


def describe(one: Scheduled) -> dict[str, Any]:
    """For `status` and the result."""
    job = one.job
    return {
        "id": one.id,
        "name": one.spec.name,
        "state": one.state,
        "workers": one.spec.workers,
        "hosts": job.hosts if job else [],
        "units": [addresses.unit_name(unit) for unit in dict.fromkeys(u for u, _ in job.layout.workers)]
        if job
        else [],
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
        "failure": one.failure,
    }
