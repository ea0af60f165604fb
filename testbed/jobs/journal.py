"""A testbed's journal: the most recent events of its jobs, links and processes, for later readers. Owns
nothing else; reconfigurations of the optical switch are in the controller's history.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from testbed.client.requests import FaultRequest, LinkRequest
from testbed.jobs.life import Job
from testbed.messages.coding import UNSET
from testbed.messages.journal import EndedJob, JournalEntry, RunningJob
from testbed.messages.result import RunResult
from testbed.telemetry.worker_numbers import retransmits
from testbed.topology import addresses

ENDED = "ended"  # the kind of an entry about a job that has ended, which has a `job`
_FAULTS = ("loss", "duplicate", "reorder", "corrupt")
MOST = 2000  # entries; they cover the last third of a study's longest queue


class Journaling(Protocol):
    """Add an entry, as Journal.add does."""

    def __call__(self, kind: str, text: str, job: EndedJob | None = None) -> None: ...


class Journal:
    """The most recent entries. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.time, most: int = MOST) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._entries: deque[JournalEntry] = deque(maxlen=most)
        self._last = 0

    def add(self, kind: str, text: str, job: EndedJob | None = None) -> None:
        """Add an entry: `text` is a line for people, `job` is the job that has just ended."""
        with self._lock:
            self._last += 1
            self._entries.append(
                JournalEntry(self._last, round(self._clock(), 3), kind, text, UNSET if job is None else job)
            )

    def after(self, number: int) -> tuple[JournalEntry, ...]:
        """Return the entries after that number, oldest first, as far as they are kept."""
        with self._lock:
            return tuple(entry for entry in self._entries if entry.number > number)


def silent(kind: str, text: str, job: EndedJob | None = None) -> None:
    """Drop the entry."""


def running_job(job: Job) -> RunningJob:
    """Describe a running job."""
    return RunningJob(job.id, round(job.began_unix, 3), _pairs(job), job.outlook())


def ended_job(job: Job, failure: str | None, outcome: RunResult | None) -> EndedJob:
    """Make the journal's record of a job that has ended. `outcome` is its result, if it has one."""
    bound = outcome.bound if outcome else None
    return EndedJob(
        id=job.id,
        began=round(job.began_unix, 3),
        pairs=_pairs(job),
        sync=job.layout.system,
        user=job.request.caller.user,
        script=" ".join(job.request.arguments_of_python),
        hosts=tuple(job.hosts),
        ps_host=job.ps_host,
        failure=failure,
        verdict=outcome.verdict if outcome else None,
        notes=tuple(job.notes[-20:]),
        ratio=bound.ratio if bound else None,
        measured_ms=bound.measured_ms if bound and not bound.coarse else None,  # else no round was seen
        retransmits=retransmits(worker.stats for worker in outcome.workers) if outcome else 0,
    )


def _pairs(job: Job) -> tuple[tuple[str, str], ...]:
    return tuple((addresses.unit_name(a), addresses.unit_name(b)) for a, b in job.layout.demands)


def ended_in_words(job: Job, failure: str | None) -> str:
    return f"job {job.id} failed: {failure}" if failure else f"job {job.id} is done"


def fault_in_words(request: FaultRequest) -> str:
    """Describe an accepted request, with its links."""
    links = " ".join(request.links or ["all"])
    if request.action != "set":
        return f"fault {request.action}: {links}"
    shares = [f"{name} {100 * request.fault[name]:g}%" for name in _FAULTS if request.fault.get(name)]
    return f"fault set: {links} {request.direction}, {', '.join(shares) or 'none'}"


def link_in_words(request: LinkRequest) -> str:
    """Describe an accepted request, with its links."""
    links = " ".join(request.links or ["all"])
    if request.action != "set":
        return f"link {request.action}: {links}"
    times = (("delay", request.delay), ("jitter", request.jitter))
    done = [f"{request.rate_mbps:g} Mb/s"] if request.rate_mbps is not None else []
    done += [f"{name} {time}" for name, time in times if time is not None]
    done += [] if request.up is None else ["up" if request.up else "down"]
    return f"link set: {links}, {', '.join(done)}"
