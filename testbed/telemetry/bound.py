"""What the links alone would have allowed a job, beside what the clock said. Pure. docs/verdict.md says how,
and how well it does.

Where a script's collectives are seen, they are replayed; where they are not, only the time in which a link
was full is known to be the links', and the bound is coarse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.telemetry.demand import DOWN, UP, Need, Traffic, needs, tail
from testbed.telemetry.evidence import Evidence
from testbed.telemetry.left import number
from testbed.telemetry.replay import Transfer, Use, replay
from testbed.telemetry.samples import BYTES_AB, BYTES_BA, Recording
from testbed.telemetry.timelines import ASKED, Timeline, Window, moment_ns, read, steps, window

COLUMNS = {UP: BYTES_AB, DOWN: BYTES_BA}
_MOMENTS = 8  # at which a rate that changes is looked at while a collective is under way
TRACE_SHARE = 0.01  # of what the job's busiest link needs: a link that carried less plays no part

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bound:
    """Milliseconds of a round: what links and computing allow, and what was measured, both as means over
    `rounds`; `left_out` came before them. `link` is the direction that is busiest, `computing_ms` a worker's
    computing, `starved_ms` how long its script waited for a core. `shared`: other jobs ran, and what they
    sent over links while this job's sums were under way is counted. A coarse one is of a second with traffic,
    and knows of no computing.
    """

    bound_ms: float
    measured_ms: float
    rounds: int
    left_out: int
    link: str
    link_ms: float
    computing_ms: float
    starved_ms: float
    shared: bool
    coarse: bool = False

    @property
    def ratio(self) -> float:
        return self.measured_ms / self.bound_ms

    @property
    def how(self) -> str:
        """How both were made, in a line."""
        if self.coarse:
            return (
                "bound: of each second with traffic, the time that the fullest link needed at its rate; the "
                "script's collectives were "
                "not seen, so computing counts as none; measured: that second"
            )
        return (
            f"bound: the collectives of {self.rounds} rounds replayed in their order over links at their "
            f"rates ({self.link} needs "
            f"{self.link_ms:.1f} ms of each round), with {self.computing_ms:.1f} ms of computing as measured "
            f"less waiting for a core; "
            f"measured: the clock over the same rounds; the first {self.left_out} left out"
        )

    def as_json(self) -> dict[str, Any]:
        numbers = {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }
        return {**numbers, "ratio": round(self.ratio, 4), "how": self.how}


class Carried:
    """What links carried and which rates they had, by time. Times are of CLOCK_MONOTONIC, as in timelines."""

    def __init__(self, recording: Recording) -> None:
        readings = [sample.links for sample in recording.samples if sample.links is not None]
        self._column = {name: at for at, name in enumerate(recording.names)}
        first = np.array([math.nan if rate is None else rate for rate in recording.rates_mbps])
        self._rates: Floats = np.array(
            [first if links.rates_mbps is None else links.rates_mbps for links in readings]
        )
        self._times_s = [(links.began_s + links.ended_s) / 2 for links in readings]
        self._values = np.array([links.values for links in readings], np.float64)

    @property
    def links(self) -> list[str]:
        return list(self._column)

    def rate_mbps(self, link: str, began_s: float, ended_s: float) -> float | None:
        """The mean rate in that time: links of scheduled jobs change theirs."""
        column = self._column[link]
        rates = self._rates[:, column]
        if np.isnan(rates[0]):
            return None
        if (rates == rates[0]).all():
            return float(rates[0])
        moments = np.linspace(began_s, ended_s, _MOMENTS)
        at = np.searchsorted(self._times_s, moments, side="right") - 1
        return float(rates[at.clip(0)].mean())

    def bytes(self, link: str, direction: str, began_s: Floats, ended_s: Floats) -> Floats:
        """Between these times; between two readings, in proportion."""
        values = self._values[:, self._column[link], COLUMNS[direction]]
        until: Floats = np.interp(ended_s, self._times_s, values) - np.interp(began_s, self._times_s, values)
        return until


def coarse(evidence: Evidence) -> Bound | None:
    """Of a job whose collectives were not seen; None where no link of its own with a rate carried traffic."""
    length_s = sum(second.elapsed_s for second in evidence.seconds)
    full_s = sum(second.link * second.elapsed_s for second in evidence.seconds)
    own = [link for link in evidence.links if link.name not in evidence.strangers]
    rated = [link for link in own if link.rate_mbps is not None and link.utilisation[0] > 0]
    if not rated or not full_s:
        return None
    share, fullest = min(1.0, full_s / length_s), max(rated, key=lambda link: link.utilisation)
    return Bound(
        bound_ms=share * 1e3,
        measured_ms=1e3,
        rounds=round(length_s),
        left_out=0,
        link=fullest.name,
        link_ms=share * 1e3,
        computing_ms=0.0,
        starved_ms=0.0,
        shared=False,
        coarse=True,
    )


def bound(
    recording: Recording,
    statistics: Sequence[Mapping[str, Any] | None],
    traffic: Traffic,
    depths_s: Mapping[str, float],
) -> Bound | None:
    """Of a job whose workers left these statistics, by rank. `depths_s`: by link, the seconds of its rate
    that it may send at once.

    None where its collectives were not seen or do not fit together, or none of the links that they crossed
    has a rate.
    """
    timelines = [timeline for timeline in map(read, statistics) if timeline is not None]
    span = window(timelines) if len(timelines) == len(traffic.hosts) else None
    carried = Carried(recording)
    if span is None or not set(traffic.hosts) <= set(carried.links):
        return None
    again = sum(number(one, "retransmits") for one in statistics)
    pushed = sum(number(one, "pushed") for one in statistics)
    once = pushed / (pushed + again) if pushed else 1.0
    try:
        return _Job(timelines, span, traffic, carried, depths_s, once).bound()
    except ValueError:  # the workers' timelines contradict each other
        return None


class _Job:
    """`once` is the share of what workers pushed that was pushed for the first time."""

    def __init__(
        self,
        timelines: Sequence[Timeline],
        span: Window,
        traffic: Traffic,
        carried: Carried,
        depths_s: Mapping[str, float],
        once: float,
    ) -> None:
        self._timelines, self._span, self._traffic = timelines, span, traffic
        self._carried, self._depths_s, self._once = carried, depths_s, once
        self._scripts = [steps(timeline, span) for timeline in timelines]
        self._numbers = [step.number for step in self._scripts[0] if step.what == ASKED]
        asked_ns: dict[int, int] = {}
        for timeline in timelines:
            for row in timeline.rows:
                if row.what == ASKED:
                    asked_ns[row.number] = max(row.at_ns, asked_ns.get(row.number, 0))
        self._asked_s = np.array([asked_ns[which] / 1e9 for which in self._numbers])
        collectives = [timeline.collectives for timeline in timelines]
        self._ready_s = np.array(
            [max(one[which].ready_ns for one in collectives) / 1e9 for which in self._numbers]
        )
        self._sizes: Floats = np.array([float(collectives[0][which].size_bytes) for which in self._numbers])
        strangers = set(carried.links) - {*traffic.hosts, traffic.ps_host}
        self._optical = sorted(link for link in strangers if "o" in link)
        self._shared = any(
            self._in_window(link, UP) + self._in_window(link, DOWN) for link in strangers if "h" in link
        )

    def bound(self) -> Bound | None:
        transfers = self._transfers()
        busy_s: dict[str, float] = {}
        for transfer in transfers.values():
            for use in transfer.uses:
                busy_s[use.link] = busy_s.get(use.link, 0.0) + use.busy_s
        if not any(busy_s.values()):
            return None
        rounds, fullest = self._span.rounds, max(busy_s, key=lambda link: busy_s[link])
        measured_s = [ended - began for began, ended in self._moments()]
        return Bound(
            bound_ms=_mean(replay(self._scripts, transfers)) * 1e3 / rounds,
            measured_ms=_mean(measured_s) * 1e3 / rounds,
            rounds=rounds,
            left_out=self._span.left_out,
            link=fullest,
            link_ms=busy_s[fullest] * 1e3 / rounds,
            computing_ms=_mean([sum(step.compute_s for step in script) for script in self._scripts])
            * 1e3
            / rounds,
            starved_ms=_mean([self._starved_s(timeline) for timeline in self._timelines]) * 1e3 / rounds,
            shared=self._shared,
        )

    def _moments(self) -> list[tuple[float, float]]:
        return [
            (moment_ns(timeline, self._span.first) / 1e9, moment_ns(timeline, self._span.last) / 1e9)
            for timeline in self._timelines
        ]

    def _in_window(self, link: str, direction: str) -> float:
        began_s, ended_s = (np.array([_mean(moments)]) for moments in zip(*self._moments(), strict=True))
        return float(self._carried.bytes(link, direction, began_s, ended_s)[0])

    def _starved_s(self, timeline: Timeline) -> float:
        first, last = moment_ns(timeline, self._span.first), moment_ns(timeline, self._span.last)
        return sum(row.starved_ns for row in timeline.rows if first < row.at_ns <= last) / 1e9

    def _transfers(self) -> dict[int, Transfer]:
        found: dict[int, Transfer] = {}
        optical = self._optical_needs()
        for at, which in enumerate(self._numbers):
            collective = self._timelines[0].collectives[which]
            uses = [self._use(need, at) for need in needs(self._traffic, collective)]
            uses += [
                self._use(Need(need.host, need.direction, float(sent[at]), need.sources), at)
                for need, sent in optical
            ]
            last = tail(self._traffic, collective)
            tail_use = self._use(last, at) if last else None
            found[which] = Transfer(tuple(use for use in uses if use), tail_use.busy_s if tail_use else 0.0)
        return found

    def _use(self, need: Need, at: int) -> Use | None:
        rate_mbps = self._carried.rate_mbps(need.host, float(self._asked_s[at]), float(self._ready_s[at]))
        if rate_mbps is None:
            return None
        return Use(need.link, need.bytes * 8e-6 / rate_mbps, self._depths_s.get(need.host, 0.0), need.sources)

    def _optical_needs(self) -> list[tuple[Need, Floats]]:
        """What optical links carried, by collective: a job alone, all of it, shared out by their sizes; else
        what passed, of whomever, while each was under way.
        """
        everybody = tuple(range(len(self._traffic.hosts)))
        found = []
        for link in self._optical:
            for direction in (UP, DOWN):
                whole = self._in_window(link, direction)
                if whole < TRACE_SHARE * float(self._sizes.sum()):
                    continue
                if self._shared:
                    sent = self._carried.bytes(link, direction, self._asked_s, self._ready_s)
                else:
                    sent = whole * self._sizes / self._sizes.sum()
                found.append((Need(link, direction, 0.0, everybody), sent * self._once))
        return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
