"""Measure the time in which a worker communicated and in which its training thread waited, as intervals.
Pure, except for the clock of `Log`. Imports nothing of the project.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

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


def phases(
    communicating: Sequence[Interval], waiting: Sequence[Interval], marks: Sequence[int]
) -> dict[str, float]:
    """Return an iteration's seconds by phase. `marks` are the times, in nanoseconds, at which forward,
    backward and step began, and the step ended.

    `serialised_s` is the time of communication during which the training thread waited.
    """
    names = ("forward", "backward", "step")
    seconds: dict[str, float] = {}
    for name, begin, end in zip(names, marks, marks[1:], strict=False):
        seconds[f"{name}_s"] = (end - begin) / 1e9
        seconds[f"{name}_waited_s"] = within(waiting, begin, end) / 1e9
    begin, end = marks[0], marks[-1]
    seconds["iteration_s"] = (end - begin) / 1e9
    seconds["communicated_s"] = within(communicating, begin, end) / 1e9
    seconds["serialised_s"] = within(common(communicating, waiting), begin, end) / 1e9
    return seconds
