"""Table 1: a vector summed by a parameter server, a ring and ALEPH in section 3.1's network. Owns the
runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reproductions import live
from reproductions.aleph.live.setting import ALEPH, PS, RING, Sync, bound_of, example, run
from reproductions.claims import Finding, timed
from reproductions.reports import ByVerdict, FigureReport, NumberedRow, Trust
from reproductions.verdicts import AGREES, DIFFERS
from testbed.figures import finished_runs
from testbed.messages.coding import Number
from testbed.messages.verdict import JobVerdict

GIGABITS = 4.2
"""The volume that each worker sends: VGG19's gradients, as the paper counts them."""
PAPER_S = {PS.sync: 0.84, RING.sync: 0.63, ALEPH.sync: 0.42}
WITHIN = 0.05
"""Allowed deviation from the paper's number, as a share. It is small because the paper's number is
arithmetic.
"""


@dataclass(frozen=True, slots=True)
class ExampleRow(ByVerdict, NumberedRow):
    """One way's sum of a vector: our seconds, the paper's, and the largest error of a value."""

    way: str
    title: str
    seconds: float
    paper_s: float
    error: Number
    bound_ms: Number
    measured_ms: Number
    ratio: Number
    verdict: JobVerdict


@dataclass(frozen=True, slots=True)
class ExampleReport(FigureReport):
    """The report of table 1."""

    version: int
    rows: Sequence[ExampleRow]
    trust: Trust
    scale: int
    iterations: int


@dataclass(frozen=True, slots=True)
class _Vectors:
    """The fields that are read of the result that vectors.py writes."""

    sum_ms: Number
    error: Number


def values(scale: int) -> int:
    """Return how many float32 values make the volume at a scale."""
    return math.floor(GIGABITS * 1e9 / 32 / scale)


def measure(scale: int, turns: int, folder: Path, on_done: Callable[[str], None]) -> list[ExampleRow]:
    """Sum the vector by each way on one testbed, and return a row for each: the median seconds of a sum over
    `turns`.
    """
    rows: list[ExampleRow] = []
    with live.testbed("table1", example(scale), folder) as testbed:
        for way in (PS, RING, ALEPH):
            measure_one = partial(_row, testbed, way, scale, turns, folder)
            rows.append(finished_runs.row(folder, way.sync, ExampleRow, measure_one))
            on_done(way.title)
    return rows


def _row(testbed: live.TestbedOfFigures, way: Sync, scale: int, turns: int, folder: Path) -> ExampleRow:
    words = ("vectors.py", "--values", str(values(scale)), "--turns", str(turns), "--warm-up", "2")
    result, script = run(testbed, way, f"table1.{way.sync}", folder, _Vectors, *words)
    seconds = script.sum_ms / 1e3
    return ExampleRow(way.sync, way.title, seconds, PAPER_S[way.sync], script.error, *bound_of(result))


def claims(rows: Sequence[ExampleRow]) -> list[Finding]:
    """Compare each way's time with the paper's."""
    return [
        timed(
            f"one sum by {row.title}, s",
            f"{row.paper_s:.2f}",
            f"{row.seconds:.3f} ({row.seconds / row.paper_s - 1:+.1%})",
            AGREES if abs(row.seconds / row.paper_s - 1) <= WITHIN else DIFFERS,
            [row],
        )
        for row in rows
    ]
