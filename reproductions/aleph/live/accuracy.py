"""Figure 12: a small model is trained by each way of summing in section 6.3's network; its test accuracy is
plotted against the time that its communication took. Owns the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.aleph.live.setting import ALEPH, PS, RING, Sync, bound_of, run, section_6_3
from reproductions.claims import Finding, timed
from reproductions.reports import ByVerdict, FigureReport, NumberedRow, Trust
from reproductions.verdicts import AGREES, DIFFERS, TIE
from testbed.figures import finished_runs
from testbed.messages.coding import Number
from testbed.messages.verdict import JobVerdict

LEVEL = 0.01
"""Accuracies that differ by no more are level: about four of 360 test images."""


@dataclass(frozen=True, slots=True)
class LearntRow(ByVerdict, NumberedRow):
    """A way's test accuracy after each epoch, and the cumulative seconds of communication."""

    way: str
    title: str
    accuracy: Sequence[Number]
    communication_s: Sequence[float]
    bound_ms: Number
    measured_ms: Number
    ratio: Number
    verdict: JobVerdict


@dataclass(frozen=True, slots=True)
class LearningReport(FigureReport):
    """The report of figure 12; `iterations` counts epochs."""

    version: int
    rows: Sequence[LearntRow]
    trust: Trust
    scale: int
    iterations: int


@dataclass(frozen=True, slots=True)
class _Digits:
    """The fields that are read of the result that digits.py writes."""

    test_accuracy_list: Sequence[Number]


@dataclass(frozen=True, slots=True)
class SumSpans:
    """The seconds in which a worker's all-reduces were under way."""

    busy_s: Number


@dataclass(frozen=True, slots=True)
class Summing:
    """The statistics of a worker that the figure reads."""

    allreduce: SumSpans


def measure(epochs: int, scale: int, folder: Path, on_done: Callable[[str], None]) -> list[LearntRow]:
    """Train once by each way on one testbed, and return a row for each."""
    rows: list[LearntRow] = []
    with live.testbed("aleph-fig12", section_6_3(scale), folder) as testbed:
        for way in (PS, RING, ALEPH):
            measure_one = partial(_row, testbed, way, epochs, folder)
            rows.append(finished_runs.row(folder, way.sync, LearntRow, measure_one))
            on_done(way.title)
    return rows


def _row(testbed: live.TestbedOfFigures, way: Sync, epochs: int, folder: Path) -> LearntRow:
    words = ("digits.py", "--epochs", str(epochs))
    result, script = run(testbed, way, f"fig12.{way.sync}", folder, _Digits, *words)
    busy_s = max(worker.allreduce.busy_s for worker in live.statistics_of(result, Summing))
    communication_s = [busy_s * (epoch + 1) / epochs for epoch in range(epochs)]
    return LearntRow(way.sync, way.title, script.test_accuracy_list, communication_s, *bound_of(result))


def reached(row: LearntRow, seconds: float) -> float:
    """Return the accuracy after the last epoch that ended within `seconds` of communication; 0 before
    the first.
    """
    ended = [
        accuracy for accuracy, at_s in zip(row.accuracy, row.communication_s, strict=True) if at_s <= seconds
    ]
    return float(ended[-1]) if ended else 0.0


def claims(rows: Sequence[LearntRow]) -> list[Finding]:
    """Compare accuracies at the time at which ALEPH has finished: the paper's other ways are less
    accurate then.
    """
    by = {row.way: row for row in rows}
    whole_s = by[ALEPH.sync].communication_s[-1]
    ours = reached(by[ALEPH.sync], whole_s)
    findings = []
    for way, paper in ((PS, "80.4 against 69.8 %"), (RING, "80.4 against 78.1 %")):
        theirs = reached(by[way.sync], whole_s)
        ahead = ours - theirs
        findings.append(
            timed(
                f"accuracy when ALEPH is done, ALEPH above {way.title} ({way.paper})",
                paper,
                f"{ours:.1%} against {theirs:.1%}",
                AGREES if ahead > LEVEL else TIE if ahead >= -LEVEL else DIFFERS,
                (by[each.sync] for each in (ALEPH, way)),
            )
        )
    return findings
