"""Types that the reports of figures of any paper share. Owns no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reproductions.claims import Finding
from testbed.messages.coding import UNSET, UnsetType
from testbed.messages.verdict import Reason
from testbed.report.host import HostFacts

if TYPE_CHECKING:
    from testbed.messages.verdict import JobVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRow:
    """A row of a live report, with its run number: UNSET until the report is complete."""

    run: int | UnsetType = UNSET


class ByVerdict:
    """A row of one run, which counts only if the run's verdict is trustworthy."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def verdict(self) -> JobVerdict: ...

    @property
    def is_trusted(self) -> bool:
        return bool(self.verdict.trustworthy)


@dataclass(frozen=True, slots=True)
class LoadVerdict:
    """A verdict on a run from the machine's load, for runs that are no jobs, or whose links have no rate, so
    that no job's verdict can say whether their times count.
    """

    trustworthy: bool
    reasons: Sequence[Reason]


@dataclass(frozen=True, slots=True)
class Trust:
    """How many of `of` runs (or jobs) are trustworthy, and how often each reason made another not so."""

    trustworthy: int
    of: int
    reasons: Mapping[str, int]

    @property
    def is_whole(self) -> bool:
        """Return whether there are runs and all of them are trustworthy."""
        return 0 < self.of == self.trustworthy


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureReport:
    """The fields that figures read of the stamp that `testbed reproduce` puts on a report (the figure's name,
    the host, the duration, whether its runs are live), and its claims. A fresh report has none of them.
    """

    figure: str = ""
    host: HostFacts | None = None
    took_s: float = 0.0
    live: bool = False
    claims: Sequence[Finding] = ()
