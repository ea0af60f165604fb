"""Measure the time in which a worker communicated and in which its training thread waited, as intervals.
Pure, except for the clock of `Log`. Imports nothing of the project.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Interval = tuple[int, int]
"""Begin and end, in nanoseconds."""


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """Return the union of intervals: ordered intervals that do not touch."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif end > begin:
            merged.append((begin, end))
    return merged


def length(intervals: Sequence[Interval]) -> int:
    """Return the length of the union of intervals, in nanoseconds."""
    return sum(end - begin for begin, end in union(intervals))


def common(these: Sequence[Interval], those: Sequence[Interval]) -> list[Interval]:
    """Return the intersection of two unions of intervals."""
    shared = []
    for begin, end in union(these):
        for first, last in union(those):
            if (low := max(begin, first)) < (high := min(end, last)):
                shared.append((low, high))
    return shared


def within(intervals: Sequence[Interval], begin: int, end: int) -> int:
    """Return how many nanoseconds between `begin` and `end` the intervals cover."""
    return length(common(intervals, [(begin, end)]))


class Log:
    """Collects intervals when they end, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._communicating: list[Interval] = []
        self._waiting: list[Interval] = []

    def communicated(self, begin_ns: int) -> None:
        """Add a transfer that was requested at `begin_ns` and has just ended."""
        with self._lock:
            self._communicating.append((begin_ns, time.monotonic_ns()))

    def waited(self, begin_ns: int) -> None:
        """Add a wait of the training thread for transfers, from `begin_ns` until now."""
        with self._lock:
            self._waiting.append((begin_ns, time.monotonic_ns()))

    @contextlib.contextmanager
    def blocking(self) -> Iterator[None]:
        """Add a block as both a transfer and a wait: the training thread waits for the transfer from its
        start to its end.
        """
        begin_ns = time.monotonic_ns()
        yield
        self.communicated(begin_ns)
        self.waited(begin_ns)

    def taken(self) -> tuple[list[Interval], list[Interval]]:
        """Return the transfers and the waits since the last call."""
        with self._lock:
            taken = self._communicating, self._waiting
            self._communicating, self._waiting = [], []
        return taken


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of an iteration by phase, and the part of each phase for which the training thread waits;
    seconds of communication, and the part of it for which that thread waits.
    """

    forward_s: float
    forward_waited_s: float
    backward_s: float
    backward_waited_s: float
    step_s: float
    step_waited_s: float
    iteration_s: float
    communicated_s: float
    serialised_s: float


def passes(communicating: Sequence[Interval], waiting: Sequence[Interval], marks: Sequence[int]) -> Passes:
    """Return an iteration's seconds. `marks` are the times, in nanoseconds, at which forward, backward and
    step began, and the step ended.
    """
    forward, backward, step, end = marks
    return Passes(
        forward_s=(backward - forward) / 1e9,
        forward_waited_s=within(waiting, forward, backward) / 1e9,
        backward_s=(step - backward) / 1e9,
        backward_waited_s=within(waiting, backward, step) / 1e9,
        step_s=(end - step) / 1e9,
        step_waited_s=within(waiting, step, end) / 1e9,
        iteration_s=(end - forward) / 1e9,
        communicated_s=within(communicating, forward, end) / 1e9,
        serialised_s=within(common(communicating, waiting), forward, end) / 1e9,
    )
