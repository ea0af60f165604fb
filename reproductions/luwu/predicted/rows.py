"""The rows and reports of figures 10 to 15. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reproductions.reports import FigureReport
from testbed.messages.coding import Number
from testbed.systems.luwu.hardware import Hardware
from testbed.systems.luwu.prediction import Prediction


@dataclass(frozen=True, slots=True)
class LargestRow:
    """The largest model that a system trains with `workers` workers (None and 0 parameters where none fits).
    `disks_hold`: how many parameters LuWu's disks hold (None for other systems).
    """

    system: str
    workers: int
    model: str | None
    parameters: Number
    disks_hold: Number | None


@dataclass(frozen=True, slots=True)
class LargestReport(FigureReport):
    """The report of figure 10."""

    version: int
    about: str
    hardware: Hardware
    rows: Sequence[LargestRow]


@dataclass(frozen=True, slots=True)
class PredictedReport(FigureReport):
    """The report of one of figures 11 to 15."""

    version: int
    about: str
    hardware: Hardware
    rows: Sequence[Prediction]
