"""The report of table 2 and figures 5 to 8. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from reproductions.aleph.micro.rows import AnyRow
from reproductions.reports import FigureReport, Trust
from testbed.messages.coding import Number


@dataclass(frozen=True, slots=True)
class MicroReport(FigureReport, Generic[AnyRow]):
    """The report of a figure whose rows have one type. `cores`: those of the machine; `gradients`: of the
    smaller packet; `seconds`: of a window.
    """

    version: int
    rows: Sequence[AnyRow]
    cores: int
    gradients: int
    seconds: Number
    rounds: int
    trust: Trust
