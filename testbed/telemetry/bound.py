"""Compute a job's bound: the time that its links alone would have allowed, beside the measured time. Pure.

docs/verdict.md describes the method and its accuracy. If a script's collectives were seen, they are replayed.
If not, only the time in which a link was full is attributed to the links, and the bound is coarse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from testbed.messages.result import BoundResult
from testbed.messages.statistics import Statistics
from testbed.telemetry.demand import (
    DOWN,
    UP,
    Need,
    Traffic,
    between,
    crossing,
    is_between_units,
    is_of_host,
    needs,
    tail,
    unit_of,
)
from testbed.telemetry.evidence import Evidence
from testbed.telemetry.link_usage import Carried, Floats
from testbed.telemetry.network import Light, LitNetwork, pair_of
from testbed.telemetry.replay import Transfer, Use, replay
from testbed.telemetry.samples import Recording
from testbed.telemetry.sharing import grown, share_left, total_by
from testbed.telemetry.timelines import (
    ASKED,
    CALLED,
    Declared,
    Timeline,
    Window,
    moment_ns,
    read,
    steps,
    window,
)
from testbed.telemetry.worker_numbers import number, sent_beside

DECLARED_DEPTH_S = 0.02  # a disk of a declared rate makes up for so much idle time (workloads/luwu/rates.py)
TRACE_SHARE = 0.01  # of the busiest link's bytes: links that carried less are ignored


@dataclass(frozen=True, slots=True)
class Bound:
    """Milliseconds of a round, as means over `rounds`: what links and computing allow, and what was measured.
    `left_out` rounds came before. `link` is the busiest link and direction; `computing_ms` a worker's
    computing time; `starved_ms` the time for which its script waited for a core. `shared`: other jobs ran,
    and the bound allows this job the part of optical links that they left, at least its fair share.
    `lit_share`: the share of the time in which circuits joined those units of the job that they joined least;
    1 if all were joined throughout. A `coarse` bound is of a second with traffic, and counts no computing.
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
    lit_share: float = 1.0

    @property
    def ratio(self) -> float:
        return self.measured_ms / self.bound_ms

    @property
    def how(self) -> str:
        """Describe in a line how both numbers were made."""
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
            f"measured: the clock over the same rounds; the first {self.left_out} left out{self._light}"
        )

    @property
    def _light(self) -> str:
        if self.lit_share == 1.0:
            return ""
        return f"; circuits as they were lit, those of some units {self.lit_share * 100:.3g} % of the time"

    def said(self) -> BoundResult:
        """Convert the bound for a job's result."""
        numbers = {name: _rounded(value) for name, value in asdict(self).items()}
        return BoundResult(**numbers, ratio=round(self.ratio, 4), how=self.how)

    @classmethod
    def of(cls, said: BoundResult) -> Self:
        """Restore the bound from a job's result."""
        return cls(**{each.name: getattr(said, each.name) for each in fields(cls)})


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def coarse(evidence: Evidence) -> Bound | None:
    """Compute the coarse bound of a job without seen collectives; None if none of its own links with a rate
    carried traffic.
    """
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
    statistics: Sequence[Statistics | None],
    traffic: Traffic,
    depths_s: Mapping[str, float],
    network: LitNetwork | None = None,
    others_sent: bool = False,
) -> Bound | None:
    """Compute the bound of a job from its workers' statistics, by rank. `depths_s`: by link, the seconds of
    its rate that it may send at once; `network`: the circuits that were lit; `others_sent`: whether other
    traffic than jobs' crossed its links, or may have.

    None if its collectives were not seen or contradict each other, or if none of their links has a rate.
    """
    timelines = [timeline for timeline in map(read, statistics) if timeline is not None]
    span = window(timelines) if len(timelines) == len(traffic.hosts) else None
    carried = Carried(recording)
    if span is None or not set(traffic.hosts) <= set(carried.links):
        return None
    beside = sent_beside(statistics)
    pushed = sum(number(worker, "pushed") for worker in statistics)
    once = pushed / (pushed + beside) if pushed else 1.0
    try:
        links = _Links(carried, depths_s, network or LitNetwork(), others_sent)
        return _Job(timelines, span, traffic, links, once).bound()
    except ValueError:  # the workers' timelines contradict each other
        return None


@dataclass(frozen=True, slots=True)
class _Links:
    """The links of a job: their bytes, their bursts, when circuits joined their units, and whether their
    bytes may include other traffic than jobs'.
    """

    carried: Carried
    depths_s: Mapping[str, float]
    network: LitNetwork
    others_sent: bool


class _Job:
    """The collectives of a job on the links that it had. `once` is the share of first pushes in all that
    workers pushed.
    """

    def __init__(
        self,
        timelines: Sequence[Timeline],
        span: Window,
        traffic: Traffic,
        links: _Links,
        once: float,
    ) -> None:
        self._timelines, self._span, self._traffic = timelines, span, traffic
        self._carried, self._depths_s, self._once = links.carried, links.depths_s, once
        self._moments_s = [
            (moment_ns(timeline, span.first) / 1e9, moment_ns(timeline, span.last) / 1e9)
            for timeline in timelines
        ]
        self._began_s, self._ended_s = (_mean(moments) for moments in zip(*self._moments_s, strict=True))
        self._uses: dict[int, list[Declared]] = {}
        for each in timelines[0].declared:
            self._uses.setdefault(each.number, []).append(each)
        self._scripts = [steps(timeline, span) for timeline in timelines]
        self._numbers = [step.number for step in self._scripts[0] if step.what == ASKED]
        self._asked_ns: dict[int, int] = {}  # when the last worker asked
        for timeline in timelines:
            for row in timeline.rows:
                if row.what == ASKED:
                    self._asked_ns[row.number] = max(row.at_ns, self._asked_ns.get(row.number, 0))
        self._asked_s, self._ready_s = self._under_way(self._numbers)
        collectives = timelines[0].collectives
        self._sizes: Floats = np.array([float(collectives[which].size_bytes) for which in self._numbers])
        strangers = set(links.carried.links) - traffic.held
        self._optical = sorted(filter(is_between_units, strangers))
        self._of_pods = sorted(link for link in strangers if not (is_of_host(link) or is_between_units(link)))
        self._shared = links.others_sent or any(  # the counters between switches then include others' traffic
            self._in_window(link, UP) + self._in_window(link, DOWN) for link in strangers if is_of_host(link)
        )

        self._crossed = False  # whether other jobs crossed this job's optical links
        self._lights = links.network.lights(
            {pair_of(*way) for which in self._numbers for way in between(traffic, collectives[which])}
        )

    def _under_way(self, numbers: Sequence[int]) -> tuple[Floats, Floats]:
        """Return, for each of these collectives, when all workers had asked for it, and when all had its
        result.
        """
        everybody = [timeline.collectives for timeline in self._timelines]
        asked = np.array([self._asked_ns[which] / 1e9 for which in numbers])
        ready = np.array([max(each[which].ready_ns for each in everybody) / 1e9 for which in numbers])
        return asked, ready

    def bound(self) -> Bound | None:
        transfers = self._transfers()
        busy_s: dict[str, float] = {}
        for transfer in transfers.values():
            for use in (*transfer.uses, *transfer.behind):
                busy_s[use.link] = busy_s.get(use.link, 0.0) + use.busy_s
        if not any(busy_s.values()):
            return None
        rounds, fullest = self._span.rounds, max(busy_s, key=lambda link: busy_s[link])
        measured_s = [ended - began for began, ended in self._moments_s]
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
            shared=self._crossed,
            lit_share=min([1.0, *map(self._lit_share, self._lights.values())]),
        )

    def _in_window(self, link: str, direction: str) -> float:
        began_s, ended_s = (np.array([_mean(moments)]) for moments in zip(*self._moments_s, strict=True))
        return float(self._carried.bytes(link, direction, began_s, ended_s)[0])

    def _starved_s(self, timeline: Timeline) -> float:
        quiet = timeline.quiet_rows()
        rows = timeline.rows[quiet[self._span.first] + 1 : quiet[self._span.last] + 1]
        return sum(row.starved_ns for row in rows) / 1e9

    def _transfers(self) -> dict[int, Transfer]:
        transfers: dict[int, Transfer] = {}
        everybody = tuple(range(len(self._traffic.hosts)))
        optics = self._shared_optics() if self._shared else self._own_optics()
        for at, which in enumerate(self._numbers):
            collective = self._timelines[0].collectives[which]
            uses = [self._use(need, at) for need in needs(self._traffic, collective)]
            uses += [Use(link, float(busy_s[at]), depth_s, everybody) for link, busy_s, depth_s in optics]
            uses += self._in_light(which, at, everybody)
            last = tail(self._traffic, collective)
            tail_use = self._use(last, at) if last else None
            tail_s = tail_use.busy_s if tail_use else 0.0
            direct, behind = self._declared(which)
            direct = (*(use for use in uses if use), *direct)
            transfers[which] = Transfer(direct, tail_s, behind, collective.kind == CALLED)
        return transfers

    def _lit_share(self, light: Light) -> float:
        return light.share(self._began_s, self._ended_s)

    def _in_light(self, which: int, at: int, everybody: tuple[int, ...]) -> Iterator[Use]:
        """Yield a collective's use of circuits that were not lit throughout, for each two units, at the joint
        rate of their parallel circuits.
        """
        for (sender, receiver), size in between(self._traffic, self._timelines[0].collectives[which]).items():
            light = self._lights.get(pair_of(sender, receiver))
            if light is None:
                continue
            of_sender = [link for link in self._carried.links if unit_of(link) == sender and "o" in link]
            span = float(self._asked_s[at]), float(self._ready_s[at])
            rates = [rate for link in of_sender if (rate := self._carried.rate_mbps(link, *span))]
            if not rates:
                continue
            busy_s = size * 8e-6 / (max(rates) * light.circuits)
            depth_s = max(self._depths_s.get(link, 0.0) for link in of_sender)

            def through_s(from_s: float, needed_s: float, light: Light = light) -> float:
                return light.through_s(self._began_s + from_s, needed_s) - self._began_s

            yield Use(f"circuits {sender} to {receiver}", busy_s, depth_s, everybody, through_s)

    def _declared(self, which: int) -> tuple[tuple[Use, ...], tuple[Use, ...]]:
        """Return a collective's uses of resources other than links, by the first worker's record: those that
        it waits for, and those that run behind it.
        """
        uses = self._uses.get(which, [])
        made = [(each.behind, Use(each.resource, each.busy_ns / 1e9, DECLARED_DEPTH_S)) for each in uses]
        return tuple(use for behind, use in made if not behind), tuple(use for behind, use in made if behind)

    def _use(self, need: Need, at: int) -> Use | None:
        rate_mbps = self._carried.rate_mbps(need.host, float(self._asked_s[at]), float(self._ready_s[at]))
        if rate_mbps is None:
            return None
        return Use(need.link, need.bytes * 8e-6 / rate_mbps, self._depths_s.get(need.host, 0.0), need.sources)

    def _own_optics(self) -> list[tuple[str, Floats, float]]:
        """Divide the bytes of the links between switches (optical and pods') among the collectives of a job
        that ran alone, by their sizes. Return link and direction, the seconds that each collective needs, and
        the link's depth.
        """
        optics = []
        for link in (*self._optical, *self._of_pods):
            for direction in (UP, DOWN):
                rates = self._rates_mbps([link])
                if rates is None or not self._is_used(link, direction):
                    continue
                sent = self._in_window(link, direction) * self._shares(link, direction) * self._once
                optics.append((f"{link} {direction}", sent * 8e-6 / rates, self._depths_s.get(link, 0.0)))
        return optics

    def _shares(self, link: str, direction: str) -> Floats:
        """Return each collective's share of a link's bytes, by its size; with an owner, by its bytes in that
        direction.
        """
        sizes: Floats = self._sizes
        if self._traffic.is_owned:
            collectives = (self._timelines[0].collectives[which] for which in self._numbers)
            way = unit_of(link), direction
            ours: Floats = np.array([crossing(self._traffic, each).get(way, 0.0) for each in collectives])
            sizes = ours if ours.any() else sizes
        shares: Floats = sizes / sizes.sum()
        return shares

    def _shared_optics(self) -> list[tuple[str, Floats, float]]:
        """Do the same when other jobs or other traffic were present: relate the job's own bytes to the rate
        that these left it. Which of a unit's links they used is unknown, so the links count as one; no
        division of the bytes is faster.
        """
        optics = []
        collectives = self._timelines[0].collectives
        crossings = [crossing(self._traffic, collective) for collective in collectives]
        ever = [number for number in sorted(self._asked_ns) if collectives[number].ready_ns]
        times = self._under_way(ever)
        others = self._carried.jobs_crossing(self._traffic.held)
        for unit, direction in sorted(set().union(*crossings)):
            links = [
                link for link in self._optical if unit_of(link) == unit and self._is_used(link, direction)
            ]
            counted = total_by(others[unit], self._carried.times_s)
            began_s, ended_s = np.array([self._began_s]), np.array([self._ended_s])
            self._crossed |= bool(self._carried.between(counted, began_s, ended_s)[0] > 0)
            rates = self._rates_mbps(links)
            if rates is None:
                continue
            amounts = np.array([each.get((unit, direction), 0.0) for each in crossings])
            own = amounts[self._numbers]
            own_so_far = grown(self._carried.times_s, amounts[ever] / self._once, *times)
            share = share_left(
                self._carried, links, direction, own_so_far, self._asked_s, self._ready_s, rates, others[unit]
            )
            name = links[0] if len(links) == 1 else f"{unit}'s links to others"
            depth_s = max(self._depths_s.get(link, 0.0) for link in links)
            optics.append((f"{name} {direction}", own * 8e-6 / (rates * share), depth_s))
        return optics

    def _is_used(self, link: str, direction: str) -> bool:
        return self._in_window(link, direction) >= TRACE_SHARE * float(self._sizes.sum())

    def _rates_mbps(self, links: Sequence[str]) -> Floats | None:
        """Return the joint rate of these links for each collective; None if there are none, or one has no
        rate.
        """
        times = list(zip(self._asked_s.tolist(), self._ready_s.tolist(), strict=True))
        rates = [[self._carried.rate_mbps(link, *span) for span in times] for link in links]
        if not rates or any(rate is None for row in rates for rate in row):
            return None
        together: Floats = np.sum(np.array(rates, np.float64), axis=0)
        return together


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
