"""The gate through which the words of every figure pass: a run that is not trustworthy gives no verdict
word and no headline. Imports no matplotlib before it draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from testbed.aggregation.figure import Figure

Row = Mapping[str, Any]
Report = Mapping[str, Any]

UNJUDGED = "not judged"
"""In place of a verdict word."""
UNTIMED = ("bytes of memory", "losses", "CPU time")
"""What a claim may compare whose runs need no trust: a machine's load does not change it."""


def trusted(row: Row) -> bool:
    """Return whether a run's numbers count: by its `verdict`, or by the sum of its jobs' as `trust`. One that
    has neither does not.
    """
    if "verdict" in row:
        return bool(row["verdict"]["trustworthy"])
    trust = row.get("trust", {"trustworthy": 0, "of": 0})
    return bool(trust["of"] and trust["trustworthy"] == trust["of"])


def runs_of(rows: Iterable[Row]) -> list[int] | None:
    """Return the numbers of the runs that a claim rests on, for its `runs`; None, all of them, where a row
    has no number.
    """
    numbers: list[int] = []
    for row in rows:
        if "run" not in row:
            return None
        numbers += row["run"] if isinstance(row["run"], list) else [row["run"]]
    return numbers


def numbered(report: dict[str, Any]) -> None:
    """Number a report's runs, so that claims can name them."""
    for number, row in enumerate(report.get("rows", ())):
        row["run"] = number


def claims(figure: Figure, report: Report) -> list[dict[str, Any]]:
    """Return a figure's claims. One that rests on a run that is not trustworthy has UNJUDGED for its verdict;
    its `runs` say which runs it rests on, else it rests on all of the report's. Raises TestbedError for an
    unknown kind of what is untimed.
    """
    said = []
    for claim in figure.claims(report):
        untimed = claim.get("untimed")
        if untimed is not None and untimed not in UNTIMED:
            raise TestbedError(f"untimed: {untimed!r}; accepted are {', '.join(UNTIMED)}")
        words = dict(claim)
        if report.get("live") and not untimed and claim.get("verdict") is not None:
            bad, of = _counted(report, claim.get("runs"))
            if bad or not of:
                words |= {"verdict": UNJUDGED, "not_trustworthy": bad, "of": of, "runs": claim.get("runs")}
        said.append(words)
    return said


def headline(
    picture: Picture, report: Report, finding: str, detail: str, rows: Sequence[Row] | None = None
) -> None:
    """Put the headline over a picture: the finding, if all runs (or those of `rows`) are trustworthy, else
    that there is none.
    """
    from testbed.report import plots

    plots.headline(picture, title(report, finding, rows), detail)


def title(report: Report, finding: str, rows: Sequence[Row] | None = None) -> str:
    """Return a finding as it may be said: itself, or that there is none and why."""
    if not report.get("live"):
        return finding
    bad, of = _counted(report, None if rows is None else runs_of(rows))
    if of and not bad:
        return finding
    name = report.get("figure", "the figure")
    return f"{name}: no headline, for {bad} of {of} runs are not trustworthy"


def _counted(report: Report, runs: Sequence[int] | None) -> tuple[int, int]:
    """Return how many of these runs are not trustworthy, and how many there are."""
    rows: Sequence[Row] = report.get("rows", ())
    chosen = rows if runs is None else [rows[number] for number in dict.fromkeys(runs)]
    return sum(not trusted(row) for row in chosen), len(chosen)
