"""The typed result of queued jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.messages.coding import decode
from testbed.messages.verdict import JobVerdict


@dataclass(frozen=True, slots=True)
class QueuedResult:
    """A queued job that has ended; times are None for what it did not come to."""

    id: int
    name: str
    mode: str | None
    failure: str | None
    cancelled: bool
    waiting_s: float | None
    training_s: float | None
    jct_s: float | None
    verdict: JobVerdict | None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """All jobs that were queued at once; `data` is all that `testbed submit --json` writes."""

    policy: str
    jobs: tuple[QueuedResult, ...]
    done: int
    failed: int
    cancelled: int
    total_jct_s: float
    reconfigurations: int
    data: Mapping[str, Any]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> BatchResult:
        jobs = tuple(_queued(job) for job in data["jobs"])
        counts = {name: data[name] for name in ("done", "failed", "cancelled", "reconfigurations")}
        return cls(policy=data["policy"], jobs=jobs, total_jct_s=data["total_jct_s"], data=data, **counts)


def _queued(job: Mapping[str, Any]) -> QueuedResult:
    same = ("id", "name", "mode", "failure", "cancelled", "waiting_s", "training_s", "jct_s")
    run = job["run"]
    verdict = decode(JobVerdict, run["verdict"], "verdict") if run else None
    return QueuedResult(**{name: job[name] for name in same}, verdict=verdict)
