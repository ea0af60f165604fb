"""Record measured spans of time: of each step of each layer, and of each request in a disk's queues. Imports
nothing of the project but errors.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from workloads.luwu.errors import LuwuError

MOST_SPANS = 60_000  # then the record ends: it covers the time until then


@dataclass(frozen=True, slots=True)
class Span:
    """A measured span. `place` is a step's name, or `disk N QUEUE`. Times are nanoseconds of
    CLOCK_MONOTONIC.
    """

    place: str
    iteration: int
    phase: str
    layer: int
    start_ns: int
    end_ns: int
    size_bytes: int


class Spans:
    """Collects up to MOST_SPANS spans. Thread-safe."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._lock = threading.Lock()

    def add(self, span: Span) -> None:
        with self._lock:
            if len(self._spans) < MOST_SPANS:
                self._spans.append(span)

    @contextlib.contextmanager
    def span(self, place: str, iteration: int, phase: str, layer: int, size_bytes: int = 0) -> Iterator[None]:
        """Add the time of a block, if it ends without an error."""
        start_ns = time.monotonic_ns()
        yield
        self.add(Span(place, iteration, phase, layer, start_ns, time.monotonic_ns(), size_bytes))

    def all(self) -> list[Span]:
        with self._lock:
            return list(self._spans)

    def write(self, file: Path) -> int:
        """Write the spans as a list of JSON objects, and return their number. Raises LuwuError."""
        rows = [asdict(span) for span in self.all()]
        try:
            file.write_text(json.dumps(rows))
        except OSError as problem:
            raise LuwuError(f"record {file}: {problem.strerror}") from problem
        return len(rows)
