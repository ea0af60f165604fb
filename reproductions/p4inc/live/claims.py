"""The paper's claims about figures 6 and 7, compared with our runs. Pure."""

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
    """The paper's share by which `to` is below `of`, averaged over the numbers of jobs, for one model or for
    both (None).
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
    """The paper's claim that `low` is below all of `high` at every number of jobs."""

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
    for model, jobs in dict.fromkeys((row["model"], row["jobs"]) for row in rows):
        means = [mean(rows, model, jobs, scheme, trend.metric) for scheme in (trend.low, *trend.high)]
        if None not in means:
            low, *high = (value for value in means if value is not None)
            of += 1
            ahead += low < min(high) * (1 - FLAT)
            tied += min(high) * (1 - FLAT) <= low <= min(high) * (1 + FLAT)
    return Tally(ahead, tied, of)


def mean(rows: Rows, model: str, jobs: int, scheme: str, metric: str) -> float | None:
    """Return a metric's mean over the seeds; None where there is no run."""
    values = [
        float(row[metric])
        for row in rows
        if (row["model"], row["jobs"], row["scheme"]) == (model, jobs, scheme)
    ]
    return statistics.fmean(values) if values else None


def reduction(rows: Rows, claim: Gain, metric: str) -> float | None:
    """Return the mean of 1 - to / of over models and numbers of jobs; None where runs are missing or `of` is
    always 0.
    """
    shares = []
    for model, jobs in dict.fromkeys((row["model"], row["jobs"]) for row in rows):
        if claim.model not in (None, model):
            continue
        for to, of in claim.pairs:
            low, high = mean(rows, model, jobs, to, metric), mean(rows, model, jobs, of, metric)
            if low is not None and high:
                shares.append(1 - low / high)
    return statistics.fmean(shares) if shares else None
