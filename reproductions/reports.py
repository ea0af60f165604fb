"""The parts of a figure's report that figures of any paper share, as types. Owns no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reproductions.claims import Finding
from testbed.messages.coding import UNSET, UnsetType
from testbed.report.host import HostFacts

if TYPE_CHECKING:
    from testbed.messages.verdict import JobVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRow:
    """A row of a live report, with its number in it: UNSET before the report is complete."""

    run: int | UnsetType = UNSET


class ByVerdict:
    """A row of one run, which counts where the run's verdict trusts it."""

    __slots__ = ()
    if TYPE_CHECKING:

        @property
        def verdict(self) -> JobVerdict: ...

    @property
    def is_trusted(self) -> bool:
        return bool(self.verdict.trustworthy)


@dataclass(frozen=True, slots=True)
class Trust:
    """The count of trustworthy runs (or jobs), of all, and of the reasons why others are not, by name."""

    trustworthy: int
    of: int
    reasons: Mapping[str, int]

    @property
    def is_whole(self) -> bool:
        """Return whether there are runs, and all of them are trustworthy."""
        return 0 < self.of == self.trustworthy


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureReport:
    """The part that figures read of the stamp of `testbed reproduce` on a report (the figure's name, the
    host, how long it took, and whether its runs are live), and its claims. A report that was made just now
    has none of them.
    """

    figure: str = ""
    host: HostFacts | None = None
    took_s: float = 0.0
    live: bool = False
    claims: Sequence[Finding] = ()
