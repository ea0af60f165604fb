"""What the paper says of figures 6 and 7, beside what the runs say. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

JCT, LESS, CONNECTIONS = "total_jct_s", "total_jct_less_start_ups_s", "connections"
Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Claim:
    """By how much `to` is below `of`, as the paper has it: over the numbers of jobs, for one model or for both (None)."""

    text: str
    model: str | None
    pairs: tuple[tuple[str, str], ...]  # (to, of)
    metrics: tuple[str, ...]
    paper: float


_INC_FCFS, _INC_TW = ("inc-fcfs", "noinc-fcfs"), ("inc-tw", "noinc-tw")
_TW_NOINC, _TW_INC = ("noinc-tw", "noinc-fcfs"), ("inc-tw", "inc-fcfs")

CLAIMS = (
    *(
        Claim(text, model, (pair,), (JCT, LESS), paper)
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
    Claim("connections set up, INC below noINC", None, (_INC_FCFS, _INC_TW), (CONNECTIONS,), 0.488),
    Claim("connections set up, TW below FCFS", None, (_TW_NOINC, _TW_INC), (CONNECTIONS,), 0.475),
)


def mean(rows: Rows, model: str, jobs: int, scheme: str, metric: str) -> float | None:
    """Over the seeds; None where there is no run."""
    found = [float(row[metric]) for row in rows if (row["model"], row["jobs"], row["scheme"]) == (model, jobs, scheme)]
    return statistics.fmean(found) if found else None


def reduction(rows: Rows, claim: Claim, metric: str) -> float | None:
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
