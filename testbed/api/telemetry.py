"""Counters as NumPy arrays, with units in their names: a testbed's at a moment, and a job's while it ran."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.messages.links import LinkDelta, LinkStatus
from testbed.messages.status import Status
from testbed.telemetry.series import Array, Series


@dataclass(frozen=True, slots=True)
class LinkTable:
    """Links' counters; each array has one entry per link. Bytes include Ethernet headers; up is from host to
    ToR to optical switch; a rate that is not set is NaN.
    """

    link: Array
    rate_mbps: Array
    bytes_up: Array
    bytes_down: Array
    drops: Array

    @classmethod
    def of(cls, links: Sequence[LinkStatus] | Sequence[LinkDelta]) -> LinkTable:
        """Make the table from the links of a `status` or of a job's result."""
        rates = [np.nan if link.rate_mbps is None else link.rate_mbps for link in links]
        return cls(
            link=np.array([link.name for link in links], np.str_),
            rate_mbps=np.array(rates, np.float64),
            bytes_up=np.array([link.bytes_up for link in links], np.int64),
            bytes_down=np.array([link.bytes_down for link in links], np.int64),
            drops=np.array([link.drops for link in links], np.int64),
        )

    def columns(self) -> dict[str, Array]:
        """Return the arrays by name: `pandas.DataFrame(table.columns())`."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A testbed's counters since it came up, at one moment. `cores_busy_share` has each core's busy share in
    the last sample; it is empty while no job runs.
    """

    at_unix_s: float
    links: LinkTable
    cores_busy_share: Array

    @classmethod
    def of(cls, status: Status) -> Telemetry:
        busy = np.array(status.cores_busy or [], np.float64)
        return cls(time.time(), LinkTable.of(status.links), busy)


@dataclass(frozen=True, slots=True)
class JobSamples:
    """A job's samples, one entry per interval between two of them. Times are in s since the first sample,
    which was taken at `began_unix_s`.

    `machine` has time_s, late_ms, waiting_s, and for each core busy_s, softirq_s, steal_s and iowait_s
    (busy_s_0 for the first). `link` has, for each link that carried something, time_s, bytes_up, bytes_down,
    queue_drops and backlog_bytes. `rounds` has end_s and took_ms of each round of training from the second
    on; it is empty if rounds were not observed.
    """

    began_unix_s: float
    machine: dict[str, Array]
    link: dict[str, dict[str, Array]]
    rounds: dict[str, Array]

    @classmethod
    def of(cls, content: bytes) -> JobSamples:
        """Read the content of a job's .npz file (testbed/telemetry/series.py)."""
        series = Series.read(io.BytesIO(content))
        machine = {"time_s": series.time_s, "late_ms": series.late_ms, "waiting_s": series.waiting_s}
        for at, what in enumerate(("busy_s", "softirq_s", "steal_s", "iowait_s")):
            machine |= {f"{what}_{core}": series.cores[:, core, at] for core in range(series.cores.shape[1])}
        links = {
            str(name): {
                "time_s": series.link_time_s,
                "bytes_up": series.sent[:, at, 0],
                "bytes_down": series.sent[:, at, 1],
                "queue_drops": series.queue_drops[:, at],
                "backlog_bytes": series.backlog[:, at],
            }
            for at, name in enumerate(series.links)
        }
        rounds = {"end_s": series.round_end_s, "took_ms": series.round_ms}
        return cls(float(series.began_unix), machine, links, rounds)
