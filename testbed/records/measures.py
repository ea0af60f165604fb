"""The numbers of a result that runs are compared by. Pure: reads what a command's `--json` writes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that results of a kind have. `timed`: it is another where the machine was too slow, so that
    those of runs that are not trustworthy are not compared.
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
_SETTING = ("value",)  # of a sweep: a number that is no result
_KNOWN = {measure.name: measure for measure in (*OF_RUN, *OF_SUBMISSION)}


def known(name: str) -> Measure:
    """Return a measure by its name; of a figure, the name says all."""
    return _KNOWN.get(name) or Measure(name, "", name)


def measures(command: str, result: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the numbers of a result of this command, by name, in the order in which they are shown. What a
    result does not say is left out. A figure may have several of a name: its seeds'.
    """
    made = {"run": _of_run, "submit": _of_submission, "reproduce": _of_figure}.get(command)
    numbers: dict[str, list[float]] = {}
    for name, value in made(result) if made else ():
        if math.isfinite(value):
            numbers.setdefault(name, []).append(value)
    return numbers


def _of_run(result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    if result.get("failure"):  # it did not do its work: its times are of something else
        return
    yield "wall_s", float(result["wall_s"])
    if bound := result.get("bound"):
        yield from _named(bound, {"round_ms": "measured_ms", "allowed_ms": "bound_ms", "ratio": "ratio"})
    stats = [worker["stats"] for worker in result["workers"] if worker.get("stats")]
    lasted = [each_s for left in stats if (each_s := _all_reduce_s(left.get("allreduce"))) is not None]
    if lasted:
        yield "all_reduce_ms", 1e3 * statistics.fmean(lasted)
    yield "link_mb", sum(link["bytes"] for link in result["links"]) / 1e6
    yield "drops", float(sum(link["drops"] for link in result["links"]))
    sent_again = [each["retransmits"] for each in stats if _is_number(each.get("retransmits"))]
    if sent_again:
        yield "retransmits", float(sum(sent_again))


def _all_reduce_s(left: object) -> float | None:
    """Return how long a worker's all-reduce took, by what it left: scripts may leave anything."""
    if not isinstance(left, Mapping):
        return None
    busy_s, count = left.get("busy_s"), left.get("count")
    return float(busy_s) / float(count) if _is_number(busy_s) and _is_number(count) and count else None


def _of_submission(result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    yield from _named(result, {"total_jct_s": "total_jct_s", "ct_bti_s": "ct_bti_s"})
    for name in ("waiting_s", "training_s"):
        if values := [job[name] for job in result["jobs"] if _is_number(job.get(name))]:
            yield name, statistics.fmean(values)
    yield from _named(result, {name: name for name in ("reconfigured_connections", "overruns")})


def _of_figure(result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a figure's runs, by what tells runs of another setting apart: a seed does not."""
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


def _named(data: Mapping[str, Any], names: Mapping[str, str]) -> Iterable[tuple[str, float]]:
    return ((name, float(data[key])) for name, key in names.items() if _is_number(data.get(key)))


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
