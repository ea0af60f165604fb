"""The result of queued jobs: printed by `testbed submit --json`, and kept in records. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.messages.coding import UNSET, Number, UnsetType
from testbed.messages.queue import QueuedStatus
from testbed.messages.result import RunResult

PortCounts = tuple[tuple[int, int, int], ...]  # (unit index, unit index, circuits between the two)


@dataclass(frozen=True, slots=True)
class QueuedRun(QueuedStatus):
    """A queued job that has ended: its times in s, the rate that it was given in each time slot, and its own
    result `run`; None if it did not run.
    """

    waiting_s: Number | None
    start_up_s: Number | None
    training_s: Number | None
    jct_s: Number | None
    iterations: int
    megabytes: Number
    gigabits: Number
    rates: tuple[tuple[int, Number], ...]
    run: RunResult | None


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn of a rotation: the circuits between units, and how long they are lit."""

    ports: PortCounts
    lasts_ms: Number


@dataclass(frozen=True, slots=True)
class RotationRecord:
    """A sequence of turns by the data plane's clock."""

    guard_ms: Number
    turns: tuple[TurnRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """A time slot: the policy's computing time (None: its last decision stayed in force), how many circuits
    were `set_up`, and the decision: rates by job, circuits and rotation.
    """

    slot: int
    policy_s: Number | None
    set_up: int | UnsetType = UNSET
    rates: dict[str, Number]
    ports: PortCounts
    rotation: RotationRecord | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class QueueModel:
    """The limits, jobs and circuits as policies saw them (testbed/scheduling/model.py)."""

    limits: dict[str, Any]
    jobs: tuple[dict[str, Any], ...]
    ports: PortCounts


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """All jobs of one submission; circuits and the policy's times are those of the whole session. `lost` says
    why a file of the result is missing; it is not part of such a file.
    """

    policy: str
    slot_s: Number
    seed: int
    scale: Number
    configuration: str
    jobs: tuple[QueuedRun, ...]
    done: int
    failed: int
    cancelled: int
    total_jct_s: Number
    ct_bti_s: Number
    reconfigured_connections: int
    reconfigurations: int
    policy_s: Number
    policy_s_max: Number
    overruns: int
    policy_failures: int
    last_failure: str | None
    late_slots: int
    complaints: tuple[str, ...]
    slots: tuple[SlotRecord, ...]
    model: QueueModel
    lost: str | UnsetType | None = UNSET

    @property
    def loss(self) -> str | None:
        """Return why a file of the result is missing; None if all are there."""
        return None if isinstance(self.lost, UnsetType) else self.lost

    @property
    def why_failed(self) -> str | None:
        """Return why the submission failed; None if none of its jobs did."""
        failed = [job for job in self.jobs if job.failure and not job.cancelled]
        if not failed:
            return None
        first = failed[0]
        return (
            f"{len(failed)} of {len(self.jobs)} jobs failed, the first of them job {first.id} "
            f"({first.name}): {first.failure}"
        )

    def verdict(self) -> tuple[str | None, bool | None]:
        """Return a line that counts the trustworthy jobs among those judged, and whether all are; None, None
        if none was judged.
        """
        verdicts = [job.run.verdict.trustworthy for job in self.jobs if job.run and not job.failure]
        judged = [each for each in verdicts if each is not None]
        if not judged:
            return None, None
        return f"verdicts: {sum(judged)} of {len(judged)} jobs are trustworthy", all(judged)


@dataclass(frozen=True, slots=True)
class QueuedJobs:
    """The numbers of jobs that were queued without a waiting client."""

    jobs: tuple[int, ...]
