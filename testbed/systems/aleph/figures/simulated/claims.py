"""The paper's statements on figures 13 to 16 (section 6.4), held against our runs. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from testbed.reproduction import claims
from testbed.reproduction.claims import Finding, Said
from testbed.reproduction.sweep import Sweep
from testbed.reproduction.verdicts import AGREES, DIFFERS, LEVEL, SIZE, TIE, near
from testbed.systems.aleph.simulator import FAT_TREE, LEAF_SPINE, MWCHA, OURS, PS, RING, TITLES, Iteration

METRICS = (
    *("workers_gbps", "servers_gbps", "all_gbps", "time_s", "contributors"),
    *("overhead_gb", "both_ways_gb", "hops"),
)
Runs = Sweep[Iteration]
Claim = claims.Claim[Runs]


def sweeps(runs: Sequence[Iteration]) -> dict[str, Runs]:
    """Return the runs by topology."""
    return {
        topology: Sweep([run for run in runs if run.topology == topology])
        for topology in dict.fromkeys(run.topology for run in runs)
    }


def findings(figure: str, runs: Mapping[str, Runs]) -> list[Finding]:
    """Return all claims on a figure for which there are runs, each with its topology."""
    said = []
    for topology, claim in CLAIMS[figure]:
        if topology in runs:
            for finding in claims.findings([claim], runs[topology]):
                said.append(Finding(f"{finding.text} ({topology})", *_rest(finding)))
    return said


def _rest(finding: Finding) -> tuple[str, str, str]:
    return finding.paper, finding.ours, finding.verdict


def _number(scheme: str, metric: str, at: float, paper: float, unit: str, what: str) -> Claim:
    """Return the claim that a scheme's mean is a number, at the swept value nearest to `at`."""

    def ours(runs: Runs) -> Said:
        value = min(runs.values, key=lambda each: abs(each - at))
        spread = runs.spread(scheme, value, metric)
        said = f"{spread.mean:.1f} \u00b1 {spread.deviation:.1f}{unit}"
        return said, AGREES if near(spread.mean, paper) else DIFFERS

    return claims.Claim(f"{TITLES[scheme]}: {what} at {at:g}", f"{paper:g}{unit}", (scheme,), ours)


def _gain(metric: str, to: str, of: str, at: float, paper: float, what: str) -> Claim:
    """Return the claim on how far `to` is from `of`, as a share of it, at the swept value nearest to `at`:
    below it where the share is below 0.
    """

    def ours(runs: Runs) -> Said:
        value = min(runs.values, key=lambda each: abs(each - at))
        pairs = zip(runs.each(to, value, metric), runs.each(of, value, metric), strict=True)
        share = statistics.fmean(its / theirs - 1 for its, theirs in pairs)
        if abs(share) <= LEVEL:
            return f"{share:+.0%}", TIE
        if (share < 0) != (paper < 0):
            return f"{share:+.0%}", DIFFERS
        return f"{share:+.0%}", AGREES if near(share, paper) else SIZE

    text = f"{TITLES[to]} against {TITLES[of]}: {what} at {at:g}"
    return claims.Claim(text, f"{paper:+.0%}", (to, of), ours)


def _highest(scheme: str, metric: str, at: float, what: str) -> Claim:
    def ours(runs: Runs) -> Said:
        value = min(runs.values, key=lambda each: abs(each - at))
        means = {each: runs.spread(each, value, metric).mean for each in runs.schemes}
        first = max(means, key=lambda each: means[each])
        return TITLES[first], AGREES if first == scheme else DIFFERS

    return claims.Claim(f"the highest {what} at {at:g}", TITLES[scheme], (scheme,), ours)


ALEPHS = (OURS, MWCHA)
USAGE = "bandwidth usage of workers"
CLAIMS: Mapping[str, tuple[tuple[str, Claim], ...]] = {
    "fig13": (
        *((FAT_TREE, _number(scheme, "workers_gbps", 0.3, 188.0, " Gb/s", USAGE)) for scheme in ALEPHS),
        (FAT_TREE, _number(PS, "workers_gbps", 0.3, 100.0, " Gb/s", USAGE)),
        (FAT_TREE, _number(RING, "workers_gbps", 0.3, 100.0, " Gb/s", USAGE)),
        *(
            (FAT_TREE, _number(scheme, "servers_gbps", 0.3, 12.0, " Gb/s", "bandwidth usage of PSs"))
            for scheme in ALEPHS
        ),
        (FAT_TREE, _number(PS, "servers_gbps", 0.3, 100.0, " Gb/s", "bandwidth usage of PSs")),
        *((FAT_TREE, _gain("workers_gbps", scheme, PS, 0.3, 0.88, USAGE)) for scheme in ALEPHS),
        *(
            (FAT_TREE, _gain("servers_gbps", scheme, PS, 0.3, -0.88, "bandwidth usage of PSs"))
            for scheme in ALEPHS
        ),
        (FAT_TREE, _highest(RING, "workers_gbps", 0.0, USAGE)),
    ),
    "fig14": (
        *(
            (FAT_TREE, _number(scheme, "overhead_gb", 150, paper, " GB", "communication overhead"))
            for scheme, paper in ((OURS, 51.7), (MWCHA, 51.7), (PS, 85.3), (RING, 64.8))
        ),
        *(
            (FAT_TREE, _gain("overhead_gb", scheme, of, 150, paper, "communication overhead"))
            for scheme in ALEPHS
            for of, paper in ((PS, -0.39), (RING, -0.20))
        ),
        *(
            (
                topology,
                claims.below(
                    f"{TITLES[scheme]} has less overhead than {TITLES[of]}", "overhead_gb", scheme, of
                ),
            )
            for topology in (FAT_TREE, LEAF_SPINE)
            for scheme in ALEPHS
            for of in (PS, RING)
        ),
    ),
    "fig15": (
        *(
            (LEAF_SPINE, claims.same(f"gradient hops of {TITLES[scheme]}", "hops", scheme))
            for scheme in (*ALEPHS, PS)
        ),
        (LEAF_SPINE, claims.trend(f"gradient hops of {TITLES[RING]}", "hops", RING, False)),
    ),
    "fig16": (
        *(
            (LEAF_SPINE, _number(scheme, "hops", 0.3, paper, "", "gradient hops"))
            for scheme, paper in ((OURS, 1.1), (MWCHA, 1.1), (PS, 3.0), (RING, 9.0))
        ),
        *(
            (LEAF_SPINE, _gain("hops", scheme, of, 0.3, paper, "gradient hops"))
            for scheme in ALEPHS
            for of, paper in ((PS, -0.63), (RING, -0.88))
        ),
    ),
}
