"""The paper's claims about figures 6 and 7, compared with our runs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reproductions.p4inc.live.report import QueueTotals, Reductions
from reproductions.verdicts import ERRORS, FLAT, Tally, of_gain

AnyTotals = TypeVar("AnyTotals", bound=QueueTotals)
Value = Callable[[AnyTotals], float]
"""A number of a run."""
Rows = Sequence[QueueTotals]


def total_jct_s(row: QueueTotals) -> float:
    return row.total_jct_s


def less_start_ups_s(row: QueueTotals) -> float:
    return row.total_jct_less_start_ups_s


def connections(row: QueueTotals) -> float:
    return row.connections


@dataclass(frozen=True, slots=True)
class Gain:
    """The paper's share by which `to` is below `of` in total JCT or in connections (`value`), averaged over
    the numbers of jobs, for one model or for both (None).
    """

    text: str
    model: str | None
    pairs: tuple[tuple[str, str], ...]  # (to, of)
    value: Value[QueueTotals]
    paper: float


_INC_FCFS, _INC_TW = ("inc-fcfs", "noinc-fcfs"), ("inc-tw", "noinc-tw")
_TW_NOINC, _TW_INC = ("noinc-tw", "noinc-fcfs"), ("inc-tw", "inc-fcfs")

CLAIMS = (
    *(
        Gain(text, model, (pair,), total_jct_s, paper)
        for model, text, pair, paper in (
            ("resnet50", "total JCT, INC-FCFS below noINC-FCFS", _INC_FCFS, 0.3357),
            ("resnet50", "total JCT, INC-TW below noINC-TW", _INC_TW, 0.4666),
            ("resnet50", "total JCT, noINC-TW below noINC-FCFS", _TW_NOINC, 0.1234),
            ("resnet50", "total JCT, INC-TW below INC-FCFS", _TW_INC, 0.2962),
            ("vgg16", "total JCT, INC-FCFS below noINC-FCFS", _INC_FCFS, 0.4396),
            ("vgg16", "total JCT, INC-TW below noINC-TW", _INC_TW, 0.5634),
            ("vgg16", "total JCT, noINC-TW below noINC-FCFS", _TW_NOINC, 0.127),
            ("vgg16", "total JCT, INC-TW below INC-FCFS", _TW_INC, 0.32),
        )
    ),
    Gain("connections set up, INC below noINC", None, (_INC_FCFS, _INC_TW), connections, 0.488),
    Gain("connections set up, TW below FCFS", None, (_TW_NOINC, _TW_INC), connections, 0.475),
)


@dataclass(frozen=True, slots=True)
class Trend:
    """The paper's claim that `low` is below all of `high` at every number of jobs."""

    text: str
    value: Value[QueueTotals]
    low: str
    high: tuple[str, ...]


TRENDS = (
    Trend(
        "INC-TW sets up the fewest connections", connections, "inc-tw", ("noinc-fcfs", "noinc-tw", "inc-fcfs")
    ),
    Trend("noINC-TW sets up fewer of them than INC-FCFS", connections, "noinc-tw", ("inc-fcfs",)),
    Trend("INC-FCFS sets up fewer of them than noINC-FCFS", connections, "inc-fcfs", ("noinc-fcfs",)),
    Trend("INC-TW has the shortest total JCT", total_jct_s, "inc-tw", ("noinc-fcfs", "noinc-tw", "inc-fcfs")),
)


NOISE = FLAT / ERRORS
"""Standard error of a measured gain: runs of one scheme on a virtual machine differ by this share from one
hour to the next.
"""


def verdict(share: float | None, paper: float) -> str | None:
    """Return the verdict word for a reduction; None where there is no reduction."""
    return None if share is None else of_gain(share, paper, NOISE)


def held(rows: Rows, trend: Trend) -> Tally:
    """Count the pairs of a model and a number of jobs at which a trend holds, among those with runs of all
    its schemes.
    """
    ahead = tied = of = 0
    for model, jobs in dict.fromkeys((row.model, row.jobs) for row in rows):
        means = [mean(rows, model, jobs, scheme, trend.value) for scheme in (trend.low, *trend.high)]
        if None not in means:
            low, *high = (value for value in means if value is not None)
            of += 1
            ahead += low < min(high) * (1 - FLAT)
            tied += min(high) * (1 - FLAT) <= low <= min(high) * (1 + FLAT)
    return Tally(ahead, tied, of)


def mean(
    rows: Sequence[AnyTotals], model: str, jobs: int, scheme: str, value: Value[AnyTotals]
) -> float | None:
    """Return a value's mean over the seeds; None where there is no run."""
    values = [float(value(row)) for row in rows if (row.model, row.jobs, row.scheme) == (model, jobs, scheme)]
    return statistics.fmean(values) if values else None


def reduction(rows: Rows, claim: Gain, value: Value[QueueTotals]) -> float | None:
    """Return the mean of 1 - to / of over models and numbers of jobs; None where runs are missing or `of` is
    always 0.
    """
    shares = []
    for model, jobs in dict.fromkeys((row.model, row.jobs) for row in rows):
        if claim.model not in (None, model):
            continue
        for to, of in claim.pairs:
            low, high = mean(rows, model, jobs, to, value), mean(rows, model, jobs, of, value)
            if low is not None and high:
                shares.append(1 - low / high)
    return statistics.fmean(shares) if shares else None


def reductions(rows: Rows, claim: Gain) -> Reductions:
    """Return our shares for a claim: of connections, or of total JCT with and without start-ups."""
    if claim.value is connections:
        return Reductions(connections=reduction(rows, claim, connections))
    return Reductions(
        total_jct_s=reduction(rows, claim, total_jct_s),
        total_jct_less_start_ups_s=reduction(rows, claim, less_start_ups_s),
    )
