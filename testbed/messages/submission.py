"""The result of queued jobs: what `testbed submit --json` prints, and records have. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.messages.coding import UNSET, Number, UnsetType
from testbed.messages.queue import QueuedStatus
from testbed.messages.result import RunResult

PortCounts = tuple[tuple[int, int, int], ...]  # of two units, by their indices, and the circuits between them


@dataclass(frozen=True, slots=True)
class QueuedRun(QueuedStatus):
    """A queued job that has ended, its times in s, and by slot the rates that it was given; `run` is its own
    result, None of one that did not run.
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
    """Circuits between two units that a rotation lights for so long."""

    ports: PortCounts
    lasts_ms: Number


@dataclass(frozen=True, slots=True)
class RotationRecord:
    """Turns that follow each other by the data plane's clock."""

    guard_ms: Number
    turns: tuple[TurnRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """A slot: how long the policy took (None: its last decision stayed in force), how many connections were
    `set_up`, and the rates by job, the circuits and the rotation that it decided on.
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
    """All jobs that were queued at once; circuits and the policy's times are the whole session's. `lost` says
    why a file of the result is lacking, and is no part of such a file.
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
        """Return why a file of the result is lacking, if one is."""
        return None if isinstance(self.lost, UnsetType) else self.lost

    @property
    def why_failed(self) -> str | None:
        """Return why the submission failed; None where no job of it did."""
        failed = [job for job in self.jobs if job.failure and not job.cancelled]
        if not failed:
            return None
        first = failed[0]
        return (
            f"{len(failed)} of {len(self.jobs)} jobs failed, the first of them job {first.id} "
            f"({first.name}): {first.failure}"
        )

    def verdict(self) -> tuple[str | None, bool | None]:
        """Return how many of the jobs that were judged are trustworthy, in a line, and whether all are; None
        where none was judged.
        """
        verdicts = [job.run.verdict.trustworthy for job in self.jobs if job.run and not job.failure]
        judged = [each for each in verdicts if each is not None]
        if not judged:
            return None, None
        return f"verdicts: {sum(judged)} of {len(judged)} jobs are trustworthy", all(judged)


@dataclass(frozen=True, slots=True)
class QueuedJobs:
    """The numbers of jobs that were queued, and that nobody waits for."""

    jobs: tuple[int, ...]
