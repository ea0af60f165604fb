"""Compute the measures that a report compares, from a job's result (`testbed run`) and its script's own JSON.
Pure.

Communication time is the time in which at least one all-reduce of a worker runs, waiting for its slower peers
included; it may overlap with the worker's backward pass. The rest of an iteration is computation that
overlaps with no communication.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from testbed.errors import TestbedError
from testbed.messages.links import LinkDelta
from testbed.messages.report import JobMeasures, ReportedEvent, ReportedLink
from testbed.messages.result import RunResult
from testbed.messages.statistics import Statistics
from testbed.telemetry.worker_numbers import retransmits

GRADIENT_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

Span = tuple[float, float, int]  # start and end in seconds, bytes


@dataclass(frozen=True, slots=True)
class TrainingFigures:
    """The figures that rank 0 of the script wrote."""

    iterations: int
    params: int
    dtype: str
    test_accuracy: float
    epochs: int
    iteration_ms_list: Sequence[float]
    loss: Sequence[float]

    @classmethod
    def of(cls, script: Any) -> Self:
        """Read the script's JSON. KeyError names the first missing figure."""
        return cls(*(script[each.name] for each in fields(cls)))


def job_measures(run: RunResult, script: Any) -> JobMeasures:
    """Compute a job's measures from a run's result and the JSON that rank 0 of the script wrote. Raises
    TestbedError, which names missing data.
    """
    job = f"job {run.id} ({run.sync})"
    try:
        stats = [worker.stats for worker in run.workers if worker.stats is not None]
        silent = [worker.host for worker in run.workers if worker.stats is None]
        if silent:
            raise TestbedError(f"{job}: no statistics from the workers on {', '.join(silent)}")
        figures = TrainingFigures.of(script)
        iterations = int(figures.iterations)
        gradients = int(figures.params) * GRADIENT_BYTES[figures.dtype]
        comm = comm_ms_per_iteration([worker["allreduce"] for worker in stats], iterations, gradients)
        return JobMeasures(
            sync=run.sync,
            hosts=run.hosts,
            ps_host=run.ps_host,
            test_accuracy=float(figures.test_accuracy),
            iterations=iterations,
            epochs=int(figures.epochs),
            params=int(figures.params),
            dtype=figures.dtype,
            scale=int(script.get("scale", 1)),
            iteration_ms=statistics.median(figures.iteration_ms_list),
            comm_ms=statistics.median(comm),
            loss=tuple(map(float, figures.loss)),
            iteration_ms_list=tuple(map(float, figures.iteration_ms_list)),
            comm_ms_list=tuple(comm),
            wall_s=float(run.wall_s),
            retransmits=retransmits(stats),
            link_bytes=sum(link.bytes for link in run.links),
            link_drops=sum(link.drops for link in run.links),
        )
    except (KeyError, TypeError, ValueError, statistics.StatisticsError) as problem:
        raise TestbedError(
            f"{job}: its results do not read: {type(problem).__name__}: {problem}"
        ) from problem


def comm_ms_per_iteration(workers: Sequence[Statistics], iterations: int, gradient_bytes: int) -> list[float]:
    """Compute the milliseconds of communication in each iteration, as the mean over the workers; `workers`
    are their `allreduce` statistics.

    If the all-reduces do not form whole sets of gradients (the script sums other data too), return the mean
    per iteration, once.
    """
    per_worker = [spans_by_iteration(worker["spans"], gradient_bytes) for worker in workers]
    if all(len(groups) == iterations for groups in per_worker):
        return [
            statistics.fmean(covered_s(groups[i]) for groups in per_worker) * 1e3 for i in range(iterations)
        ]
    return [statistics.fmean(worker["busy_s"] for worker in workers) / iterations * 1e3]


def spans_by_iteration(spans: Iterable[Sequence[Any]], gradient_bytes: int) -> list[list[Span]]:
    """Group the spans by whole sets of gradients, in order; an incomplete set at the end is dropped.

    DDP reduces a model's gradients in buckets. Their sizes change after the first iteration, but their sum
    does not.
    """
    groups: list[list[Span]] = []
    group: list[Span] = []
    size = 0
    for start, end, count in spans:
        group.append((float(start), float(end), int(count)))
        size += int(count)
        if size > gradient_bytes:
            return []
        if size == gradient_bytes:
            groups.append(group)
            group, size = [], 0
    return groups


def covered_s(spans: Iterable[Span]) -> float:
    """Compute the seconds that at least one of the spans covers."""
    covered, until = 0.0, float("-inf")
    for start, end, _ in sorted(spans):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def merged_links(runs: Mapping[str, RunResult]) -> tuple[ReportedLink, ...]:
    """Merge the links of all jobs: each once, with the bytes of all jobs together and of each."""
    by_name: dict[str, dict[str, LinkDelta]] = {}
    for sync, run in runs.items():
        for link in run.links:
            by_name.setdefault(link.name, {})[sync] = link
    return tuple(
        ReportedLink(
            name=name,
            rate_mbps=next(iter(by_sync.values())).rate_mbps,
            bytes=sum(link.bytes for link in by_sync.values()),
            drops=sum(link.drops for link in by_sync.values()),
            bytes_by_sync={sync: link.bytes for sync, link in by_sync.items()},
        )
        for name, by_sync in by_name.items()
    )


def merged_events(runs: Mapping[str, RunResult]) -> tuple[ReportedEvent, ...]:
    """Merge the reconfigurations that the jobs caused: each once, in order, with its job."""
    events: dict[int, ReportedEvent] = {}
    for sync, run in runs.items():
        for event in run.events:
            values = {each.name: getattr(event, each.name) for each in fields(event)}
            events.setdefault(event.id, ReportedEvent(**values, sync=sync))
    return tuple(events[number] for number in sorted(events))
