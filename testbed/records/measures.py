"""The numbers of a result by which runs are compared. Pure: reads the JSON that commands write."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from testbed.messages.result import RunResult
from testbed.messages.script import ScriptResult
from testbed.messages.submission import SubmissionResult
from testbed.messages.traffic import TrafficResult
from testbed.records.outcome import Figure, Outcome
from testbed.telemetry.worker_numbers import RETRANSMITS, retransmits


@dataclass(frozen=True, slots=True)
class Measure:
    """A number in results of one kind. `timed`: a slow machine changes it, so it is not compared for runs
    that are not trustworthy.
    """

    name: str
    unit: str
    title: str
    timed: bool = True


OF_RUN = (
    Measure("wall_s", "s", "whole job"),
    Measure("round_ms", "ms", "round"),
    Measure("allowed_ms", "ms", "round that links allow", timed=False),
    Measure("ratio", "", "round over what links allow"),
    Measure("all_reduce_ms", "ms", "all-reduce"),
    Measure("link_mb", "MB", "on all links", timed=False),
    Measure("drops", "", "frames dropped"),
    Measure("retransmits", "", "packets sent again"),
)
OF_SUBMISSION = (
    Measure("total_jct_s", "s", "sum of completion times"),
    Measure("ct_bti_s", "s", "first start to last end"),
    Measure("waiting_s", "s", "waiting, mean"),
    Measure("training_s", "s", "training, mean"),
    Measure("reconfigured_connections", "", "connections set up"),
    Measure("overruns", "", "overruns of the policy"),
)
OF_TRAFFIC = (
    Measure("flows", "", "flows", timed=False),
    Measure("finished", "", "flows that finished"),
    Measure("offered_mbps", "Mb/s", "offered", timed=False),
    Measure("carried_mbps", "Mb/s", "carried"),
    Measure("fct_median_ms", "ms", "flow completion time, median"),
    Measure("fct_p99_ms", "ms", "flow completion time, p99"),
    Measure("fct_max_ms", "ms", "flow completion time, longest"),
    Measure("slowdown_median", "", "slowdown, median"),
    Measure("slowdown_p99", "", "slowdown, p99"),
)
_SETTING = ("value",)  # keys of a sweep's parameters: numbers that are no results
_KNOWN = {measure.name: measure for measure in (*OF_RUN, *OF_SUBMISSION, *OF_TRAFFIC)}


def known(name: str) -> Measure:
    """Return a measure by its name; a figure's measure consists of its name only."""
    return _KNOWN.get(name) or Measure(name, "", name)


def measures(result: Outcome) -> dict[str, list[float]]:
    """Return the numbers of a result, by name, in the order of display; missing ones are omitted. A figure
    may have several values under one name: its seeds'.
    """
    numbers: dict[str, list[float]] = {}
    for name, value in _numbers(result):
        if math.isfinite(value):
            numbers.setdefault(name, []).append(value)
    return numbers


def _numbers(result: Outcome) -> Iterable[tuple[str, float]]:
    if isinstance(result, RunResult):
        return _of_run(result)
    if isinstance(result, SubmissionResult):
        return _of_submission(result)
    if isinstance(result, TrafficResult):
        return _of_traffic(result)
    return () if isinstance(result, ScriptResult) else _of_figure(result)


def _of_run(result: RunResult) -> Iterator[tuple[str, float]]:
    if result.failure:  # its work was not done, so its times are not comparable
        return
    yield "wall_s", float(result.wall_s)
    if bound := result.bound:
        yield "round_ms", float(bound.measured_ms)
        yield "allowed_ms", float(bound.bound_ms)
        yield "ratio", float(bound.ratio)
    stats = [worker.stats for worker in result.workers if worker.stats]
    lasted = [each_s for left in stats if (each_s := _all_reduce_s(left.get("allreduce"))) is not None]
    if lasted:
        yield "all_reduce_ms", 1e3 * statistics.fmean(lasted)
    yield "link_mb", sum(link.bytes for link in result.links) / 1e6
    yield "drops", float(sum(link.drops for link in result.links))
    if any(_is_number(each.get(RETRANSMITS)) for each in stats):
        yield RETRANSMITS, float(retransmits(stats))


def _all_reduce_s(left: object) -> float | None:
    """Return the mean time of a worker's all-reduces in s, from its statistics, which scripts may write in
    any form.
    """
    if not isinstance(left, Mapping):
        return None
    busy_s, count = left.get("busy_s"), left.get("count")
    return float(busy_s) / float(count) if _is_number(busy_s) and _is_number(count) and count else None


def _of_submission(result: SubmissionResult) -> Iterator[tuple[str, float]]:
    yield "total_jct_s", float(result.total_jct_s)
    yield "ct_bti_s", float(result.ct_bti_s)
    if waited := [job.waiting_s for job in result.jobs if job.waiting_s is not None]:
        yield "waiting_s", statistics.fmean(waited)
    if trained := [job.training_s for job in result.jobs if job.training_s is not None]:
        yield "training_s", statistics.fmean(trained)
    yield "reconfigured_connections", float(result.reconfigured_connections)
    yield "overruns", float(result.overruns)


def _of_traffic(result: TrafficResult) -> Iterator[tuple[str, float]]:
    total = result.total
    times = total.times
    named = (
        ("flows", total.flows),
        ("finished", total.finished),
        ("offered_mbps", total.offered_mbps),
        ("carried_mbps", total.carried_mbps),
        ("fct_median_ms", times.median_ms),
        ("fct_p99_ms", times.p99_ms),
        ("fct_max_ms", times.max_ms),
        ("slowdown_median", times.median_slowdown),
        ("slowdown_p99", times.p99_slowdown),
    )
    yield from ((name, float(value)) for name, value in named if value is not None)


def _of_figure(result: Figure) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a figure's runs. Names include all settings of a run, but not its seed."""
    runs = result.get("runs")
    for row in runs if isinstance(runs, list) else []:
        if not isinstance(row, Mapping) or "seed" not in row:
            continue
        labels = [str(value) for key, value in row.items() if isinstance(value, str) or key in _SETTING]
        yield from (
            (f"{' '.join(labels)} {key}", float(value))
            for key, value in row.items()
            if _is_number(value) and key != "seed" and key not in _SETTING
        )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
