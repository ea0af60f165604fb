"""The record of an iteration, as measured: when each step of each layer, and each request of each
disk's queue, began and ended. Imports nothing of the project.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any

MOST_SPANS = 60_000  # then the record ends, and what it says is of the time until then


@dataclass(frozen=True, slots=True)
class Span:
    """`place` is a step's name, or `disk N QUEUE`. Nanoseconds of CLOCK_MONOTONIC."""

    place: str
    iteration: int
    phase: str
    layer: int
    start_ns: int
    end_ns: int
    size_bytes: int


class Spans:
    """Thread-safe."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._lock = threading.Lock()

    def add(self, span: Span) -> None:
        with self._lock:
            if len(self._spans) < MOST_SPANS:
                self._spans.append(span)

    def all(self) -> list[Span]:
        with self._lock:
            return list(self._spans)

    def summary(self) -> list[dict[str, Any]]:
        """JSON-able."""
        return [asdict(span) for span in self.all()]
