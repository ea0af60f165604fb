"""TW+, second half: the rates of the jobs that send, and the circuits that these need. Owns no choice of INC.
Pure.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

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

    Without INC a slot has thousands of jobs at large scale, nearly all with one link, and each is looked at
    in every round. So links are objects that entries hold, not numbers found by pairs; the case of one link
    has a path of its own; what rounds ask for is computed for all jobs at once; and each job and each link is
    one object, since the collector looks at all of them.
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
        return {entry.progress.job.id: gbps for entry in self._sending if (gbps := entry.gbps) > 0}

    @property
    def circuits(self) -> dict[Pair, int]:
        """Those that the rates need."""
        return {pair: circuits for pair, link in self._links.items() if (circuits := link.circuits)}

    def give(self, sending: Sequence[Sending], end_s: float) -> None:
        """All rounds. `sending` comes with the longest updates first."""
        self._sending = sending
        self._prepare(sending)
        self._bounded = self._may_bound(sending)
        self._keep_running(sending)
        raise_ = self._raise
        linked = []
        for entry in sending:
            if entry.link is not None:
                linked.append(entry)
                continue
            least_gbps = entry.most_gbps / 2 if entry.progress.started is None else 0.0
            raise_(entry, entry.most_gbps, True, least_gbps)
        critical_s = _CRITICAL * end_s
        linked.sort(key=lambda entry: entry.least_s < critical_s)
        in_time, hurried = self._in_time_gbps(linked, (end_s, self.tuning.hurry * end_s))
        for asked in (in_time, hurried):
            for entry, gbps in zip(linked, asked, strict=True):
                had = entry.gbps
                if had < gbps and had < entry.most_gbps and not (entry.may_wait or entry.is_short):
                    raise_(entry, gbps, True)
        for entry, gbps in zip(linked, hurried, strict=True):
            if entry.may_wait:
                least = min(gbps, entry.most_gbps)
                raise_(entry, least, True, least * (1 - SLACK))
        for entry in linked:
            most = entry.most_gbps
            if 0 < entry.gbps < most and not entry.is_short:
                raise_(entry, most, False)

    def give_one(self, entry: Sending) -> None:
        """All that one job can have."""
        self._raise(entry, entry.most_gbps, True)

    def _prepare(self, sending: Sequence[Sending]) -> None:
        """The links of each job, and the most that it has use of: what finishes it in this slot, if what is
        new comes into force epsilon late.
        """
        slot_s, late_s = self.fabric.slot_s, self.fabric.reconfiguration_s
        link_of = self._link
        for entry in sending:
            its, progress = entry.load, entry.progress
            most, left, had = its.limit_gbps, progress.remaining_gigabits, progress.rate_gbps
            useful = left / slot_s
            if had < useful and slot_s > late_s:
                useful = (left - had * late_s) / (slot_s - late_s)
            entry.most_gbps = useful if useful < most else most
            links = its.links
            if len(links) == 1:
                ((pair, entry.streams),) = links
                entry.link = link_of(pair)
            elif links:
                entry.links = tuple([(link_of(pair), count) for pair, count in links])
                entry.link, entry.streams = entry.links[0]

    def _link(self, pair: Pair) -> Link:
        link = self._links.get(pair)
        if link is None:
            link = self._links[pair] = Link(pair[0], pair[1], self.lit.get(pair, 0))
        return link

    def _may_bound(self, sending: Sequence[Sending]) -> bool:
        """Whether some switch would be too small for all at their largest rates."""
        capacity = self.fabric.switch_gbps
        if all(math.isinf(gbps) for gbps in capacity):
            return False
        asked = [0.0] * len(capacity)
        for entry in sending:
            most_gbps = entry.most_gbps
            for unit, count in entry.load.switches:
                asked[unit] = gbps = asked[unit] + count * most_gbps
                if gbps > capacity[unit]:
                    return True
        return False

    def _in_time_gbps(self, linked: Sequence[Sending], ends_s: Sequence[float]) -> list[list[float]]:
        """For each end the rate of each job that ends it by then, if what is new comes into force epsilon
        late; for a job with several links one that fills their circuits.
        """
        slot_s, late_s = self.fabric.slot_s, self.fabric.reconfiguration_s
        left = np.array([entry.progress.remaining_gigabits for entry in linked])
        had = np.array([entry.progress.rate_gbps for entry in linked])
        update_s = np.array([entry.load.update_s for entry in linked])
        most = np.array([entry.load.limit_gbps for entry in linked])
        several = [at for at, entry in enumerate(linked) if entry.links]
        rates = []
        for end_s in ends_s:
            for_s = np.maximum(end_s - update_s, slot_s)
            gbps = left / for_s
            np.divide(left - had * late_s, for_s - late_s, out=gbps, where=(gbps > had) & (for_s > late_s))
            for at in several:
                levels = efficient_gbps(linked[at].load.links, self._port_gbps)
                level = bisect.bisect_left(levels, float(gbps[at]) * (1 - SLACK))
                if level < len(levels):
                    gbps[at] = levels[level]
            rates.append(np.minimum(gbps, most).tolist())
        return rates

    def _keep_running(self, sending: Sequence[Sending]) -> None:
        """What running jobs cannot lose: a rate above 0, for which each of their links keeps one circuit;
        without links, the rate.
        """
        port_gbps, ports, switch, bounded = self._port_gbps, self._ports, self._switch, self._bounded
        running = [entry for entry in sending if entry.progress.started is not None]
        for entry in running:
            if entry.links:
                for link, count in entry.links:
                    link.streams += count
            elif entry.link is not None:
                entry.link.streams += entry.streams
        for entry in running:
            gbps = entry.progress.rate_gbps
            if entry.most_gbps < gbps:
                gbps = entry.most_gbps
            if entry.link is None or entry.links:
                for link, _ in entry.links:
                    if gbps * 2 * link.streams > port_gbps:
                        gbps = port_gbps / (2 * link.streams)
                self._take(entry, gbps)
                continue
            link = entry.link
            if gbps * 2 * link.streams > port_gbps:
                gbps = port_gbps / (2 * link.streams)
            entry.gbps = gbps
            link.gbps += entry.streams * gbps
            if bounded:
                for unit, count in entry.load.switches:
                    switch[unit] -= count * gbps
            # all of a link's together have half a port at most: one circuit
            if not link.circuits:
                link.circuits = 1
                ports[link.a] -= 1
                ports[link.b] -= 1

    # -------------------------------------------------------------- one job

    def _raise(self, entry: Sending, gbps: float, new: bool, least_gbps: float = 0.0) -> None:
        """Up to `gbps`, as far as it fits; not at all if a job would start below `least_gbps`. With `new`,
        circuits that are not lit count as well.
        """
        had, most = entry.gbps, entry.most_gbps
        if gbps < most:
            most = gbps
        more = most - had
        tiny = _LEAST * most
        if more <= tiny:
            return
        if self._bounded:
            switch = self._switch
            for unit, count in entry.load.switches:
                if switch[unit] < count * more:
                    more = switch[unit] / count
        if entry.links:
            more = self._over_links(entry.links, more, new)
        elif entry.link is not None:
            link, count = entry.link, entry.streams
            given = link.circuits
            if given * self._port_gbps < link.gbps + count * more:
                left, other = self._ports[link.a], self._ports[link.b]
                if other < left:
                    left = other
                if not new and link.lit - given < left:
                    left = link.lit - given if link.lit > given else 0
                fits = ((given + left) * self._port_gbps - link.gbps) / count
                if fits < more:
                    more = fits
        if new and had + more < most - tiny:
            entry.is_short = True
        if more <= tiny or had + more < least_gbps:
            return
        self._take(entry, more)

    def _over_links(self, links: Sequence[tuple[Link, int]], gbps: float, new: bool) -> float:
        """The largest rate up to `gbps` for a job with several links: one circuit after the other to the link
        that limits.
        """
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
        entry.gbps += gbps
        if self._bounded:
            switch = self._switch
            for unit, count in entry.load.switches:
                switch[unit] -= count * gbps
        if entry.link is None:
            return
        port_gbps, ports = self._port_gbps, self._ports
        for link, count in entry.links or ((entry.link, entry.streams),):
            link.gbps = used = link.gbps + count * gbps
            had = link.circuits
            if not had or used > (had + SLACK) * port_gbps:
                link.circuits = circuits = int(used / port_gbps - SLACK) + 1
                ports[link.a] -= circuits - had
                ports[link.b] -= circuits - had
