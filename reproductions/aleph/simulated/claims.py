"""The paper's claims about figures 13 to 16 (section 6.4), compared with our runs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reproductions import claims
from reproductions.claims import Finding, OursAndWord
from reproductions.sweep import Sweep
from reproductions.verdicts import AGREES, DIFFERS, PARTLY, SIZE, near, of_gain
from testbed.systems.aleph.simulator import (
    FAT_TREE,
    LEAF_SPINE,
    MWCHA,
    OURS,
    PRINTED,
    PS,
    RING,
    TITLES,
    Iteration,
)

METRICS = (
    *("workers_gbps", "servers_gbps", "all_gbps", "time_s", "contributors"),
    *("overhead_gb", "both_ways_gb", "hops"),
)
Runs = Sweep[Iteration]
Claim = claims.Claim[Runs]


def sweeps(runs: Sequence[Iteration]) -> dict[str, Runs]:
    """Group the runs by topology."""
    return {
        topology: Sweep([run for run in runs if run.topology == topology])
        for topology in dict.fromkeys(run.topology for run in runs)
    }


def findings(figure: str, runs: Mapping[str, Runs]) -> list[Finding]:
    """Judge all claims on a figure for which there are runs; each text ends with its topology."""
    judged = []
    for topology, claim in CLAIMS[figure]:
        if topology in runs:
            for finding in claims.findings([claim], runs[topology]):
                judged.append(replace(finding, text=f"{finding.text} ({topology})"))
    return judged


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """A number that the paper prints: a metric of schemes on a topology, at a swept value."""

    topology: str
    schemes: tuple[str, ...]  # a scheme, or all readings of one algorithm
    metric: str
    at: float
    paper: float
    unit: str
    what: str

    def claim(self) -> tuple[str, Claim]:
        """Return the topology, and the claim that our mean at the swept value nearest to `at` is the number.
        With several readings of an algorithm, each mean is listed and the claim counts once.
        """

        def ours(runs: Runs) -> OursAndWord:
            value = min(runs.values, key=lambda each: abs(each - self.at))
            spreads = [runs.spread(scheme, value, self.metric) for scheme in self.schemes]
            words = [AGREES if near(spread.mean, self.paper) else DIFFERS for spread in spreads]
            texts = [f"{spread.mean:.1f} \u00b1 {spread.deviation:.1f}{self.unit}" for spread in spreads]
            return _each(self.schemes, texts), _of_all(words)

        text = f"{_titles(self.schemes)}: {self.what} at {self.at:g}"
        return self.topology, claims.Claim(text, f"{self.paper:g}{self.unit}", self.schemes, ours)


def _share(runs: Runs, metric: str, to: str, of: str, value: float) -> float:
    pairs = zip(runs.each(to, value, metric), runs.each(of, value, metric), strict=True)
    return statistics.fmean(ours / others - 1 for ours, others in pairs)


def _below(schemes: Sequence[str], of: str) -> Claim:
    """Make the claim that `schemes`, readings of one algorithm, have less overhead than `of` at every
    value.
    """

    def ours(runs: Runs) -> OursAndWord:
        tallies = [runs.ahead("overhead_gb", scheme, [of]) for scheme in schemes]
        return _each(schemes, [str(tally) for tally in tallies]), _of_all(
            [tally.verdict for tally in tallies]
        )

    text = f"{_titles(schemes)} has less overhead than {TITLES[of]}"
    return claims.Claim(text, "always", (*schemes, of), ours)


def _same(schemes: Sequence[str]) -> Claim:
    """Make the claim that gradient hops are the same at every swept value."""

    def ours(runs: Runs) -> OursAndWord:
        judged = [claims.same("", "hops", scheme).ours(runs) for scheme in schemes]
        return _each(schemes, [text for text, _ in judged]), _of_all([word for _, word in judged])

    return claims.Claim(f"gradient hops of {_titles(schemes)}", "no change", tuple(schemes), ours)


def _no_sooner(at: float) -> Claim:
    """Compare communication times, on which the paper is silent: whether higher bandwidth usage saves
    time.
    """

    def ours(runs: Runs) -> OursAndWord:
        value = min(runs.values, key=lambda each: abs(each - at))
        shares = [_share(runs, "time_s", scheme, PS, value) for scheme in ALEPHS]
        words = [of_gain(-share, abs(USAGE_GAIN)) for share in shares]
        return _each(ALEPHS, [f"{share:+.0%}" for share in shares]), _of_all(words)

    return claims.Claim(
        f"by that ALEPH communicates for less time at {at:g}", "not said", (*ALEPHS, PS), ours
    )


def _each(schemes: Sequence[str], texts: Sequence[str]) -> str:
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(
        f"{SHORT.get(scheme, scheme)} {text}" for scheme, text in zip(schemes, texts, strict=True)
    )


def _titles(schemes: Sequence[str]) -> str:
    return "ALEPH" if len(schemes) > 1 else TITLES[schemes[0]]


def _of_all(words: Sequence[str]) -> str:
    """Combine the verdict words of several readings of one algorithm: the word if all have the same; else
    PARTLY if one agrees, SIZE if one has the right sign, DIFFERS otherwise.
    """
    if len(set(words)) == 1:
        return words[0]
    return PARTLY if AGREES in words else SIZE if SIZE in words else DIFFERS


def _highest(scheme: str, metric: str, at: float, what: str) -> Claim:
    def ours(runs: Runs) -> OursAndWord:
        value = min(runs.values, key=lambda each: abs(each - at))
        means = {each: runs.spread(each, value, metric).mean for each in runs.schemes}
        first = max(means, key=lambda each: means[each])
        return TITLES[first], AGREES if first == scheme else DIFFERS

    return claims.Claim(f"the highest {what} at {at:g}", TITLES[scheme], (scheme,), ours)


ALEPHS = (OURS, MWCHA, PRINTED)
"""The readings of the paper's algorithm: our own, the repaired one, and the one as printed."""
SHORT: Mapping[str, str] = {OURS: "ours", MWCHA: "repaired", PRINTED: "as printed"}
USAGE, OF_SERVERS = "bandwidth usage of workers", "bandwidth usage of PSs"
USAGE_GAIN = 0.88
OVERHEAD = "communication overhead"
PRINTED_NUMBERS: Mapping[str, tuple[PrintedNumber, ...]] = {
    "fig13": (
        PrintedNumber(FAT_TREE, ALEPHS, "workers_gbps", 0.3, 188.0, " Gb/s", USAGE),
        PrintedNumber(FAT_TREE, (PS,), "workers_gbps", 0.3, 100.0, " Gb/s", USAGE),
        PrintedNumber(FAT_TREE, (RING,), "workers_gbps", 0.3, 100.0, " Gb/s", USAGE),
        PrintedNumber(FAT_TREE, ALEPHS, "servers_gbps", 0.3, 12.0, " Gb/s", OF_SERVERS),
    ),
    "fig14": tuple(
        PrintedNumber(FAT_TREE, schemes, "overhead_gb", 150, paper, " GB", OVERHEAD)
        for schemes, paper in ((ALEPHS, 51.7), ((PS,), 85.3), ((RING,), 64.8))
    ),
    "fig15": (),
    "fig16": tuple(
        PrintedNumber(LEAF_SPINE, schemes, "hops", 0.3, paper, "", "gradient hops")
        for schemes, paper in ((ALEPHS, 1.1), ((PS,), 3.0), ((RING,), 9.0))
    ),
}
_STATEMENTS: Mapping[str, tuple[tuple[str, Claim], ...]] = {
    "fig13": (
        (FAT_TREE, _highest(RING, "workers_gbps", 0.0, USAGE)),
        (FAT_TREE, _no_sooner(0.3)),
    ),
    "fig14": tuple(
        (topology, _below(ALEPHS, of)) for topology in (FAT_TREE, LEAF_SPINE) for of in (PS, RING)
    ),
    "fig15": (
        *((LEAF_SPINE, _same(schemes)) for schemes in (ALEPHS, (PS,))),
        (LEAF_SPINE, claims.trend(f"gradient hops of {TITLES[RING]}", "hops", RING, False)),
    ),
    "fig16": (),
}
CLAIMS: Mapping[str, tuple[tuple[str, Claim], ...]] = {
    figure: (*(number.claim() for number in numbers), *_STATEMENTS[figure])
    for figure, numbers in PRINTED_NUMBERS.items()
}
