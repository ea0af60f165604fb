"""TW+, second half: the rates of the jobs that send, and the circuits that these need. Owns no choice of INC. Pure."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Mapping, Sequence

from testbed.scheduling.model import Fabric, Load, Pair
from testbed.scheduling.room import SLACK
from testbed.scheduling.tw_plus_modes import Sending, Tuning

_CRITICAL = 0.97
"""Of the time to the expected end: a job that needs as much at its largest rate comes before the others."""
_LEAST = 1e-6
"""Of a rate: it is not raised by less."""


@functools.lru_cache(maxsize=4096)
def efficient_gbps(links: tuple[tuple[Pair, int], ...], port_gbps: float) -> tuple[float, ...]:
    """The rates, ascending, at which a job with several links leaves little of their circuits empty."""
    counts = [count for _, count in links]
    rates = sorted({number * port_gbps / count for count in counts for number in range(1, count + 1)})
    found = []
    for rate in rates:
        circuits = sum([math.ceil(count * rate / port_gbps - SLACK) for count in counts])
        if sum(counts) * rate >= _EFFICIENT * circuits * port_gbps:
            found.append(rate)
    return tuple(found)


_EFFICIENT = 0.9
"""Of the circuits that a job needs: what it should fill."""


class Rates:
    """Rates of one slot, in rounds; each only adds. `lit` are the circuits of the slot before."""

    def __init__(self, fabric: Fabric, lit: Mapping[Pair, int], tuning: Tuning) -> None:
        self.fabric, self.lit, self.tuning = fabric, lit, tuning
        self.gbps: dict[int, float] = {}
        self._port_gbps = fabric.port_gbps
        self.circuits: dict[Pair, int] = {}
        self._short: set[int] = set()
        self._link_gbps: dict[Pair, float] = {}
        self._ports = list(fabric.ports)  # left
        self._switch = [gbps * (1 + SLACK / 2) for gbps in fabric.switch_gbps]  # left
        self._bounded = False  # whether some switch could be what limits

    def give(self, sending: Sequence[Sending], end_s: float) -> None:
        """All rounds. `sending` comes with the longest updates first."""
        linked = []
        for entry in sending:
            entry.most_gbps = min(entry.load.limit_gbps, self._useful_gbps(entry))
            if entry.load.links:
                linked.append(entry)
        self._bounded = self._may_bound(sending)
        self._keep_running(sending)
        for entry in sending:
            if not entry.load.links:
                self._raise(
                    entry, entry.most_gbps, True, entry.most_gbps / 2 if entry.progress.started is None else 0.0
                )
        linked.sort(key=lambda entry: entry.least_s < _CRITICAL * end_s)
        hurried_s = self.tuning.hurry * end_s
        for until_s in (end_s, hurried_s):
            for entry in linked:
                if not entry.may_wait and self._has_room(entry):
                    self._raise(entry, self._in_time_gbps(entry, until_s), True)
        for entry in linked:
            if entry.may_wait and self._has_room(entry):
                least = min(self._in_time_gbps(entry, hurried_s), entry.most_gbps)
                self._raise(entry, least, True, least * (1 - SLACK))
        for entry in linked:
            if entry.progress.job.id in self.gbps and self._has_room(entry):
                self._raise(entry, entry.most_gbps, False)

    def give_one(self, entry: Sending) -> None:
        """All that one job can have."""
        self._raise(entry, entry.most_gbps, True)

    def _may_bound(self, sending: Sequence[Sending]) -> bool:
        """Whether some switch would be too small for all at their largest rates."""
        if all(math.isinf(gbps) for gbps in self.fabric.switch_gbps):
            return False
        asked = [0.0] * len(self.fabric.ports)
        for entry in sending:
            for unit, count in entry.load.switches:
                asked[unit] += count * entry.most_gbps
        return any(gbps > most for gbps, most in zip(asked, self.fabric.switch_gbps, strict=True))

    def _has_room(self, entry: Sending) -> bool:
        """Quick, and right when it says no: it got less than it was to get, or has neither a circuit nor two ports for one."""
        pair = entry.load.links[0][0]
        if entry.progress.job.id in self._short:
            return False
        return pair in self.circuits or (self._ports[pair[0]] > 0 and self._ports[pair[1]] > 0)

    def _useful_gbps(self, entry: Sending) -> float:
        """The rate that finishes a job in this slot, if what is new comes into force epsilon late."""
        fabric, progress = self.fabric, entry.progress
        left, had = progress.remaining_gigabits, progress.rate_gbps
        if had * fabric.slot_s >= left or fabric.slot_s <= fabric.reconfiguration_s:
            return left / fabric.slot_s
        return (left - had * fabric.reconfiguration_s) / (fabric.slot_s - fabric.reconfiguration_s)

    def _in_time_gbps(self, entry: Sending, until_s: float) -> float:
        its, fabric, progress = entry.load, self.fabric, entry.progress
        left, had = progress.remaining_gigabits, progress.rate_gbps
        for_s = max(until_s - its.update_s, fabric.slot_s)
        gbps = left / for_s
        if gbps > had and for_s > fabric.reconfiguration_s:
            gbps = (left - had * fabric.reconfiguration_s) / (for_s - fabric.reconfiguration_s)
        if len(its.links) > 1:
            levels = efficient_gbps(its.links, self._port_gbps)
            at = bisect.bisect_left(levels, gbps * (1 - SLACK))
            if at < len(levels):
                gbps = levels[at]
        return min(its.limit_gbps, gbps)

    def _keep_running(self, sending: Sequence[Sending]) -> None:
        """What running jobs cannot lose: a rate above 0, for which each of their links keeps one circuit; without links, the rate."""
        streams: dict[Pair, int] = {}
        running = [entry for entry in sending if entry.progress.started is not None]
        for entry in running:
            for pair, count in entry.load.links:
                streams[pair] = streams.get(pair, 0) + count
        for entry in running:
            progress, its = entry.progress, entry.load
            gbps = min(progress.rate_gbps, entry.most_gbps)
            if its.links:
                gbps = min(gbps, self._port_gbps / (2 * max([streams[pair] for pair, _ in its.links])))
            self._take(its, gbps)
            self.gbps[progress.job.id] = gbps

    # -------------------------------------------------------------- one job

    def _raise(self, entry: Sending, gbps: float, new: bool, least_gbps: float = 0.0) -> None:
        """Up to `gbps`, as far as it fits; not at all if a job would start below `least_gbps`. With `new`, circuits that are not lit
        count as well."""
        id_, its = entry.progress.job.id, entry.load
        had = self.gbps.get(id_, 0.0)
        most = min(gbps, entry.most_gbps)
        more = most - had
        tiny = _LEAST * most
        if more <= tiny:
            return
        if self._bounded:
            for unit, count in its.switches:
                if self._switch[unit] < count * more:
                    more = self._switch[unit] / count
        if len(its.links) == 1:
            ((pair, count),) = its.links
            given, used = self.circuits.get(pair, 0), self._link_gbps.get(pair, 0.0)
            if given * self._port_gbps < used + count * more:
                left = min(self._ports[pair[0]], self._ports[pair[1]])
                if not new:
                    left = min(left, max(0, self.lit.get(pair, 0) - given))
                more = min(more, ((given + left) * self._port_gbps - used) / count)
        elif its.links:
            more = self._over_links(its, more, new)
        if new and had + more < most - tiny:
            self._short.add(id_)
        if more <= tiny or had + more < least_gbps:
            return
        self._take(its, more)
        self.gbps[id_] = had + more

    def _over_links(self, its: Load, gbps: float, new: bool) -> float:
        """The largest rate up to `gbps` for a job with several links: one circuit after the other to the link that limits."""
        given = {pair: self.circuits.get(pair, 0) for pair, _ in its.links}
        left = {unit: self._ports[unit] for pair in given for unit in pair}
        while True:
            least, pair = min(
                ((given[pair] * self._port_gbps - self._link_gbps.get(pair, 0.0)) / count, pair)
                for pair, count in its.links
            )
            a, b = pair
            if least >= gbps:
                return gbps
            if not left[a] or not left[b] or not (new or given[pair] < self.lit.get(pair, 0)):
                return least
            given[pair] += 1
            left[a] -= 1
            left[b] -= 1

    def _take(self, its: Load, gbps: float) -> None:
        if self._bounded:
            for unit, count in its.switches:
                self._switch[unit] -= count * gbps
        for pair, count in its.links:
            used = self._link_gbps.get(pair, 0.0) + count * gbps
            self._link_gbps[pair] = used
            had = self.circuits.get(pair, 0)
            if not had or used > (had + SLACK) * self._port_gbps:
                circuits = int(used / self._port_gbps - SLACK) + 1
                self.circuits[pair] = circuits
                self._ports[pair[0]] -= circuits - had
                self._ports[pair[1]] -= circuits - had
