"""The times in which a worker's sums ran, for the statistics that it leaves."""

from __future__ import annotations

import threading
from typing import Any

from testbed.contract import calls

MOST_SPANS = calls.MOST_ROWS  # what a worker leaves is read by the daemon


class Statistics:
    """Spans of time in all-reduce, as [start, end, bytes] in seconds since the first one: the first
    MOST_SPANS of them; those after them are only counted.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[float, float, int]] = []
        self._count, self._bytes = 0, 0
        self._later_s, self._until = 0.0, float("-inf")
        self._lock = threading.Lock()

    def add(self, start: float, end: float, size_bytes: int) -> None:
        with self._lock:
            self._count += 1
            self._bytes += size_bytes
            if len(self._spans) < MOST_SPANS:
                self._spans.append((start, end, size_bytes))
            else:  # they come in the order in which they end
                self._later_s += max(0.0, end - max(start, self._until))
            self._until = max(self._until, end)

    def summary(self) -> dict[str, Any]:
        """Count, bytes, and the time in which at least one all-reduce was running."""
        with self._lock:
            spans, count, size_bytes, later_s = sorted(self._spans), self._count, self._bytes, self._later_s
        busy, until = 0.0, float("-inf")
        for start, end, _ in spans:
            busy += max(0.0, end - max(start, until))
            until = max(until, end)
        zero = spans[0][0] if spans else 0.0
        return {
            "count": count,
            "bytes": size_bytes,
            "busy_s": busy + later_s,
            "spans": [[round(start - zero, 6), round(end - zero, 6), size] for start, end, size in spans],
        }
