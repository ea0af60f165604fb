"""The source of the page's data: a testbed's answers, queried only when a viewer asks.

Viewers who ask within FRESH_S of each other get the same answers. Thread-safe: each viewer's request has a
thread.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from testbed.api.state import status
from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.client.terminal_text import line, lines
from testbed.errors import TestbedError
from testbed.messages.coding import decode
from testbed.messages.controller import CrossedFrames, ReconfigurationEvent
from testbed.messages.journal import EndedJob, JournalAnswer, JournalEntry, RunningJob
from testbed.messages.status import LivingStatus, Status
from testbed.messages.verdict import JobVerdict

FRESH_S = 1.0
MOST_APART_S = 30.0  # links' rates are not computed over longer times
MOST_CHANGES = 2000
DARK_TIMES_S = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""The upper bounds of the histogram's buckets of dark times; a last bucket has longer ones."""
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class LinkFlow:
    """The traffic of a link between two answers, in bytes per second: from its host or port, and to it."""

    up_bytes_s: float
    down_bytes_s: float


@dataclass(slots=True)
class Totals:
    """Sums over a testbed's life, as far as its journal and history reach back."""

    dark_counts: list[int] = field(default_factory=lambda: [0] * (len(DARK_TIMES_S) + 1))
    dark_s: float = 0.0
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)  # (outcome, trust) -> jobs
    measured: Counter[str] = field(default_factory=Counter)  # by system: jobs with a time of an iteration
    measured_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # their sum
    retransmits: Counter[str] = field(default_factory=Counter)  # by system: packets

    def count(self, job: EndedJob) -> None:
        """Add a job that has ended."""
        self.ended[outcome(job.failure), trust(job.verdict)] += 1
        self.retransmits[job.sync] += job.retransmits
        if job.measured_ms is not None:
            self.measured[job.sync] += 1
            self.measured_s[job.sync] += job.measured_ms / 1e3


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one moment. `status` is None if no testbed answers; then `why` says why. `running` has
    the journal's entries on running jobs, by number.
    """

    name: str
    at: float  # seconds since 1970
    status: Status | None = None
    why: str = ""
    flows: Mapping[str, LinkFlow] = field(default_factory=dict)
    entries: tuple[JournalEntry, ...] = ()
    changes: tuple[ReconfigurationEvent, ...] = ()
    running: Mapping[int, RunningJob] = field(default_factory=dict)
    crossings: Mapping[str, CrossedFrames] = field(default_factory=dict)  # by optical port
    totals: Totals = field(default_factory=Totals)


class PageSource:
    """The answers of the testbed with this name, whichever process runs under it."""

    def __init__(
        self,
        runtime: Runtime,
        call: Callable[..., Any] = rpc.call,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runtime, self._call, self._clock = runtime, call, clock
        self._lock = threading.Lock()
        self._look = Answers(runtime.name, 0.0, why="not asked yet")
        self._said_at = 0.0
        self._forget(None)

    def look(self) -> Answers:
        """Return the testbed's current answers, or those from within FRESH_S. Concurrent callers wait and
        share one query.
        """
        with self._lock:
            now = self._clock()
            if not 0 <= now - self._said_at < FRESH_S:
                self._look = self._asked(now)
                self._said_at = self._clock()
            return self._look

    def _forget(self, pid: int | None) -> None:
        """Reset, for the testbed with this main process."""
        self._pid = pid
        self._before: Status | None = None
        self._entries: deque[JournalEntry] = deque(maxlen=MOST_CHANGES)
        self._changes: deque[ReconfigurationEvent] = deque(maxlen=MOST_CHANGES)
        self._totals = Totals()

    def _asked(self, now: float) -> Answers:
        name = self._runtime.name
        try:
            self._runtime.require_alive()
            answer: LivingStatus = lines(status(self._runtime, self._call))
        except TestbedError as error:
            return Answers(name, now, why=line(str(error)))
        if not isinstance(answer, Status):
            return Answers(name, now, why=f"testbed {name}: {answer.state}: {answer.error}")
        if answer.pid != self._pid:
            self._forget(answer.pid)
        before, self._before = self._before, answer
        running = self._read_on()
        return Answers(
            name,
            now,
            answer,
            flows=flows(before, answer),
            entries=tuple(self._entries),
            changes=tuple(self._changes),
            running=running,
            crossings=self._crossings(),
            totals=deepcopy(self._totals),
        )

    def _read_on(self) -> dict[int, RunningJob]:
        """Read new entries of the journal and the history; return the daemon's data on running jobs."""
        last = self._entries[-1].number if self._entries else 0
        try:
            answer = self._call(self._runtime.socket, "journal", timeout_s=_ANSWER_S, after=last)
            journal: JournalAnswer = lines(decode(JournalAnswer, answer, "journal"))
        except TestbedError:  # the testbed ends, or its version has another journal format
            return {}
        for entry in journal.entries:
            self._entries.append(entry)
            if job := entry.ended:
                self._totals.count(job)
        last = self._changes[-1].id if self._changes else 0
        try:
            answer = self._call(self._runtime.controller_socket, "history", timeout_s=_ANSWER_S, after=last)
            changes: tuple[ReconfigurationEvent, ...] = lines(
                decode(tuple[ReconfigurationEvent, ...], answer, "history")
            )
        except TestbedError:  # the controller is not running, as `status` reports
            changes = ()
        for change in changes:
            self._changes.append(change)
            if change.measured_ms is not None:  # otherwise no port was lit anew
                dark_s = change.measured_ms / 1e3
                self._totals.dark_counts[bisect_left(DARK_TIMES_S, dark_s)] += 1
                self._totals.dark_s += dark_s
        return {job.id: job for job in journal.running}

    def _crossings(self) -> dict[str, CrossedFrames]:
        """Return the frames that arrived at each optical port; none while the controller is not running."""
        try:
            answer = self._call(self._runtime.controller_socket, "crossings", timeout_s=_ANSWER_S)
            return decode(dict[str, CrossedFrames], answer, "crossings")
        except TestbedError:
            return {}


def flows(before: Status | None, now: Status) -> dict[str, LinkFlow]:
    """Compute each link's traffic between two answers of one testbed; nothing if they are too far apart.
    Pure.
    """
    if before is None:
        return {}
    apart_s = now.uptime_s - before.uptime_s
    if not 0 < apart_s <= MOST_APART_S:
        return {}
    counted = {link.name: link for link in before.links}
    return {
        link.name: LinkFlow(
            max(0, link.bytes_up - counted[link.name].bytes_up) / apart_s,
            max(0, link.bytes_down - counted[link.name].bytes_down) / apart_s,
        )
        for link in now.links
        if link.name in counted
    }


def outcome(failure: str | None) -> str:
    """Return how a job ended, in one word."""
    return "failed" if failure else "done"


def trust(verdict: JobVerdict | None) -> str:
    """Return a verdict in one word; `none` without a result."""
    return {True: "yes", False: "no", None: "none"}[verdict.trustworthy if verdict else None]
