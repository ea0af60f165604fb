"""The report of table I and figures 8 to 12. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reproductions.reports import FigureReport
from reproductions.sweep import Spread
from testbed.messages.coding import UNSET, Number, UnsetType


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """The load that the jobs of a swept value ask for, as means over the seeds. 1 is the whole capacity from
    the first arrival to the last.

    `aoi_without_inc`: the bytes between units, relative to half of all ports' capacity, since a circuit takes
    two ports. `inc_places`: the time for which jobs with all workers in one unit would occupy a switch's
    capacity for a job's INC, sending at the lower of a server's and a port's rate. `local`: the share of such
    jobs.
    """

    value: Number
    aoi_without_inc: Number
    inc_places: Number
    local: Number


@dataclass(frozen=True, slots=True)
class PaperCell:
    """A cell of table I as printed. `delta_percent` is missing for the MILP, and for schemes where the MILP
    was not run.
    """

    time_s: Number | None = None
    ct_bti_s: Number | None = None
    delta_percent: Number | None = None
    connections: Number | None = None


@dataclass(frozen=True, slots=True)
class SchemeMeans:
    """The spread over the seeds of each number of a run, for a scheme at a swept value. `delta` (from the
    MILP's CT-BTI) and `above_bound` are set where the MILP ran, `bound_s` and `gap` for the MILP alone,
    `paper` where table I has the cell.
    """

    value: Number
    scheme: str
    ct_bti_s: Spread
    connections: Spread
    mean_jct_s: Spread
    time_s: Spread
    reconfigurations: Spread
    delta: Spread | UnsetType = UNSET
    above_bound: Spread | UnsetType = UNSET
    bound_s: Spread | UnsetType = UNSET
    gap: Spread | UnsetType = UNSET
    paper: PaperCell | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """The options of a sweep, other than the seeds, on which its numbers depend."""

    reading: str
    time_limit_s: Number
    processes: int
    set: Sequence[str]


@dataclass(frozen=True, slots=True)
class SweepReport(FigureReport):
    """The report of a sweep. `setting` and `runs` have the fields of `Setting` and `Measured`; infinity is
    written as "inf", since JSON has no infinity.
    """

    version: int
    setting: Mapping[str, object]
    options: SweepOptions
    seeds: Sequence[int]
    offered: Sequence[OfferedLoad]
    means: Sequence[SchemeMeans]
    headline: str
    runs: Sequence[Mapping[str, object]]
