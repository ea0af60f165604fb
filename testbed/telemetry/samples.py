"""Samples, and recordings of them with bounded memory, however long a job runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from testbed.telemetry.counters import MachineReading

BYTES_AB, BYTES_BA, QUEUE_DROPS, BACKLOG = range(4)  # columns of LinkReading.values
MOST_SAMPLES = 18_000  # half an hour at 10 Hz; then every other one is dropped, repeatedly


class LinkCounters(Protocol):
    """A link's counters (testbed/emulation/links.py, WireStatistics)."""

    @property
    def rate_mbps(self) -> float | None: ...
    @property
    def is_up(self) -> bool: ...
    @property
    def bytes_ab(self) -> int: ...
    @property
    def bytes_ba(self) -> int: ...
    @property
    def drops(self) -> int: ...
    @property
    def device_drops(self) -> int: ...
    @property
    def backlog_bytes(self) -> int: ...


class Links(Protocol):
    """The part of the fabric that telemetry reads."""

    def statistics(self, queues_only: bool = False) -> Mapping[str, LinkCounters]: ...


@dataclass(frozen=True, slots=True, eq=False)
class LinkReading:
    """Counters of all links, (links, 4), read between `began_s` and `ended_s`. `rates_mbps` are the rates at
    that time (NaN: no rate, 0: down); None: those at the begin of the recording. Scheduled jobs' links change
    their rates, and users may change any.
    """

    began_s: float
    ended_s: float
    values: npt.NDArray[np.int64]
    rates_mbps: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One sample. `late_s` is its delay after the deadline, None for samples without one (a recording's first
    and last); `holders` maps each held host to its job.
    """

    at_s: float
    late_s: float | None
    machine: MachineReading
    links: LinkReading | None
    segments: Mapping[str, int]
    holders: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Recording:
    """The samples of a stretch of time. `failure`: why sampling stopped, if it failed."""

    interval_s: float
    names: tuple[str, ...]
    rates_mbps: tuple[float | None, ...]
    began_unix: float
    samples: list[Sample] = field(default_factory=list)
    failure: str | None = None
    cost_s: float = 0.0  # processor time that sampling took, for all recordings at that time together
    _skip: int = 0
    _stride: int = 1

    def add(self, sample: Sample) -> None:
        """Store a sample; in a thinned recording, skip it and merge its lateness into the previous one.
        Cumulative counters lose nothing by that.
        """
        if self._skip and sample.late_s is not None:
            self._skip -= 1
            last = self.samples[-1]
            late_s = max(sample.late_s, last.late_s or 0.0)
            self.samples[-1] = replace(last, late_s=late_s)
            return
        self._skip = self._stride - 1
        self.samples.append(sample)
        if len(self.samples) >= MOST_SAMPLES and sample.late_s is not None:  # a recording's last sample stays
            self._thin()

    def _thin(self) -> None:
        """Drop every other sample; its lateness goes to the sample before, as does its reading of links if
        that has none.
        """
        samples, self.samples = self.samples, []
        self._stride *= 2
        self.interval_s *= 2
        for kept, lost in zip(samples[::2], [*samples[1::2], None], strict=False):
            lates = [s.late_s for s in (kept, lost) if s is not None and s.late_s is not None]
            links = kept.links or (lost.links if lost else None)
            self.samples.append(replace(kept, late_s=max(lates, default=None), links=links))
