"""Read the results in records, as the types that their commands print. A figure's is its own JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from testbed.messages.coding import as_json, decode
from testbed.messages.result import RunResult
from testbed.messages.script import ScriptResult
from testbed.messages.submission import SubmissionResult
from testbed.messages.traffic import TrafficResult
from testbed.records.record import Record, Run

Figure: TypeAlias = Mapping[str, Any]
"""The report of `testbed reproduce`, with a paper's own rows and settings."""
Outcome: TypeAlias = RunResult | SubmissionResult | ScriptResult | TrafficResult | Figure

KINDS: Mapping[str, type[RunResult | SubmissionResult | ScriptResult | TrafficResult]] = {
    "run": RunResult,
    "submit": SubmissionResult,
    "script": ScriptResult,
    "traffic": TrafficResult,
}
"""The types of commands' results, by command."""


def outcome_of(record: Record, run: Run) -> Outcome | None:
    """Return the result of a record's run; None if it has none, or one that cannot be read. Raises
    TestbedError for a form that no version wrote.
    """
    result, kind = run.result, KINDS.get(record.command)
    if result is None or kind is None:
        return result
    outcome: Outcome = decode(kind, result, f"record {record.name}: run {run.number}")
    return outcome


def outcomes(record: Record) -> list[Outcome]:
    """Return the results of a record's runs, without those that have none."""
    return [each for run in record.runs if (each := outcome_of(record, run)) is not None]


def claims_of(outcome: Outcome | None) -> list[Figure]:
    """Return the paper's claims in a figure's report; empty for any other result."""
    claims = outcome.get("claims") if isinstance(outcome, Mapping) else None
    return claims if isinstance(claims, list) else []


@dataclass(frozen=True, slots=True)
class RecordParts:
    """The parts of a result for a record: its JSON data, all its samples in a separate file, its jobs'
    folders of logs with their names, the failure, and the line of its verdict.
    """

    data: Any
    samples: bytes | None = None
    logs: tuple[tuple[str, Path], ...] = ()
    failure: str | None = None
    verdict: str | None = None
    trustworthy: bool | None = None


def split_result(outcome: Outcome, file: str) -> RecordParts:
    """Split a result into its parts; `file` is the name of the samples file."""
    if isinstance(outcome, RunResult):
        verdict, samples = outcome.verdict, outcome.samples
        kept = outcome if samples is None else outcome.with_samples_in(file)
        return RecordParts(as_json(kept), samples, (), outcome.failure, verdict.line, verdict.trustworthy)
    if isinstance(outcome, SubmissionResult):
        return RecordParts(as_json(outcome), None, of_queue(outcome), outcome.why_failed, *outcome.verdict())
    if isinstance(outcome, TrafficResult):
        return RecordParts(as_json(outcome), verdict=outcome.verdict, trustworthy=outcome.trustworthy)
    return RecordParts(as_json(outcome))


def of_queue(result: SubmissionResult) -> tuple[tuple[str, Path], ...]:
    """Return the jobs of a submission's result that have logs, with their folders."""
    workers = [(job.name, job.run.workers[0]) for job in result.jobs if job.run and job.run.workers]
    return tuple((name, Path(worker.log).parent) for name, worker in workers)


def steps_of(records: Iterable[Record]) -> list[ScriptResult]:
    """Return the results of scripts from their records."""
    return [each for record in records for each in outcomes(record) if isinstance(each, ScriptResult)]
