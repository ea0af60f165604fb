"""The paper's claims about figure 12 (section 6.2), compared with our runs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from reproductions.claims import Finding, timed
from reproductions.trio.accuracy.runs import IDEAL, AccuracyRow, final, picked, reached, reached_s
from reproductions.trio.slow.setting import SWITCHML, TRIO
from reproductions.verdicts import (
    AGREES,
    BAND,
    DIFFERS,
    ERRORS,
    LEVEL,
    TIE,
    of_ratio,
    standard_error,
)

Rows = Sequence[AccuracyRow]
PAPER = (1.56, 1.60)
"""SwitchML's time to the target over Trio-ML's: ResNet50 and DenseNet161, VGG11."""


def of(rows: Rows, target: float) -> list[Finding]:
    """Judge the claims, for the target accuracy."""
    sooner = _ratios(rows, target, SWITCHML.sync, TRIO.sync)
    claims = [
        timed(
            f"time to an accuracy of {target:.0%}: SwitchML's over Trio-ML's",
            " to ".join(f"{each:.2f}" for each in PAPER),
            _text(sooner, rows),
            _of_times(sooner),
        )
    ]
    for way, title, paper in ((TRIO.sync, "Trio-ML", "close to 1"), (SWITCHML.sync, "SwitchML", "more")):
        over = _ratios(rows, target, way, IDEAL)
        near = bool(over) and statistics.fmean(over) <= 1 + BAND
        claims.append(
            timed(
                f"time to {target:.0%}: {title}'s over Ideal's",
                paper,
                _text(over, rows),
                AGREES if over and near == (way == TRIO.sync) else DIFFERS,
            )
        )
    more = _iterations(rows, target)
    level = more and statistics.fmean(more) <= 1 + max(ERRORS * standard_error(more), LEVEL)
    claims.append(
        timed(
            f"iterations to {target:.0%}: Trio-ML's over Ideal's",
            "not said",
            _text(more, rows),
            TIE if level else DIFFERS,
        )
    )
    return [*claims, _lost(rows)]


def _lost(rows: Rows) -> Finding:
    """Judge the claim on the final accuracy; runs are compared seed by seed."""
    pairs = zip(picked(rows, TRIO.sync), picked(rows, IDEAL), strict=True)
    apart = [final(ours) - final(ideal) for ours, ideal in pairs]
    mean, error = statistics.fmean(apart), standard_error(apart)
    level = f" (standard error {100 * error:.2f})" if len(apart) > 1 else ""
    return timed(
        "the accuracy in the end: Trio-ML's less Ideal's, in points",
        "none is lost",
        f"{100 * mean:+.2f}{level}",
        AGREES if mean >= -max(ERRORS * error, 0.001) else DIFFERS,
    )


def _ratios(rows: Rows, target: float, over: str, under: str) -> list[float]:
    """Return the ratio of two ways' times by seed, for seeds with which both reached the target."""
    pairs = zip(picked(rows, over), picked(rows, under), strict=True)
    times = [(reached_s(above, target), reached_s(below, target)) for above, below in pairs]
    return [above / below for above, below in times if above and below]


def _iterations(rows: Rows, target: float) -> list[float]:
    pairs = zip(picked(rows, TRIO.sync), picked(rows, IDEAL), strict=True)
    counts = [(reached(ours, target), reached(ideal, target)) for ours, ideal in pairs]
    return [above / below for above, below in counts if above and below]


def _text(ratios: Sequence[float], rows: Rows) -> str:
    seeds = len(picked(rows, IDEAL))
    if not ratios:
        return f"not reached in {seeds} of {seeds}"
    if len(ratios) == 1:
        mean = f"{ratios[0]:.2f}"
    else:
        mean = f"{statistics.fmean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return mean if len(ratios) == seeds else f"{mean}; not reached in {seeds - len(ratios)} of {seeds}"


def _of_times(ratios: Sequence[float]) -> str:
    """Return the verdict word for the mean ratio: AGREES at the paper's ratio or more, or at a gain within
    BAND below it.
    """
    if not ratios or statistics.fmean(ratios) <= 1:
        return DIFFERS
    mean = statistics.fmean(ratios)
    return AGREES if mean - 1 >= (1 - BAND) * (PAPER[0] - 1) else of_ratio(mean, PAPER[0])
