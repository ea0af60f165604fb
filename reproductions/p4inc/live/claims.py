"""The paper's statements on figures 6 and 7, beside what the runs say. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reproductions.verdicts import ERRORS, FLAT, Tally, of_gain

JCT, LESS, CONNECTIONS = "total_jct_s", "total_jct_less_start_ups_s", "connections"
Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Gain:
    """The share by which `to` is below `of`, as the paper has it: over the numbers of jobs, for one model or
    for both (None).
    """

    text: str
    model: str | None
    pairs: tuple[tuple[str, str], ...]  # (to, of)
    metrics: tuple[str, ...]
    paper: float


_INC_FCFS, _INC_TW = ("inc-fcfs", "noinc-fcfs"), ("inc-tw", "noinc-tw")
_TW_NOINC, _TW_INC = ("noinc-tw", "noinc-fcfs"), ("inc-tw", "inc-fcfs")

CLAIMS = (
    *(
        Gain(text, model, (pair,), (JCT, LESS), paper)
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
    Gain("connections set up, INC below noINC", None, (_INC_FCFS, _INC_TW), (CONNECTIONS,), 0.488),
    Gain("connections set up, TW below FCFS", None, (_TW_NOINC, _TW_INC), (CONNECTIONS,), 0.475),
)


@dataclass(frozen=True, slots=True)
class Trend:
    """The paper's statement, for every number of jobs, that `low` is below all of `high`."""

    text: str
    metric: str
    low: str
    high: tuple[str, ...]


TRENDS = (
    Trend(
        "INC-TW sets up the fewest connections", CONNECTIONS, "inc-tw", ("noinc-fcfs", "noinc-tw", "inc-fcfs")
    ),
    Trend("noINC-TW sets up fewer of them than INC-FCFS", CONNECTIONS, "noinc-tw", ("inc-fcfs",)),
    Trend("INC-FCFS sets up fewer of them than noINC-FCFS", CONNECTIONS, "inc-fcfs", ("noinc-fcfs",)),
    Trend("INC-TW has the shortest total JCT", JCT, "inc-tw", ("noinc-fcfs", "noinc-tw", "inc-fcfs")),
)


NOISE = FLAT / ERRORS
"""Standard error of a measured gain: runs of one scheme differ by so much from one hour to the next on a
virtual machine."""


def verdict(share: float | None, paper: float) -> str | None:
    """Return the verdict on a reduction, as on those of the simulations."""
    return None if share is None else of_gain(share, paper, NOISE)


def held(rows: Rows, trend: Trend) -> Tally:
    """Return at how many pairs of a model and a number of jobs a trend holds, of those that have all its
    schemes.
    """
    ahead = tied = of = 0
    for model, jobs in dict.fromkeys((row["model"], row["jobs"]) for row in rows):
        means = [mean(rows, model, jobs, scheme, trend.metric) for scheme in (trend.low, *trend.high)]
        if None not in means:
            low, *high = (value for value in means if value is not None)
            of += 1
            ahead += low < min(high) * (1 - FLAT)
            tied += min(high) * (1 - FLAT) <= low <= min(high) * (1 + FLAT)
    return Tally(ahead, tied, of)


def mean(rows: Rows, model: str, jobs: int, scheme: str, metric: str) -> float | None:
    """Return the mean over the seeds; None where there is no run."""
    values = [
        float(row[metric])
        for row in rows
        if (row["model"], row["jobs"], row["scheme"]) == (model, jobs, scheme)
    ]
    return statistics.fmean(values) if values else None


def reduction(rows: Rows, claim: Gain, metric: str) -> float | None:
    """The mean over models and numbers of jobs of 1 - to / of; None where runs are lacking or all are 0."""
    shares = []
    for model, jobs in dict.fromkeys((row["model"], row["jobs"]) for row in rows):
        if claim.model not in (None, model):
            continue
        for to, of in claim.pairs:
            low, high = mean(rows, model, jobs, to, metric), mean(rows, model, jobs, of, metric)
            if low is not None and high:
                shares.append(1 - low / high)
    return statistics.fmean(shares) if shares else None
