"""The typed result of queued jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.messages.coding import plain
from testbed.messages.submission import QueuedRun, SubmissionResult
from testbed.messages.verdict import JobVerdict


@dataclass(frozen=True, slots=True)
class QueuedResult:
    """The result of a queued job that has ended. A time is None where the job did not reach that state."""

    id: int
    name: str
    mode: str | None
    failure: str | None
    cancelled: bool
    waiting_s: float | None
    training_s: float | None
    jct_s: float | None
    verdict: JobVerdict | None

    @classmethod
    def of(cls, job: QueuedRun) -> QueuedResult:
        return cls(
            id=job.id,
            name=job.name,
            mode=job.mode,
            failure=job.failure,
            cancelled=job.cancelled,
            waiting_s=job.waiting_s,
            training_s=job.training_s,
            jct_s=job.jct_s,
            verdict=job.run.verdict if job.run else None,
        )


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The results of all jobs of one submission; `data` is the JSON that `testbed submit --json` writes."""

    policy: str
    jobs: tuple[QueuedResult, ...]
    done: int
    failed: int
    cancelled: int
    total_jct_s: float
    reconfigurations: int
    data: Mapping[str, Any]

    @classmethod
    def of(cls, result: SubmissionResult) -> BatchResult:
        return cls(
            policy=result.policy,
            jobs=tuple(QueuedResult.of(job) for job in result.jobs),
            done=result.done,
            failed=result.failed,
            cancelled=result.cancelled,
            total_jct_s=result.total_jct_s,
            reconfigurations=result.reconfigurations,
            data=plain(result),
        )
