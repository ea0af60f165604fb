"""TW+, second half: the rates of the jobs that send, and the circuits that they need. Makes no choice of INC.
Pure.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.scheduling.free_capacity import SLACK
from testbed.scheduling.model import Limits, Pair
from testbed.systems.p4inc.policies.tw_plus_modes import Sending, Tuning

Numbers = NDArray[Any]

_CRITICAL = 0.97
"""A job that needs this share of the time to the expected end, at its largest rate, goes before the
others.
"""
_LEAST = 1e-6
"""The smallest relative raise of a rate."""


@functools.lru_cache(maxsize=4096)
def efficient_gbps(links: tuple[tuple[int, float], ...]) -> tuple[float, ...]:
    """Return the rates, ascending, at which a job fills its circuits well. `links` has, for each of its
    links, its streams and the rate of a circuit.
    """
    most = max(gbps for _, gbps in links)
    rates = sorted(
        {
            number * gbps / count
            for count, gbps in links
            for number in range(1, math.floor(count * most / gbps) + 1)
        }
    )
    efficient = []
    for rate in rates:
        filled = [count * rate / gbps for count, gbps in links]
        if sum(filled) >= _EFFICIENT * sum([math.ceil(each - SLACK) for each in filled]):
            efficient.append(rate)
    return tuple(efficient)


_EFFICIENT = 0.9
"""The share of its circuits that a job should fill."""


class Rates:
    """Rates of one slot, assigned in rounds that only add. `sending` has the jobs, longest updates first, and
    `lit` the circuits of the previous slot.

    Without INC, a large-scale slot has thousands of jobs, nearly all with one link, and each round visits
    each. For speed, jobs and links are numbers, and their data are in arrays; values that do not depend on
    earlier jobs are computed for all jobs at once; and a round is one loop, with a separate path for jobs
    with one link.
    """

    def __init__(
        self, limits: Limits, lit: Mapping[Pair, int], tuning: Tuning, sending: Sequence[Sending]
    ) -> None:
        self.limits, self.tuning = limits, tuning
        # arrays by job
        self._sending = sending
        self._left = np.array([entry.progress.remaining_gigabits for entry in sending])
        self._had = np.array([entry.progress.rate_gbps for entry in sending])
        self._update_s = np.array([entry.load.update_s for entry in sending])
        self._limit = np.array([entry.load.limit_gbps for entry in sending])
        self._most: list[float] = self._useful_gbps().tolist()
        self._gbps = [0.0] * len(sending)
        self._is_short = [False] * len(sending)  # it got less than requested: nothing more fits
        # a job's only link, or the first of several, and its streams there; `_several`: all of them
        self._link: list[int | None] = [None] * len(sending)
        self._streams = [0] * len(sending)
        self._several: dict[int, list[tuple[int, int]]] = {}
        # arrays by link
        self._pairs = self._number_links()
        self._ends = np.array(list(itertools.chain.from_iterable(self._pairs)), np.intp).reshape(-1, 2)
        self._circuit_gbps = [limits.circuit_gbps(pair) for pair in self._pairs]
        self._lit = [lit.get(pair, 0) for pair in self._pairs]
        self._circuits = [0] * len(self._pairs)
        self._used = [0.0] * len(self._pairs)  # Gb/s
        # lists by unit
        self._ports = list(limits.ports)  # still free
        self._switch = [gbps * (1 + SLACK / 2) for gbps in limits.switch_gbps]  # still free
        self._bounded = self._may_bound()  # whether a switch could limit rates

    @property
    def gbps(self) -> dict[int, float]:
        """The rates of the running jobs."""
        rates = zip(self._sending, self._gbps, strict=True)
        return {entry.progress.job.id: gbps for entry, gbps in rates if gbps > 0}

    @property
    def circuits(self) -> dict[Pair, int]:
        """The circuits that the rates need."""
        return {pair: count for pair, count in zip(self._pairs, self._circuits, strict=True) if count}

    def ports_end_s(self) -> float:
        """Return the earliest time by which the optical ports can be done, updates included, if each unit
        serves jobs with the longest update first. No schedule is faster.
        """
        (jobs, links, streams), limits = self._rows, self.limits
        if not len(jobs):
            return 0.0
        units = self._ends[links].ravel()
        own_gbps = np.array([limits.optical_gbps(unit) for unit in limits.units])
        order = np.argsort(units, kind="stable")
        units = units[order]
        first = np.flatnonzero(np.diff(units, prepend=-1))
        # one row per unit, so that each row's running sum starts at 0
        at = np.arange(len(units)) - np.repeat(first, np.diff(first, append=len(units)))
        through = np.zeros((len(self.limits.ports), int(at.max()) + 1))
        weights = [[limits.port_weight(unit, pair) for unit in pair] for pair in self._pairs]
        through[units, at] = (np.array(weights)[links].ravel() * np.repeat(streams * self._left[jobs], 2))[
            order
        ]
        through = np.cumsum(through, axis=1)[units, at]
        port_gbps = np.maximum(own_gbps, 1e-9)
        return float((through / port_gbps[units] + np.repeat(self._update_s[jobs], 2)[order]).max())

    def give(self, end_s: float) -> None:
        """Run all rounds."""
        sending, most = self._sending, self._most
        self._keep_running()
        self._raise([at for at, link in enumerate(self._link) if link is None], most, new=True, least=0.5)
        critical_s = _CRITICAL * end_s
        linked = [at for at, link in enumerate(self._link) if link is not None]
        linked.sort(key=lambda at: sending[at].least_s < critical_s)
        waiting = [at for at in linked if sending[at].may_wait]
        others = [at for at in linked if not sending[at].may_wait] if waiting else linked
        hurried = self._in_time_gbps(self.tuning.hurry * end_s)
        self._raise(others, self._in_time_gbps(end_s), new=True)
        self._raise(others, hurried, new=True)
        self._raise(waiting, hurried, new=True, least=1 - SLACK)
        self._raise([at for at in linked if self._gbps[at] > 0], most, new=False)

    def give_one(self, number: int) -> None:
        """Give one job all that it can have."""
        self._is_short[number] = False
        self._raise([number], self._most, new=True)

    # -------------------------------------------------------------- arrays

    def _useful_gbps(self) -> Numbers:
        """Return the most that each job can use: the rate that finishes it in this slot, if the increase
        takes effect epsilon late.
        """
        slot_s, late_s = self.limits.slot_s, self.limits.reconfiguration_s
        useful = self._left / slot_s
        if slot_s > late_s:
            late = self._had < useful
            np.divide(self._left - self._had * late_s, slot_s - late_s, out=useful, where=late)
        most: Numbers = np.minimum(useful, self._limit)
        return most

    def _number_links(self) -> list[Pair]:
        """Number the pairs of units with streams, and record each job's links by these numbers."""
        numbers: dict[Pair, int] = {}
        jobs: list[int] = []
        rows: list[int] = []
        streams: list[int] = []
        for at, entry in enumerate(self._sending):
            links = entry.load.links
            for pair, count in links:
                jobs.append(at)
                rows.append(numbers.setdefault(pair, len(numbers)))
                streams.append(count)
            if links:
                self._link[at], self._streams[at] = rows[-len(links)], links[0][1]
                if len(links) > 1:
                    self._several[at] = [(link, links[i][1]) for i, link in enumerate(rows[-len(links) :])]
        # by job and link: both numbers, and the streams
        self._rows = (np.array(jobs, np.intp), np.array(rows, np.intp), np.array(streams, np.intp))
        return list(numbers)

    def _may_bound(self) -> bool:
        """Return whether some switch would be too small for all jobs at their largest rates. Traffic between
        a switch and its unit's optical ports never exceeds what these carry.
        """
        limits = self.limits
        beside = [limits.optical_gbps(unit) for unit in limits.units]
        for entry, most_gbps in zip(self._sending, self._most, strict=True):
            links, switches = entry.load.links, entry.load.switches
            if len(links) == 1 and len(switches) == 2 and switches[0][1] == switches[1][1] == links[0][1]:
                continue  # it crosses both switches between servers and optical ports alone
            for unit, count in switches:
                beside[unit] += count * most_gbps
        return any(
            gbps > capacity * (1 - 1e-6) for gbps, capacity in zip(beside, limits.switch_gbps, strict=True)
        )

    def _in_time_gbps(self, end_s: float) -> list[float]:
        """Return the rate of each job that ends it by `end_s`, if the increase takes effect epsilon late; for
        a job with several links, a rate that fills their circuits.
        """
        late_s = self.limits.reconfiguration_s
        for_s = np.maximum(end_s - self._update_s, self.limits.slot_s)
        gbps = self._left / for_s
        late = (gbps > self._had) & (for_s > late_s)
        np.divide(self._left - self._had * late_s, for_s - late_s, out=gbps, where=late)
        for at in self._several:
            links = self._several[at]
            levels = efficient_gbps(tuple((count, self._circuit_gbps[link]) for link, count in links))
            level = bisect.bisect_left(levels, float(gbps[at]) * (1 - SLACK))
            if level < len(levels):
                gbps[at] = levels[level]
        rates: list[float] = np.minimum(gbps, self._limit).tolist()
        return rates

    # -------------------------------------------------------------- rounds

    def _keep_running(self) -> None:
        """Give running jobs the least that they must keep: a rate above 0, for which each of their links
        keeps one circuit; all jobs of a link together get at most half a port. Jobs without links keep their
        rate.
        """
        circuit_gbps = np.array(self._circuit_gbps)
        running = np.array([entry.progress.started is not None for entry in self._sending], bool)
        jobs, links, streams = self._rows
        kept_rows = running[jobs]
        jobs, links, streams = jobs[kept_rows], links[kept_rows], streams[kept_rows]
        on_link = np.bincount(links, streams, len(self._pairs))
        gbps = np.where(running, np.minimum(self._most, self._had), 0.0)
        wide = gbps[jobs] * 2 * on_link[links] > circuit_gbps[links]
        np.minimum.at(gbps, jobs[wide], circuit_gbps[links[wide]] / (2 * on_link[links[wide]]))
        self._gbps = gbps.tolist()
        self._used = np.bincount(links, streams * gbps[jobs], len(self._pairs)).tolist()
        self._circuits = (on_link > 0).astype(int).tolist()
        taken = np.bincount(self._ends[on_link > 0].ravel(), minlength=len(self._ports))
        self._ports = (np.array(self._ports) - taken).tolist()
        if self._bounded:
            for entry, gbps_ in zip(self._sending, self._gbps, strict=True):
                for unit, count in entry.load.switches:
                    self._switch[unit] -= count * gbps_

    def _raise(self, jobs: Iterable[int], asked: Sequence[float], *, new: bool, least: float = 0.0) -> None:
        """Raise each job to the rate `asked`, as far as that fits and is useful; skip a job that would start
        with less than the share `least` of it. With `new`, circuits that are not lit may be used too.
        """
        circuit_gbps, ports, pairs, switch = self._circuit_gbps, self._ports, self._pairs, self._switch
        lit, circuits, used = self._lit, self._circuits, self._used
        sending, rates, useful, is_short = self._sending, self._gbps, self._most, self._is_short
        for at in jobs:
            had, most = rates[at], asked[at]
            if useful[at] < most:
                most = useful[at]
            more, tiny = most - had, _LEAST * most
            if more <= tiny or is_short[at]:
                continue
            if self._bounded:
                for unit, count in sending[at].load.switches:
                    if switch[unit] < count * more:
                        more = switch[unit] / count
            link, count = self._link[at], self._streams[at]
            if at in self._several:
                more = self._over_links(self._several[at], more, new)
            elif link is not None:
                given, port_gbps = circuits[link], circuit_gbps[link]
                if given * port_gbps < used[link] + count * more:
                    a, b = pairs[link]
                    left = min(ports[a], ports[b])
                    if not new:
                        left = max(0, min(left, lit[link] - given))
                    fits = ((given + left) * port_gbps - used[link]) / count
                    if fits < more:
                        more = fits
            if new and had + more < most - tiny:
                is_short[at] = True
            if more <= tiny or (not had and more < least * most):
                continue
            rates[at] = had + more
            if self._bounded:
                for unit, count_ in sending[at].load.switches:
                    switch[unit] -= count_ * more
            if at in self._several:
                for link_, count_ in self._several[at]:
                    self._use(link_, count_ * more)
            elif link is not None:
                used[link] = gbps = used[link] + count * more
                if not given or gbps > (given + SLACK) * port_gbps:
                    circuits[link] = new_circuits = int(gbps / port_gbps - SLACK) + 1
                    a, b = pairs[link]
                    ports[a] -= new_circuits - given
                    ports[b] -= new_circuits - given

    def _use(self, link: int, gbps: float) -> None:
        """Add to the rate of a link, and to its circuits as needed."""
        self._used[link] = used = self._used[link] + gbps
        had, port_gbps = self._circuits[link], self._circuit_gbps[link]
        if not had or used > (had + SLACK) * port_gbps:
            self._circuits[link] = circuits = int(used / port_gbps - SLACK) + 1
            for unit in self._pairs[link]:
                self._ports[unit] -= circuits - had

    def _over_links(self, links: Sequence[tuple[int, int]], gbps: float, new: bool) -> float:
        """Return the largest rate up to `gbps` for a job with several links, adding circuits one by one to
        the link that limits it.
        """
        pairs = [self._pairs[link] for link, _ in links]
        given = [self._circuits[link] for link, _ in links]
        left = {unit: self._ports[unit] for pair in pairs for unit in pair}
        while True:
            least, (a, b), at = min(
                ((given[at] * self._circuit_gbps[link] - self._used[link]) / count, pairs[at], at)
                for at, (link, count) in enumerate(links)
            )
            if least >= gbps:
                return gbps
            if left[a] <= 0 or left[b] <= 0 or not (new or given[at] < self._lit[links[at][0]]):
                return least
            given[at] += 1
            left[a] -= 1
            left[b] -= 1
