"""TW+, second half: the rates of the jobs that send, and the circuits that these need. Owns no choice of INC. Pure."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Mapping, Sequence

from testbed.scheduling.model import Fabric, Pair
from testbed.scheduling.room import SLACK
from testbed.scheduling.tw_plus_modes import Link, Sending, Tuning

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
    """Rates of one slot, in rounds; each only adds. `lit` are the circuits of the slot before.

    Without INC a slot has a thousand jobs at large scale, and each is looked at in every round: so links are objects that entries
    hold, not numbers found by pairs, and the case of one link has a path of its own.
    """

    def __init__(self, fabric: Fabric, lit: Mapping[Pair, int], tuning: Tuning) -> None:
        self.fabric, self.lit, self.tuning = fabric, lit, tuning
        self._port_gbps = fabric.port_gbps
        self._links: dict[Pair, Link] = {}
        self._sending: Sequence[Sending] = ()
        self._ports = list(fabric.ports)  # left
        self._switch = [gbps * (1 + SLACK / 2) for gbps in fabric.switch_gbps]  # left
        self._bounded = False  # whether some switch could be what limits

    @property
    def gbps(self) -> dict[int, float]:
        """By job that runs."""
        return {entry.progress.job.id: entry.gbps for entry in self._sending if entry.gbps > 0}

    @property
    def circuits(self) -> dict[Pair, int]:
        """Those that the rates need."""
        return {pair: link.circuits for pair, link in self._links.items() if link.circuits}

    def give(self, sending: Sequence[Sending], end_s: float) -> None:
        """All rounds. `sending` comes with the longest updates first."""
        self._sending = sending
        linked = [entry for entry in sending if entry.load.links]
        for entry in linked:
            if len(entry.load.links) == 1:
                ((pair, count),) = entry.load.links
                entry.links = ((self._link(pair), count),)
            else:
                entry.links = tuple([(self._link(pair), count) for pair, count in entry.load.links])
        self._bound_by_use(sending)
        self._bounded = self._may_bound(sending)
        self._keep_running(sending)
        for entry in sending:
            if not entry.links:
                least_gbps = entry.most_gbps / 2 if entry.progress.started is None else 0.0
                self._raise(entry, entry.most_gbps, True, least_gbps)
        critical_s = _CRITICAL * end_s
        linked.sort(key=lambda entry: entry.least_s < critical_s)
        hurried_s = self.tuning.hurry * end_s
        for until_s in (end_s, hurried_s):
            for entry in linked:
                if not entry.may_wait and entry.gbps < entry.most_gbps and self._has_room(entry):
                    gbps = self._in_time_gbps(entry, until_s)
                    if gbps > entry.gbps:
                        self._raise(entry, gbps, True)
        for entry in linked:
            if entry.may_wait and self._has_room(entry):
                least = min(self._in_time_gbps(entry, hurried_s), entry.most_gbps)
                self._raise(entry, least, True, least * (1 - SLACK))
        for entry in linked:
            if 0 < entry.gbps < entry.most_gbps and not entry.is_short:
                self._raise(entry, entry.most_gbps, False)

    def give_one(self, entry: Sending) -> None:
        """All that one job can have."""
        self._raise(entry, entry.most_gbps, True)

    def _link(self, pair: Pair) -> Link:
        link = self._links.get(pair)
        if link is None:
            link = self._links[pair] = Link(pair[0], pair[1], self.lit.get(pair, 0))
        return link

    def _may_bound(self, sending: Sequence[Sending]) -> bool:
        """Whether some switch would be too small for all at their largest rates."""
        if all(math.isinf(gbps) for gbps in self.fabric.switch_gbps):
            return False
        asked = [0.0] * len(self.fabric.ports)
        for entry in sending:
            most_gbps = entry.most_gbps
            for unit, count in entry.load.switches:
                asked[unit] += count * most_gbps
        return any(gbps > most for gbps, most in zip(asked, self.fabric.switch_gbps, strict=True))

    def _has_room(self, entry: Sending) -> bool:
        """Quick, and right when it says no: it got less than it was to get, or has neither a circuit nor two ports for one."""
        if entry.is_short:
            return False
        link = entry.links[0][0]
        return link.circuits > 0 or (self._ports[link.a] > 0 and self._ports[link.b] > 0)

    def _bound_by_use(self, sending: Sequence[Sending]) -> None:
        """No job has use of more than finishes it in this slot, if what is new comes into force epsilon late."""
        slot_s, late_s = self.fabric.slot_s, self.fabric.reconfiguration_s
        for entry in sending:
            progress, most = entry.progress, entry.load.limit_gbps
            left, had = progress.remaining_gigabits, progress.rate_gbps
            useful = left / slot_s
            if had < useful and slot_s > late_s:
                useful = (left - had * late_s) / (slot_s - late_s)
            entry.most_gbps = useful if useful < most else most

    def _in_time_gbps(self, entry: Sending, until_s: float) -> float:
        its, progress = entry.load, entry.progress
        left, had = progress.remaining_gigabits, progress.rate_gbps
        for_s, late_s = until_s - its.update_s, self.fabric.reconfiguration_s
        if for_s < self.fabric.slot_s:
            for_s = self.fabric.slot_s
        gbps = left / for_s
        if gbps > had and for_s > late_s:
            gbps = (left - had * late_s) / (for_s - late_s)
        if len(entry.links) > 1:
            levels = efficient_gbps(its.links, self._port_gbps)
            at = bisect.bisect_left(levels, gbps * (1 - SLACK))
            if at < len(levels):
                gbps = levels[at]
        return gbps if gbps < its.limit_gbps else its.limit_gbps

    def _keep_running(self, sending: Sequence[Sending]) -> None:
        """What running jobs cannot lose: a rate above 0, for which each of their links keeps one circuit; without links, the rate."""
        running = [entry for entry in sending if entry.progress.started is not None]
        for entry in running:
            for link, count in entry.links:
                link.streams += count
        for entry in running:
            gbps = entry.progress.rate_gbps
            if entry.most_gbps < gbps:
                gbps = entry.most_gbps
            for link, _ in entry.links:
                if gbps * 2 * link.streams > self._port_gbps:
                    gbps = self._port_gbps / (2 * link.streams)
            if self._bounded or len(entry.links) != 1:
                self._take(entry, gbps)
                continue
            # all of a link's together have half a port at most: one circuit
            ((link, count),) = entry.links
            entry.gbps = gbps
            link.gbps += count * gbps
            if not link.circuits:
                link.circuits = 1
                self._ports[link.a] -= 1
                self._ports[link.b] -= 1

    # -------------------------------------------------------------- one job

    def _raise(self, entry: Sending, gbps: float, new: bool, least_gbps: float = 0.0) -> None:
        """Up to `gbps`, as far as it fits; not at all if a job would start below `least_gbps`. With `new`, circuits that are not lit
        count as well."""
        had, links, most = entry.gbps, entry.links, entry.most_gbps
        if gbps < most:
            most = gbps
        more = most - had
        tiny = _LEAST * most
        if more <= tiny:
            return
        if self._bounded:
            for unit, count in entry.load.switches:
                if self._switch[unit] < count * more:
                    more = self._switch[unit] / count
        if len(links) == 1:
            ((link, count),) = links
            given = link.circuits
            if given * self._port_gbps < link.gbps + count * more:
                left = min(self._ports[link.a], self._ports[link.b])
                if not new and link.lit - given < left:
                    left = max(0, link.lit - given)
                more = min(more, ((given + left) * self._port_gbps - link.gbps) / count)
        elif links:
            more = self._over_links(links, more, new)
        if new and had + more < most - tiny:
            entry.is_short = True
        if more <= tiny or had + more < least_gbps:
            return
        self._take(entry, more)

    def _over_links(self, links: Sequence[tuple[Link, int]], gbps: float, new: bool) -> float:
        """The largest rate up to `gbps` for a job with several links: one circuit after the other to the link that limits."""
        given = [link.circuits for link, _ in links]
        left = {unit: self._ports[unit] for link, _ in links for unit in (link.a, link.b)}
        while True:
            least, _, at = min(
                ((given[at] * self._port_gbps - link.gbps) / count, (link.a, link.b), at)
                for at, (link, count) in enumerate(links)
            )
            link = links[at][0]
            if least >= gbps:
                return gbps
            if not left[link.a] or not left[link.b] or not (new or given[at] < link.lit):
                return least
            given[at] += 1
            left[link.a] -= 1
            left[link.b] -= 1

    def _take(self, entry: Sending, gbps: float) -> None:
        if self._bounded:
            for unit, count in entry.load.switches:
                self._switch[unit] -= count * gbps
        for link, count in entry.links:
            used = link.gbps + count * gbps
            link.gbps = used
            had = link.circuits
            if not had or used > (had + SLACK) * self._port_gbps:
                circuits = int(used / self._port_gbps - SLACK) + 1
                link.circuits = circuits
                self._ports[link.a] -= circuits - had
                self._ports[link.b] -= circuits - had
        entry.gbps += gbps
