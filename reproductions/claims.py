"""A paper's claims about its runs, each compared with our runs. Pure.

Each function makes one kind of claim: a scheme has less of a metric than another, or the least; a metric
falls or grows, stays the same, or levels off over the sweep.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, TypeVar

from reproductions.sweep import Sweep
from reproductions.verdicts import (
    AGREES,
    BAND,
    DIFFERS,
    FLAT,
    LEVEL,
    PARTLY,
    SIZE,
    TIE,
    WEAK,
    WORDS,
    level,
    of_gain,
    standard_error,
)
from testbed.figures.verdict_gate import JudgedRun, runs_of
from testbed.messages.coding import UNSET, UnsetType

AnySweep = TypeVar("AnySweep", bound=Sweep[Any], contravariant=True)
OursAndWord = tuple[str, str]
"""Our number as text, and one of `verdicts.WORDS`."""


@dataclass(frozen=True, slots=True)
class Claim(Generic[AnySweep]):
    """A statement of a paper: `paper` is the paper's number or word for `text`; `ours` computes our number
    and verdict from a sweep that contains the schemes `needs`.
    """

    text: str
    paper: str
    needs: tuple[str, ...]
    ours: Callable[[AnySweep], OursAndWord]


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim's text, the paper's number or word, our number, and one of `verdicts.WORDS` (None: this machine
    cannot show it). A finding on live runs also has the numbers of the runs that it rests on (None or UNSET:
    all of them), or names the measure that is valid without trustworthy runs (`untimed`;
    `verdict_gate.UNTIMED`).
    """

    text: str
    paper: str
    ours: str
    verdict: str | None
    runs: Sequence[int] | UnsetType | None = None
    untimed: str | UnsetType | None = None

    def on(self, *rows: JudgedRun) -> Finding:
        """Return a copy of the finding that rests on these runs."""
        return replace(self, runs=runs_of(rows))


def timed(text: str, paper: str, ours: str, verdict: str, rows: Iterable[JudgedRun] | None = None) -> Finding:
    """Return a finding about times, which counts only where its runs are trustworthy. `rows` are the runs
    that it rests on (None: all).
    """
    return Finding(text, paper, ours, verdict, UNSET if rows is None else runs_of(rows), UNSET)


def findings(claims: Sequence[Claim[AnySweep]], sweep: AnySweep) -> list[Finding]:
    """Judge each claim for which the sweep has the schemes."""
    return [Finding(c.text, c.paper, *c.ours(sweep)) for c in claims if sweep.has(*c.needs)]


def least(sweep: Sweep[Any], schemes: Sequence[str], metric: str) -> list[str]:
    """Return the scheme with the least sum of a metric over all swept values, and the schemes that are level
    with it, compared seed by seed.
    """
    totals = {
        scheme: [
            math.fsum(each)
            for each in zip(*(sweep.each(scheme, v, metric) for v in sweep.values), strict=True)
        ]
        for scheme in schemes
    }
    first = min(schemes, key=lambda scheme: math.fsum(totals[scheme]))
    return [scheme for scheme in schemes if scheme == first or level(totals[scheme], totals[first])]


def reduces(text: str, metric: str, to: str, of: str, paper: float) -> Claim[Sweep[Any]]:
    """Make the claim that `to` has less of a metric than `of`, by the share `paper`."""

    def ours(sweep: Sweep[Any]) -> OursAndWord:
        share, by_seed = sweep.reduction(metric, to, of), sweep.reductions(metric, to, of)
        spread = f" \u00b1 {statistics.stdev(by_seed):.1%}" if len(by_seed) > 1 else ""
        times = f", {share / paper:.2f} times the paper's" if share > 0 else ""
        return f"{share:.1%}{spread}{times}", of_gain(share, paper, standard_error(by_seed))

    return Claim(text, f"{paper:.1%}", (to, of), ours)


def lowest(text: str, metric: str, scheme: str, among: Sequence[str]) -> Claim[Sweep[Any]]:
    """Make the claim that a scheme has the least of a metric at every swept value."""

    def ours(sweep: Sweep[Any]) -> OursAndWord:
        others = [other for other in among if other != scheme and other in sweep.schemes]
        held = sweep.ahead(metric, scheme, others)
        return str(held), held.verdict

    return Claim(text, "always", tuple(among), ours)


def below(text: str, metric: str, low: str, high: str) -> Claim[Sweep[Any]]:
    """Make the claim that scheme `low` has less of a metric than `high` at every swept value."""

    def ours(sweep: Sweep[Any]) -> OursAndWord:
        held = sweep.ahead(metric, low, [high])
        return str(held), held.verdict

    return Claim(text, "always", (low, high), ours)


def trend(text: str, metric: str, scheme: str, falls: bool) -> Claim[Sweep[Any]]:
    """Make the claim that a metric's mean falls, or grows, monotonically from the first swept value to the
    last.

    The change must exceed FLAT; a step in the other direction of up to FLAT is allowed, and a larger one
    makes the verdict PARTLY.
    """

    def ours(sweep: Sweep[Any]) -> OursAndWord:
        means = sweep.means(scheme, metric)
        first, last = means[0], means[-1]
        change = (last - first) / first if first else 0.0
        right = change < -FLAT if falls else change > FLAT
        steps = [b <= a * (1 + FLAT) if falls else b >= a * (1 - FLAT) for a, b in pairwise(means)]
        return f"{change:+.0%}", AGREES if right and all(steps) else PARTLY if right else DIFFERS

    return Claim(text, "fall" if falls else "grow", (scheme,), ours)


def same(text: str, metric: str, scheme: str) -> Claim[Sweep[Any]]:
    """Make the claim that a metric is the same at every swept value."""

    def ours(sweep: Sweep[Any]) -> OursAndWord:
        means = sweep.means(scheme, metric)
        change = max(means) / min(means) - 1 if min(means) else 0.0
        return f"{change:.0%} apart", AGREES if change <= LEVEL else DIFFERS

    return Claim(text, "no change", (scheme,), ours)


def levels_off(text: str, metric: str, scheme: str, at: float) -> Claim[Sweep[Any]]:
    """Make the claim that little of a metric's whole change comes after the swept value nearest to `at`: at
    most 0.2 of it agrees, at most 0.5 agrees in part.
    """

    def ours(sweep: Sweep[Any]) -> OursAndWord:
        by = dict(zip(sweep.values, sweep.means(scheme, metric), strict=True))
        knee = min(sweep.values, key=lambda value: abs(value - at))
        whole, rest = by[sweep.values[0]] - by[sweep.values[-1]], by[knee] - by[sweep.values[-1]]
        if abs(whole) <= FLAT * by[sweep.values[0]]:
            return "no change", DIFFERS
        left = abs(rest / whole)
        return f"{left:.0%} of the change left", AGREES if left <= 0.2 else PARTLY if left <= 0.5 else DIFFERS

    return Claim(text, "yes", (scheme,), ours)


def grows_less(text: str, metric: str, to: str, of: str, unit: str) -> Claim[Sweep[Any]]:
    """Make the claim that a metric grows much less over the sweep with scheme `to` than with `of`: by less
    than half as much.
    """

    def ours(sweep: Sweep[Any]) -> OursAndWord:
        grown = [sweep.means(scheme, metric)[-1] - sweep.means(scheme, metric)[0] for scheme in (to, of)]
        much = grown[0] < 0.5 * grown[1]
        text = f"{grown[0]:+.1f} {unit}, {grown[1]:+.1f} {unit}"
        return text, AGREES if much else PARTLY if grown[0] < grown[1] else DIFFERS

    return Claim(text, "yes", (to, of), ours)


def in_range(ours: Sequence[float], low: float, high: float) -> OursAndWord:
    """Compare several gains of ours with the paper's range `low` to `high`: they agree where all lie within
    BAND of the range.
    """
    verdict = DIFFERS
    if all((1 - BAND) * low <= share <= (1 + BAND) * high for share in ours):
        verdict = AGREES
    elif min(ours) > max(LEVEL, WEAK * low):
        verdict = SIZE
    elif min(ours) >= -LEVEL:
        verdict = TIE
    return f"{min(ours):.1%} to {max(ours):.1%}", verdict


def tally(findings: Sequence[Finding]) -> str:
    """Say how many of the paper's statements agree, of those that have a verdict."""
    words = [finding.verdict for finding in findings if finding.paper != "not said"]
    of = [word for word in words if word in WORDS]
    if not of:
        return "no statement is judged"
    rest = f", {len(words) - len(of)} are not judged" if len(of) < len(words) else ""
    return f"{of.count(AGREES)} of {len(of)} statements agree{rest}"
