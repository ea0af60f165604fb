"""The gate through which the words of every figure pass: a run that is not trustworthy gives no verdict
word and no headline. Imports no matplotlib before it draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from testbed.errors import TestbedError
from testbed.messages.coding import UNSET, UnsetType

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from testbed.aggregation.figure import Figure, Report

UNJUDGED = "not judged"
"""In place of a verdict word."""
UNTIMED = ("bytes of memory", "losses", "CPU time")
"""What a claim may compare whose runs need no trust: a machine's load does not change it."""


class JudgedRun(Protocol):
    """A run as the gate reads it: its number in the report (or those of the runs whose mean it is; UNSET
    before the report is complete), and whether its numbers count.
    """

    @property
    def run(self) -> int | Sequence[int] | UnsetType: ...
    @property
    def is_trusted(self) -> bool: ...


class JudgedReport(Protocol):
    """A report as a headline reads it: its figure, and whether its runs are live."""

    @property
    def figure(self) -> str: ...
    @property
    def live(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """A row of a report as JSON has it, read for the gate: it counts by its `verdict`, or by the sum of its
    jobs' as `trust`. One that has neither does not.
    """

    run: int | Sequence[int] | UnsetType
    is_trusted: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        run = row.get("run", UNSET)
        if verdict := row.get("verdict"):
            return cls(run, bool(verdict["trustworthy"]))
        trust = row.get("trust") or {"trustworthy": 0, "of": 0}
        return cls(run, bool(trust["of"] and trust["trustworthy"] == trust["of"]))


AnyRow = JudgedRun | Mapping[str, Any]
"""A run's row, as a type or as JSON has it."""


def judged(row: AnyRow) -> JudgedRun:
    """Return a row as the gate reads it."""
    return JudgedRow.of(row) if isinstance(row, Mapping) else row


def runs_of(rows: Iterable[AnyRow]) -> list[int] | None:
    """Return the numbers of the runs that a claim rests on, for its `runs`; None, all of them, where a row
    has no number.
    """
    numbers: list[int] = []
    for row in map(judged, rows):
        if isinstance(row.run, UnsetType):
            return None
        numbers += [row.run] if isinstance(row.run, int) else row.run
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
    words_of_all = []
    for claim in figure.claims(report):
        untimed = claim.get("untimed")
        if untimed is not None and untimed not in UNTIMED:
            raise TestbedError(f"untimed: {untimed!r}; accepted are {', '.join(UNTIMED)}")
        words = dict(claim)
        if report.get("live") and not untimed and claim.get("verdict") is not None:
            runs = claim.get("runs")
            rows = report.get("rows", ())
            bad, of = _counted(rows if runs is None else [rows[number] for number in dict.fromkeys(runs)])
            if bad or not of:
                words |= {"verdict": UNJUDGED, "not_trustworthy": bad, "of": of, "runs": runs}
        words_of_all.append(words)
    return words_of_all


def headline(
    picture: Picture, report: JudgedReport, finding: str, detail: str, rows: Sequence[AnyRow]
) -> None:
    """Put the headline over a picture: the finding, if all runs that it rests on are trustworthy, else that
    there is none. A simulation rests on none.
    """
    from testbed.report import layout

    layout.headline(picture, title(report, finding, rows), detail)


def title(report: JudgedReport, finding: str, rows: Sequence[AnyRow]) -> str:
    """Return a finding, or that a live figure has none and why."""
    if not report.live:
        return finding
    bad, of = _counted(rows)
    if of and not bad:
        return finding
    return f"{report.figure}: no headline, for {bad} of {of} runs are not trustworthy"


def _counted(rows: Sequence[AnyRow]) -> tuple[int, int]:
    """Return how many of these runs are not trustworthy, and how many there are."""
    return sum(not judged(row).is_trusted for row in rows), len(rows)
