"""Read the delays that were injected into a job's workers from their statistics (written by
workloads/stragglers.py). Pure.

Workers' statistics are user data: malformed values count as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.messages.result import JobDelays, WorkerDelays
from testbed.messages.statistics import Statistics
from testbed.telemetry.worker_numbers import number

_MOST_NAMED = 4
_MOST_ASKED = 100  # characters


@dataclass(frozen=True, slots=True)
class Slept:
    """The delays of a worker: their number and seconds; the iterations that it reported to have begun, the
    first that could have delays, and its typical iteration time (0: unknown).
    """

    rank: int
    count: int
    seconds: float
    iterations: int
    first: int
    typical_s: float


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of a job. `asked` is the pattern, in words of `--stragglers`; `workers` are those with a
    record.
    """

    asked: str
    workers: tuple[Slept, ...]

    @property
    def count(self) -> int:
        return sum(worker.count for worker in self.workers)

    @property
    def seconds(self) -> float:
        return sum(worker.seconds for worker in self.workers)

    @property
    def line(self) -> str:
        """A line about the delays for readers of the job's result."""
        slow = sorted((worker for worker in self.workers if worker.count), key=lambda worker: -worker.seconds)
        if not slow:
            return f"slow workers ({self.asked}): no delay was injected: {self._why_none()}"
        named = [f"worker {worker.rank} {worker.seconds:.2f} s in {worker.count}" for worker in slow]
        if len(named) > _MOST_NAMED:
            named[_MOST_NAMED:] = [f"and {len(named) - _MOST_NAMED} others"]
        return (
            f"slow workers ({self.asked}): {self.short}: {', '.join(named)}; they count as computing, not "
            f"as the network's time"
        )

    @property
    def short(self) -> str:
        if not self.count:
            return "no delay was injected"
        many = self.count != 1
        delays = f"{self.count} delay{'s' * many} of {self.seconds:.2f} s"
        return f"{delays}{' in all' * many} {'were' if many else 'was'} injected"

    def _why_none(self) -> str:
        if not self.workers:
            return "no worker left a record"
        most = max(self.workers, key=lambda worker: worker.iterations)
        if not most.iterations:
            return (
                "no iteration was seen, which is a sum of gradients by inc; a script can say where its delay "
                "points are (workloads.stragglers)"
            )
        if most.iterations <= most.first:
            return (
                f"the typical iteration time is measured in the first {most.first} iterations, and there "
                f"were {most.iterations}; iteration=TIME declares it"
            )
        return f"none was drawn in {most.iterations} iterations"

    def said(self) -> JobDelays:
        """Convert the delays for a job's result."""
        return JobDelays(
            asked=self.asked,
            delays=self.count,
            seconds=round(self.seconds, 6),
            workers=tuple(
                WorkerDelays(
                    rank=worker.rank,
                    delays=worker.count,
                    seconds=round(worker.seconds, 6),
                    iterations=worker.iterations,
                    typical_s=worker.typical_s or None,
                )
                for worker in self.workers
            ),
            line=self.line,
        )


def delays(statistics: Sequence[Statistics | None], asked: str | None) -> Delays | None:
    """Read a job's delays from its workers' statistics, by rank; None if neither the job (`asked`) nor its
    script requested any.
    """
    workers = []
    for rank, left in enumerate(statistics):
        of_worker = left.get("delays") if left else None
        if not isinstance(of_worker, dict):
            continue
        if asked is None and isinstance(of_worker.get("asked"), str):
            asked = " ".join(of_worker["asked"].split())[:_MOST_ASKED]
        count, iterations, first = (round(number(of_worker, key)) for key in ("count", "iterations", "first"))
        seconds, typical_s = (number(of_worker, key) for key in ("seconds", "typical_s"))
        workers.append(Slept(rank, count, seconds, iterations, first, typical_s))
    return None if asked is None else Delays(asked, tuple(workers))
