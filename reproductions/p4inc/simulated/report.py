"""The report of table I and figures 8 to 12. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reproductions.reports import FigureReport
from reproductions.sweep import Spread
from testbed.messages.coding import UNSET, Number, UnsetType


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """The load that the jobs of a swept value ask for, as means over the seeds; 1 is all there is from the
    first arrival to the last.

    `aoi_without_inc`: the bytes between units, of half of all ports' capacity, a circuit having two.
    `inc_places`: the time for which jobs with all workers in one unit would hold a place of a switch's INC,
    sending at a server's rate, or a port's. `local` is the share of such jobs.
    """

    value: Number
    aoi_without_inc: Number
    inc_places: Number
    local: Number


@dataclass(frozen=True, slots=True)
class PaperCell:
    """A cell of table I as printed; the MILP has no `delta_percent`, nor have schemes where it was not
    run.
    """

    time_s: Number | None = None
    ct_bti_s: Number | None = None
    delta_percent: Number | None = None
    connections: Number | None = None


@dataclass(frozen=True, slots=True)
class SchemeMeans:
    """A scheme at a swept value: the spread over the seeds of each number of a run. `delta` (from the MILP's
    CT-BTI) and `above_bound` are there where the MILP ran, `bound_s` and `gap` of the MILP alone, `paper`
    where table I has it.
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
    """The options of a sweep that its numbers depend on, but for the seeds."""

    reading: str
    time_limit_s: Number
    processes: int
    set: Sequence[str]


@dataclass(frozen=True, slots=True)
class SweepReport(FigureReport):
    """The report of a sweep. `setting` and `runs` are a `Setting`'s and each `Measured`'s fields, in which
    infinity is the word inf, since JSON has none.
    """

    version: int
    setting: Mapping[str, object]
    options: SweepOptions
    seeds: Sequence[int]
    offered: Sequence[OfferedLoad]
    means: Sequence[SchemeMeans]
    headline: str
    runs: Sequence[Mapping[str, object]]
