"""The network during a job: which units circuits joined when (by timetables, by hand and by plans), and so
which links the job's traffic used. Pure. Used by the bound and the notes.

Times are of CLOCK_MONOTONIC, in seconds.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from testbed.aggregation.system import Layout
from testbed.messages.coding import plain
from testbed.messages.controller import CrossedFrames, LinksDown, NetworkLight, ReconfigurationEvent
from testbed.ocs.circuits import Circuit, carrying, circuit
from testbed.ocs.routes import next_hops
from testbed.ocs.routing import RoutingPlan, at_best
from testbed.ocs.timetable import Timetable, TimetableRun, parse
from testbed.ocs.using import over_core, used
from testbed.topology import addresses
from testbed.topology.addresses import parse_optical_port
from testbed.topology.units import Unit, UnitPair
from testbed.wire.places import AT_ONCE

ALWAYS = ((0.0, 1.0),)  # windows of a pair that is always joined; the period is 1 s


@dataclass(frozen=True, slots=True)
class Windows:
    """A stretch of time, and the windows of each period in which a pair of units is joined by light. The
    first period begins at `origin_s`.
    """

    began_s: float
    ended_s: float
    origin_s: float
    period_s: float
    open: tuple[tuple[float, float], ...]

    @property
    def share(self) -> float:
        return sum(end - begin for begin, end in self.open) / self.period_s

    def lit_s(self, at_s: float) -> float:
        """Return the lit time between the origin and `at_s`."""
        turns, phase_s = divmod(at_s - self.origin_s, self.period_s)
        inside = sum(min(max(phase_s - begin, 0.0), end - begin) for begin, end in self.open)
        return turns * self.share * self.period_s + inside

    def when_s(self, lit_s: float) -> float:
        """Return the time at which `lit_s` of lit time have passed since the origin."""
        turns, rest_s = divmod(lit_s, self.share * self.period_s)
        for begin, end in self.open:
            if rest_s <= end - begin:
                return self.origin_s + turns * self.period_s + begin + rest_s
            rest_s -= end - begin
        return self.origin_s + (turns + 1) * self.period_s


@dataclass(frozen=True, slots=True)
class Light:
    """The light between two units: consecutive stretches, the last without an end. `circuits` is the largest
    number of direct circuits at any time.
    """

    stretches: tuple[Windows, ...]
    circuits: int = 1

    @property
    def is_constant(self) -> bool:
        return all(stretch.open == ALWAYS for stretch in self.stretches)

    @property
    def is_ever(self) -> bool:
        """Return whether light keeps returning, so that everything is sent eventually."""
        return self.stretches[-1].share > 0

    def through_s(self, from_s: float, needed_s: float) -> float:
        """Return the time at which `needed_s` of lit time have passed since `from_s`; without light, `from_s
        + needed_s`.
        """
        if not self.is_ever:
            return from_s + needed_s
        first = max(0, bisect_right([each.began_s for each in self.stretches], from_s) - 1)
        for stretch in self.stretches[first:]:
            began_s = max(from_s, stretch.began_s)
            so_far_s = stretch.lit_s(began_s)
            there_s = (
                stretch.lit_s(stretch.ended_s) - so_far_s if math.isfinite(stretch.ended_s) else math.inf
            )
            if stretch.share and needed_s <= there_s:
                return max(began_s, stretch.when_s(so_far_s + needed_s))
            needed_s -= max(there_s, 0.0) if stretch.share else 0.0
        return from_s + needed_s

    def share(self, began_s: float, ended_s: float) -> float:
        """Return the share of this time in which the units were joined."""
        lit_s = 0.0
        for stretch in self.stretches:
            begin_s, end_s = max(began_s, stretch.began_s), min(ended_s, stretch.ended_s)
            if end_s > begin_s and stretch.share:
                lit_s += stretch.lit_s(end_s) - stretch.lit_s(begin_s)
        return lit_s / max(ended_s - began_s, 1e-9)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A stretch of time with the same circuits and dark ports, or with the same timetable. `dark` also has
    the optical ports and links to the core that are down, `down` these alone.
    """

    began_s: float
    ended_s: float
    circuits: frozenset[Circuit]
    dark: frozenset[str] = frozenset()
    table: Timetable | None = None
    origin_s: float = 0.0
    down: frozenset[str] = frozenset()

    def lit(self) -> Iterator[frozenset[Circuit]]:
        """Yield the circuits that are lit at the same time, of each matching if a timetable runs."""
        if self.table is None:
            yield carrying(self.circuits, self.dark)
        else:
            for matching in self.table.without(self.dark).matchings:
                yield matching.circuits

    def open(self, pair: UnitPair, units: tuple[Unit, ...]) -> Iterator[tuple[float, float, int]]:
        """Yield begin and end, within a period, of each window in which traffic of a pair of units can leave,
        and over how many circuits at once.
        """
        if self.table is None:
            ways = next_hops(carrying(self.circuits, self.dark), units)[pair[0]].get(pair[1])
            if ways:
                yield 0.0, 1.0, len(ways)
            return
        table = self.table.without(self.dark)
        plan = _plan(units, table)
        ends_ns = [*(matching.start_ns for matching in table.matchings[1:]), table.period_ns]
        for number, end_ns in enumerate(ends_ns):
            ports, count = plan.leaving(number, pair)
            if ports:
                staying = (end for each in table.staying(number) for end in each.ports)
                dark_ns = table.guard_ns if ports.isdisjoint(staying) else 0
                yield (table.matchings[number].start_ns + dark_ns) / 1e9, end_ns / 1e9, count

    @property
    def routing(self) -> str:
        return self.table.routing if self.table else AT_ONCE

    @property
    def period_s(self) -> float:
        return self.table.period_ns / 1e9 if self.table else 1.0


@lru_cache(8)  # a job's links are asked for pair by pair
def _plan(units: tuple[Unit, ...], table: Timetable) -> RoutingPlan:
    return at_best(units, table)


@dataclass(frozen=True, slots=True)
class LitNetwork:
    """The network during a job, from `began_s` on. `lost`: the frames lost in the dark and without a circuit,
    by optical port, or by unit if no circuit led to the goal. `unknown`: why the network is not known.
    """

    units: tuple[Unit, ...] = ()
    has_core: bool = False
    stretches: tuple[_Stretch, ...] = ()
    lost: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    timetables: tuple[Timetable, ...] = ()
    unknown: str | None = None

    def lights(self, pairs: Iterable[UnitPair]) -> dict[UnitPair, Light]:
        """Return the light of each pair of units that was not joined throughout."""
        lights = {}
        for pair in pairs:
            light = self._light(pair) if pair[0] != pair[1] and self.stretches and not self.has_core else None
            if light and not light.is_constant:
                lights[pair] = light
        return lights

    def apart_s(self, pairs: Iterable[UnitPair], until_s: float) -> dict[str, float]:
        """Return, by the pair's name, how long until `until_s` each pair of units was not joined."""
        lights = self.lights(pairs) if self.stretches else {}
        began_s = self.stretches[0].began_s if self.stretches else until_s
        lasted = {
            "-".join(map(addresses.unit_name, sorted(pair))): (1 - light.share(began_s, until_s))
            * (until_s - began_s)
            for pair, light in lights.items()
        }
        return {name: lasted_s for name, lasted_s in lasted.items() if lasted_s > 0}

    def down_s(self, until_s: float) -> dict[str, float]:
        """Return how long until `until_s` each link that was down was so."""
        lasted: dict[str, float] = {}
        for stretch in self.stretches:
            for link in sorted(stretch.down):
                lasted_s = max(0.0, min(stretch.ended_s, until_s) - stretch.began_s)
                lasted[link] = lasted.get(link, 0.0) + lasted_s
        return {link: lasted_s for link, lasted_s in lasted.items() if lasted_s > 0}

    def _light(self, pair: UnitPair) -> Light:
        windows, most = [], 1
        for stretch in self.stretches:
            open_: list[tuple[float, float]] = []
            for begin_s, end_s, count in stretch.open(pair, self.units):
                most = max(most, count)
                if open_ and open_[-1][1] == begin_s:
                    open_[-1] = (open_[-1][0], end_s)
                else:
                    open_.append((begin_s, end_s))
            windows.append(
                Windows(stretch.began_s, stretch.ended_s, stretch.origin_s, stretch.period_s, tuple(open_))
            )
        return Light(tuple(windows), most)

    def links(self, layout: Layout) -> frozenset[str]:
        """Return the links that a job's traffic used at some time: of its hosts, of their racks if it has
        hosts in others, of optical ports, and to a core.
        """
        hosts = sorted(layout.hosts())
        racks = {(unit, addresses.rack_of(host)) for unit, host in hosts}
        links = {addresses.host_name(*host) for host in hosts}
        if len(racks) > 1:
            tors = [addresses.tor_of(*host) for host in hosts if addresses.rack_of(host[1])]
            links |= {addresses.tor_name(tor) for tor in tors}
        return frozenset(links.union(*self.ways(layout.demands).values()))

    def ways(self, pairs: Iterable[UnitPair]) -> dict[UnitPair, frozenset[str]]:
        """Return, by pair of units, the optical ports and core links that their traffic used at some time.
        Parallel circuits all count.
        """
        links: dict[UnitPair, set[str]] = {pair: set() for pair in pairs}
        numbered = dict(enumerate(links))
        asked = {number: (pair,) for number, pair in numbered.items()}
        lit = {(lit, stretch.dark, stretch.routing) for stretch in self.stretches for lit in stretch.lit()}
        for circuits, down, routing in lit:
            for number, taken in used(circuits, self.units, asked, self.has_core, down).items():
                pair = numbered[number]
                if routing == "direct":
                    taken = frozenset(each for each in circuits if set(each.units) == set(pair))
                elif routing not in (AT_ONCE, "opera"):
                    taken = circuits  # any unit may pass on what others send
                links[pair] |= {end for each in taken for end in each.ports}
            if self.has_core:
                for pair, ways in links.items():
                    crossed = over_core(circuits, self.units, [pair], down)
                    ways |= {addresses.core_link_name(unit) for unit in crossed}
        return {pair: frozenset(ways) for pair, ways in links.items()}

    def losses(self, layout: Layout) -> dict[str, tuple[int, int]]:
        """Return the frames lost in the dark and without a circuit on a job's paths, by port and by unit."""
        ports = self.links(layout)
        units = {addresses.unit_name(unit) for pair in layout.demands for unit in pair}
        return {
            name: lost
            for name, lost in self.lost.items()
            if any(lost) and (name in ports or name in units or _unit_name(name) in units)
        }


def _unit_name(port: str) -> str:
    return port.partition("o")[0]


def network(
    units: Sequence[Unit],
    has_core: bool,
    before: NetworkLight,
    after: NetworkLight,
    events: Sequence[ReconfigurationEvent],
    began_s: float,
    unix_minus_s: float,
) -> LitNetwork:
    """Reconstruct the network from `began_s` on. `before` and `after` are the controller's answers (`light`)
    at a job's begin and end, `events` the reconfigurations between them; their clock is ahead by
    `unix_minus_s`.
    """
    runs = [
        TimetableRun(parse(plain(run.schedule), None), run.began_ns, run.ended_ns) for run in after.timetables
    ]
    runs = [run for run in runs if run.ended_ns is None or run.ended_ns / 1e9 > began_s]
    circuits = frozenset(circuit(*pair) for pair in before.circuits)
    points: list[tuple[float, frozenset[Circuit], frozenset[str]]] = [(began_s, circuits, frozenset())]
    for event in events:
        dark_s = event.time - unix_minus_s
        removed, added = (frozenset(circuit(*p) for p in pairs) for pairs in (event.removed, event.added))
        circuits = (circuits - removed) | added
        points.append((dark_s, circuits, frozenset(event.ports)))
        lit_ms = event.measured_ms if event.measured_ms is not None else event.asked_ms
        points.append((dark_s + lit_ms / 1e3, circuits, frozenset()))
    points.sort(key=lambda point: point[0])
    ends = [point[0] for point in points[1:]] + [math.inf]
    by_hand = [
        _Stretch(max(at_s, began_s), end_s, lit, dark)
        for (at_s, lit, dark), end_s in zip(points, ends, strict=True)
        if end_s > max(at_s, began_s)
    ]
    lost = {
        name: (counts.dark - then.dark, counts.unlit - then.unlit)
        for name, counts in after.crossings.items()
        for then in [before.crossings.get(name, CrossedFrames(0, 0, 0))]
    }
    stretches = tuple(_with_links(_with_timetables(by_hand, runs, began_s), after.links))
    return LitNetwork(tuple(units), has_core, stretches, lost, tuple(run.table for run in runs))


def _with_timetables(
    by_hand: Sequence[_Stretch], runs: Sequence[TimetableRun], began_s: float
) -> Iterator[_Stretch]:
    """Yield stretches of circuits set by hand, and between them those in which a timetable ran."""
    now_s = began_s
    for run in runs:
        from_s = max(run.began_ns / 1e9, began_s)
        until_s = math.inf if run.ended_ns is None else run.ended_ns / 1e9
        yield from _cut(by_hand, now_s, from_s)
        yield _Stretch(from_s, until_s, frozenset(), frozenset(), run.table, run.began_ns / 1e9)
        now_s = until_s
    yield from _cut(by_hand, now_s, math.inf)


def _with_links(stretches: Iterable[_Stretch], changes: Sequence[LinksDown]) -> Iterator[_Stretch]:
    """Cut stretches where links went down or came back: what is down is dark."""
    times = [change.at_ns / 1e9 for change in changes]
    for each in stretches:
        first, last = bisect_right(times, each.began_s), bisect_left(times, each.ended_s)
        begins = [each.began_s, *times[first:last]]
        for number, (begin_s, end_s) in enumerate(itertools.pairwise([*begins, each.ended_s]), first):
            down = changes[number - 1].down if number else ()
            dark = each.dark.union(down)
            yield replace(each, began_s=begin_s, ended_s=end_s, dark=dark, down=frozenset(down))


def _cut(stretches: Sequence[_Stretch], from_s: float, until_s: float) -> Iterator[_Stretch]:
    for each in stretches:
        begin_s, end_s = max(each.began_s, from_s), min(each.ended_s, until_s)
        if end_s > begin_s:
            yield _Stretch(begin_s, end_s, each.circuits, each.dark)


def pair_of(sender: str, receiver: str) -> UnitPair:
    """Return two units, given by name, the smaller first."""
    a, b = sorted(parse_optical_port(f"{name}o1")[0] for name in (sender, receiver))
    return a, b
