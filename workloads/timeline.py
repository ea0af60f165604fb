"""A worker's timeline: when its script asked for a collective, when it waited for it, and when the result was
there.

Between these the script computes. The daemon replays that on links as they should be
(testbed/telemetry/replay.py), which says what the links alone would have allowed. A row costs a few
microseconds of the script's thread.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

ASKED, WAITED, RESUMED = range(3)  # what a row says; testbed/telemetry/timelines.py reads them
BESIDE, SUMMED, PULLED, PUSHED, CALLED = range(5)  # a collective's kind, which it has, too
MOST_ROWS = 60_000  # then a timeline ends, and what it says is of the time until then


class Timeline:
    """Rows are of the script's threads, in their order; `is_there` is for the thread that has a result.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clock = _ThreadClock()
        self._sums: list[list[int]] = []
        self._uses: list[list[int | str]] = []
        self._rows: list[tuple[int, int, int, int, int]] = []

    def ask(self, size_bytes: int, kind: int) -> int:
        """The collective's number. Its kind is SUMMED by the job's own kind of synchronisation, BESIDE where
        gloo carries it beside that, and in a tree with an owner PULLED from it, PUSHED to it, or CALLED: an
        answer of its.
        """
        with self._lock:
            number = len(self._sums)
            if len(self._rows) < MOST_ROWS:
                self._sums.append([size_bytes, kind, 0])
                self._row(ASKED, number)
            return number

    def use(self, number: int, resource: str, seconds: float, behind: bool) -> None:
        """The collective takes something else than links for so long, by its declared rate. `behind`: it is
        there before that, and the next call is not.
        """
        with self._lock:
            if len(self._uses) < MOST_ROWS and number < len(self._sums):
                self._uses.append([number, resource, round(seconds * 1e9), int(behind)])

    def is_there(self, number: int) -> None:
        """Its result is."""
        with self._lock:
            if number < len(self._sums):
                self._sums[number][2] = time.monotonic_ns()

    def wait(self, number: int) -> None:
        """The script waits from now on until this collective, and all before it, are there."""
        with self._lock:
            self._row(WAITED, number)

    def resume(self, number: int) -> None:
        """The script goes on."""
        with self._lock:
            self._row(RESUMED, number)

    @property
    def last(self) -> int:
        """The number of the collective that was asked for last."""
        return len(self._sums) - 1

    def _row(self, what: int, number: int) -> None:
        if len(self._rows) < MOST_ROWS:
            self._rows.append((what, number, *self._clock.read()))

    def summary(self) -> dict[str, Any]:
        """JSON-able. `sums`: bytes, kind, and when it was there (0: never). `rows`:
        what, number, when, and how long the thread has waited for a core and had one since the row before.
        `uses`, where there are any: number, what of, how long, and whether behind it. In nanoseconds of
        CLOCK_MONOTONIC.
        """
        with self._lock:
            uses = {"uses": [list(each) for each in self._uses]} if self._uses else {}
            sums, rows = ([list(each) for each in table] for table in (self._sums, self._rows))
            return {"sums": sums, "rows": rows, **uses}


class _ThreadClock:
    """Now, and how long the calling thread, since it asked last, could have run and had no core (0 where the
    kernel does not say), and how long it ran.
    """

    def __init__(self) -> None:
        self._threads = threading.local()

    def read(self) -> tuple[int, int, int]:
        starved_ns, ran_ns = self._starved_ns(), time.thread_time_ns()
        before: tuple[int, int] = getattr(self._threads, "before", (starved_ns, ran_ns))
        self._threads.before = starved_ns, ran_ns
        return time.monotonic_ns(), starved_ns - before[0], ran_ns - before[1]

    def _starved_ns(self) -> int:
        file: int | None = getattr(self._threads, "file", None)
        try:
            if file is None:
                file = self._threads.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(file, 96, 0).split()[1])
        except (FileNotFoundError, PermissionError, ProcessLookupError, IndexError, ValueError):
            return 0
