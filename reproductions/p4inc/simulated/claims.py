"""The paper's claims about its simulations (section VII-C), each compared with our runs. Pure.

For figures 8 to 12 only the text is available: percentages and trends. Table I is printed in full.
"""

from __future__ import annotations

from collections.abc import Sequence

from reproductions import claims
from reproductions.claims import Finding, OursAndWord
from reproductions.p4inc.simulated.means import AOI, CT_BTI, BoundedSweep
from reproductions.p4inc.simulated.trials import TITLES
from testbed.systems.p4inc.simulator.settings import FOUR, MILP

Claim = claims.Claim[BoundedSweep]

NORECON = "inc-tw-norecon"
NAMES = {AOI: "reconfigured connections", CT_BTI: "CT-BTI"}


def findings(figure: str, sweep: BoundedSweep) -> list[Finding]:
    """Judge all claims on a figure for which there are runs."""
    return claims.findings(CLAIMS[figure], sweep)


def headline(sweep: BoundedSweep) -> str:
    """Name the scheme with the shortest CT-BTI, and of the schemes that may reconfigure the one that sets up
    the fewest circuits, over the whole sweep.
    """
    may = [scheme for scheme in sweep.schemes if scheme != NORECON] or list(sweep.schemes)
    shortest, fewest = (_least(sweep, *asked) for asked in ((sweep.schemes, CT_BTI), (may, AOI)))
    of = ", of those that reconfigure" if len(may) < len(sweep.schemes) else ""
    return f"Shortest CT-BTI: {shortest}; fewest connections{of}: {fewest}"


def _least(sweep: BoundedSweep, schemes: Sequence[str], metric: str) -> str:
    names = [TITLES[scheme] for scheme in claims.least(sweep, schemes, metric)]
    return names[0] if len(names) == 1 else f"a tie of {', '.join(names[:-1])} and {names[-1]}"


def _reduces(metric: str, to: str, of: str, paper: float, titles: tuple[str, str]) -> Claim:
    text = f"{titles[0]} has less {NAMES[metric]} than {titles[1]}, by"
    return claims.reduces(text, metric, to, of, paper)


def _lowest(metric: str, scheme: str, title: str) -> Claim:
    """Make the claim that a scheme has the least of the four."""
    least = "fewest" if metric == AOI else "shortest"
    return claims.lowest(f"{title} has the {least} {NAMES[metric]}", metric, scheme, FOUR)


def _below(metric: str, low: str, high: str, text: str) -> Claim:
    return claims.below(text, metric, low, high)


def _trend(metric: str, scheme: str, title: str, falls: bool) -> Claim:
    return claims.trend(f"{NAMES[metric]} of {title}", metric, scheme, falls)


def _same(metric: str, scheme: str, title: str) -> Claim:
    return claims.same(f"{NAMES[metric]} of {title}", metric, scheme)


def _levels_off(metric: str, scheme: str, title: str, at: float, where: str) -> Claim:
    return claims.levels_off(f"{NAMES[metric]} of {title} level off {where}", metric, scheme, at)


def _grows_less(to: str, of: str, titles: tuple[str, str]) -> Claim:
    text = f"CT-BTI of {titles[0]} grows much less than of {titles[1]}"
    return claims.grows_less(text, CT_BTI, to, of, "s")


def _between(scheme: str, title: str, low: float, high: float) -> Claim:
    """Make the claim of Table I's delta. The schedule that the MILP found stands for the optimum."""

    def ours(sweep: BoundedSweep) -> OursAndWord:
        return claims.in_range([sweep.deviation(scheme, value).mean for value in sweep.values], low, high)

    return claims.Claim(f"{title} is off the MILP by", f"{low:.1%} to {high:.1%}", (scheme, MILP), ours)


def _recon_gains() -> Claim:
    """Make the claim on INC-TW-NoRecon. The paper computes (NoRecon - TW) / TW here, although its deltas are
    shares of the longer.
    """

    def ours(sweep: BoundedSweep) -> OursAndWord:
        pairs = zip(sweep.means(NORECON, CT_BTI), sweep.means("inc-tw", CT_BTI), strict=True)
        return claims.in_range([without / with_ - 1 for without, with_ in pairs], 0.096, 0.244)

    needs = ("inc-tw", NORECON)
    return claims.Claim("INC-TW-NoRecon's CT-BTI is above INC-TW's by", "9.6% to 24.4%", needs, ours)


def _optimum(metric: str) -> Claim:
    """Make the claim that the MILP has the least, and say in how many runs that is proven. The fewest
    circuits are proven among schedules with the CT-BTI that was found, not among all schedules.
    """

    def ours(sweep: BoundedSweep) -> OursAndWord:
        held = sweep.ahead(
            metric, MILP, [scheme for scheme in ("inc-fcfs", "inc-tw") if scheme in sweep.schemes]
        )
        runs = [run for run in sweep.runs if run.scheme == MILP]
        if metric == AOI:
            proven = sum(
                run.connections_bound is not None and run.connections <= run.connections_bound for run in runs
            )
        else:
            proven = sum(run.status == "optimal" for run in runs)
        return f"{held}; proven least in {proven} of {len(runs)} runs", held.verdict

    text = "MILP has fewer reconfigured connections than INC-FCFS and INC-TW" if metric == AOI else None
    return claims.Claim(text or "MILP has the shortest CT-BTI", "always", (MILP, "inc-fcfs", "inc-tw"), ours)


NOINC, INC = ("noINC-FCFS", "noINC-TW"), ("INC-FCFS", "INC-TW")
TITLE = {"noinc-fcfs": NOINC[0], "noinc-tw": NOINC[1], "inc-fcfs": INC[0], "inc-tw": INC[1]}

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "table1": (
        _optimum(CT_BTI),
        _optimum(AOI),
        _between("inc-fcfs", "INC-FCFS", 0.378, 0.433),
        _between("inc-tw", "INC-TW", 0.159, 0.171),
        _below(CT_BTI, "inc-tw", "inc-fcfs", "INC-TW has a shorter CT-BTI than INC-FCFS"),
        _below(AOI, "inc-tw", "inc-fcfs", "INC-TW has fewer reconfigured connections than INC-FCFS"),
        _recon_gains(),
    ),
    "fig8": (
        _reduces(AOI, "inc-fcfs", "noinc-fcfs", 0.554, (INC[0], NOINC[0])),
        _reduces(AOI, "inc-tw", "noinc-tw", 0.503, (INC[1], NOINC[1])),
        _reduces(AOI, "noinc-tw", "noinc-fcfs", 0.928, (NOINC[1], NOINC[0])),
        _reduces(AOI, "inc-tw", "inc-fcfs", 0.917, (INC[1], INC[0])),
        _reduces(CT_BTI, "noinc-tw", "noinc-fcfs", 0.868, (NOINC[1], NOINC[0])),
        _reduces(CT_BTI, "inc-tw", "inc-fcfs", 0.856, (INC[1], INC[0])),
        _lowest(AOI, "inc-tw", INC[1]),
        _lowest(CT_BTI, "inc-tw", INC[1]),
        _below(CT_BTI, "noinc-tw", "inc-fcfs", "noINC-TW has a shorter CT-BTI than INC-FCFS"),
    ),
    "fig9": (
        _reduces(AOI, "inc-tw", "noinc-fcfs", 0.895, (INC[1], NOINC[0])),
        _reduces(CT_BTI, "inc-tw", "noinc-fcfs", 0.726, (INC[1], NOINC[0])),
        _lowest(AOI, "inc-tw", INC[1]),
        _lowest(CT_BTI, "inc-tw", INC[1]),
    ),
    "fig10": (
        *(_trend(metric, scheme, title, True) for metric in (AOI, CT_BTI) for scheme, title in TITLE.items()),
        _below(CT_BTI, "noinc-tw", "inc-fcfs", "noINC-TW has a shorter CT-BTI than INC-FCFS"),
        _below(AOI, "noinc-tw", "inc-fcfs", "noINC-TW has fewer reconfigured connections than INC-FCFS"),
        _lowest(AOI, "inc-tw", INC[1]),
    ),
    "fig11": (
        *(
            _same(metric, scheme, TITLE[scheme])
            for metric in (AOI, CT_BTI)
            for scheme in ("noinc-fcfs", "noinc-tw")
        ),
        *(
            _trend(metric, scheme, TITLE[scheme], True)
            for metric in (AOI, CT_BTI)
            for scheme in ("inc-fcfs", "inc-tw")
        ),
        *(
            _levels_off(metric, scheme, TITLE[scheme], 8, "beyond 8 jobs")
            for metric in (AOI, CT_BTI)
            for scheme in ("inc-fcfs", "inc-tw")
        ),
    ),
    "fig12": (
        *(_trend(AOI, scheme, title, True) for scheme, title in TITLE.items()),
        *(_trend(CT_BTI, scheme, title, False) for scheme, title in TITLE.items()),
        _grows_less("noinc-tw", "noinc-fcfs", (NOINC[1], NOINC[0])),
        _grows_less("inc-tw", "inc-fcfs", (INC[1], INC[0])),
    ),
}

# Table I as printed: jobs -> scheme -> (time s, CT-BTI s, delta %, AOI)
TABLE1: dict[int, dict[str, tuple[float, float, float | None, int]]] = {
    40: {"milp": (84.6, 3.4, None, 1), "inc-fcfs": (0.6, 6.0, 43.3, 1), "inc-tw": (0.8, 4.1, 17.1, 1)},
    50: {"milp": (105.3, 6.9, None, 1), "inc-fcfs": (0.8, 11.2, 38.4, 1), "inc-tw": (1.0, 8.2, 15.9, 1)},
    60: {"milp": (357.5, 14.8, None, 1), "inc-fcfs": (0.9, 23.8, 37.8, 2), "inc-tw": (1.1, 17.7, 16.4, 2)},
    80: {"inc-fcfs": (1.3, 29.9, None, 5), "inc-tw": (1.5, 19.8, None, 4)},
    100: {"inc-fcfs": (1.6, 31.8, None, 11), "inc-tw": (2.1, 26.7, None, 5)},
}
_NORECON = {
    40: (0.7, 5.1, 33.3),
    50: (0.9, 9.8, 29.6),
    60: (1.0, 21.7, 31.8),
    80: (1.4, 21.7, None),
    100: (1.7, 30.7, None),
}
for _jobs, (_time, _ct_bti, _delta) in _NORECON.items():
    TABLE1[_jobs]["inc-tw-norecon"] = (_time, _ct_bti, _delta, 0)
