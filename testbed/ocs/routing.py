"""Choose how frames reach units while a timetable runs: by a circuit of their own only, over several circuits
of a matching, or by another unit that a later matching joins to the goal. Pure.

A `Routing` says, for each matching, to which units a frame may leave. It may also be a user's class.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit
from testbed.ocs.routes import Hops, Numbers, Ports, joined, next_hops
from testbed.ocs.timetable import Timetable
from testbed.topology.addresses import optical_port_name, unit_name
from testbed.topology.units import Unit, UnitPair
from testbed.wire.places import AT_ONCE, ROUTINGS, Frames

_FAR = np.int64(1) << 60
_HOP = 1 << 12  # a time step is this many hops: of equally early ways, the one with the fewest is taken


@dataclass(frozen=True, slots=True)
class TimetableView:
    """The timetable as a routing sees it. `neighbours` has, for each matching, the units that circuits join
    to each unit; `begins_ns` when each matching begins in a period.
    """

    units: tuple[Unit, ...]
    neighbours: tuple[Mapping[Unit, tuple[Unit, ...]], ...]
    begins_ns: tuple[int, ...]
    period_ns: int
    guard_ns: int

    def lasts_ns(self, matching: int) -> int:
        """Return how long a matching lasts, with its guard time."""
        return (*self.begins_ns[1:], self.period_ns)[matching] - self.begins_ns[matching]


class Routing:
    """Decide for each matching to which units frames may leave. Subclasses may be a user's own; they are made
    with the schedule as their only argument.
    """

    treats: ClassVar[tuple[Frames, ...]] = (Frames.OWN,)
    """The kinds of frames for which `towards` is asked. Those that are missing go as `OWN`; without `SPARE`
    no frame leaves by light that nothing else needs.
    """

    def __init__(self, schedule: TimetableView) -> None:
        self.schedule = schedule

    def towards(self, frames: Frames, matching: int, unit: Unit, goal: Unit) -> Iterable[Unit]:
        """Return the units, all joined to `unit` in the matching, to one of which frames for `goal` leave; no
        unit: they wait for another matching. Of `SPARE` frames `goal` is the neighbour that is asked about,
        and is returned, or not.
        """
        raise NotImplementedError


class RoutingPlan:
    """The first hops of each kind of frames in each matching; kinds that go as `OWN` are left out. `known`
    has the pairs of units of which frames of the first reach the second, if the hops alone do not say it.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        kinds: Mapping[Frames, tuple[Hops, ...]],
        known: Collection[UnitPair] | None = None,
    ) -> None:
        self.units, self.kinds, self._known = tuple(sorted(units)), dict(kinds), known

    def reached(self) -> set[UnitPair]:
        """Return the pairs of units of which frames of the first reach the second."""
        if self._known is not None:
            return set(self._known)
        size = len(self.units)
        base, near = np.zeros((size, size), bool), np.eye(size, dtype=bool)
        for frames, by_matching in self.kinds.items():
            into = near if frames == Frames.SPARE else base
            for hops in by_matching:
                into |= hops.numbers > 0
        rows, goals = np.nonzero(near.astype(int) @ base.astype(int))
        pairs = ((self.units[row], self.units[goal]) for row, goal in zip(rows, goals, strict=True))
        return {pair for pair in pairs if pair[0] != pair[1]}

    def leaving(self, matching: int, pair: UnitPair) -> tuple[frozenset[str], int]:
        """Return the optical ports by which frames of either unit of a pair for the other may leave it in a
        matching, and how many of them the one with more has.
        """
        there, back = self._names(matching, *pair), self._names(matching, *pair[::-1])
        return there | back, max(len(there), len(back))

    def _names(self, matching: int, unit: Unit, goal: Unit) -> frozenset[str]:
        ports = set[int]()
        for frames, hops in self.kinds.items():
            if frames == Frames.SPARE:
                ports.update(*hops[matching][unit].values())
            elif frames != Frames.CARRIED:
                ports.update(hops[matching][unit].get(goal, ()))
        return frozenset(optical_port_name(unit, port) for port in ports)


def _at_once(
    units: Sequence[Unit], table: Timetable, has_core: bool = False, down: Collection[str] = ()
) -> RoutingPlan:
    hops = (next_hops(each.circuits, units, has_core, down) for each in table.matchings)
    return RoutingPlan(units, {Frames.OWN: tuple(hops)})


def _direct(units: Sequence[Unit], table: Timetable) -> RoutingPlan:
    return RoutingPlan(units, {Frames.OWN: direct_hops(units, table)})


def direct_hops(units: Sequence[Unit], table: Timetable) -> tuple[Hops, ...]:
    """Return the first hops of direct circuits alone, by matching."""
    order = tuple(sorted(units))
    return tuple(_chosen(order, each.circuits, _to_itself) for each in table.matchings)


def _vlb(units: Sequence[Unit], table: Timetable) -> RoutingPlan:
    direct = direct_hops(units, table)
    return RoutingPlan(units, {Frames.OWN: direct, Frames.SPARE: direct})


def _opera(units: Sequence[Unit], table: Timetable) -> RoutingPlan:
    return RoutingPlan(units, {**_at_once(units, table).kinds, Frames.BULK: direct_hops(units, table)})


def _hoho(units: Sequence[Unit], table: Timetable) -> RoutingPlan:
    """Plan the way that arrives first, if a frame leaves its unit when a matching begins; of equally early
    ones, that of the fewest hops.
    """
    order = tuple(sorted(units))
    ends_ns = [*(each.start_ns for each in table.matchings[1:]), table.period_ns]
    graphs = [joined(each.circuits, order) for each in table.matchings]
    cost = np.full((len(order), len(order)), _FAR)  # of a frame at a unit (row) for a goal (column)
    np.fill_diagonal(cost, 0)
    hops: list[Hops] = []
    before = None
    while before is None or (cost != before).any():  # until no period finds a way that begins in another
        before, hops = cost, []
        for number in reversed(range(len(graphs))):
            lasts_ns = ends_ns[number] - table.matchings[number].start_ns
            cost, by = _through(cost, lasts_ns // 1000 * _HOP, order, graphs[number])
            hops.append(_as_hops(order, graphs[number], by))
    return RoutingPlan(units, {Frames.OWN: tuple(reversed(hops))})


def _through(
    after: Numbers, lasts: int, order: Sequence[Unit], graph: tuple[Mapping[Unit, Sequence[Unit]], Ports]
) -> tuple[Numbers, Numbers]:
    """Return the costs at the beginning of a matching, by those at its end; and the row of the unit to which
    frames leave, by row of unit and of goal (-1: they wait).
    """
    row = {unit: number for number, unit in enumerate(order)}
    cost = np.minimum(after + lasts, _FAR)
    np.fill_diagonal(cost, 0)
    by = np.full(cost.shape, -1, np.int32)
    edges = [(row[unit], row[other]) for unit, others in graph[0].items() for other in others]
    is_changed = True
    while is_changed:
        is_changed = False
        for unit, other in edges:
            better = cost[other] + 1 < cost[unit]
            if better.any():
                cost[unit][better] = cost[other][better] + 1
                by[unit][better] = other
                is_changed = True
    return cost, by


def _as_hops(
    order: tuple[Unit, ...], graph: tuple[Mapping[Unit, Sequence[Unit]], Ports], by: Numbers
) -> Hops:
    bundles: dict[tuple[int, ...], int] = {(): 0}
    numbers = np.zeros(by.shape, np.int32)
    for unit, goal in zip(*np.nonzero(by >= 0), strict=True):
        ports = tuple(graph[1][order[unit], order[by[unit, goal]]])
        numbers[unit, goal] = bundles.setdefault(ports, len(bundles))
    numbers.setflags(write=False)
    return Hops(order, tuple(bundles), numbers)


def _to_itself(unit: Unit, goal: Unit, neighbours: Collection[Unit]) -> Collection[Unit]:
    return (goal,) if goal in neighbours else ()


def _chosen(
    order: tuple[Unit, ...],
    circuits: Iterable[Circuit],
    choose: Callable[[Unit, Unit, Collection[Unit]], Collection[Unit]],
) -> Hops:
    """Return the hops of a matching by a choice among a unit's neighbours for each goal."""
    near, ports = joined(circuits, order)
    row = {unit: number for number, unit in enumerate(order)}
    bundles: dict[tuple[int, ...], int] = {(): 0}
    numbers = np.zeros((len(order), len(order)), np.int32)
    for unit in order:
        goals = near[unit] if choose is _to_itself else order
        for goal in goals:
            to = sorted(choose(unit, goal, near[unit]))
            by = tuple(itertools.chain.from_iterable(ports[unit, each] for each in to))
            numbers[row[unit], row[goal]] = bundles.setdefault(by, len(bundles))
    numbers.setflags(write=False)
    return Hops(order, tuple(bundles), numbers)


_PLANNERS: Mapping[str, Callable[[Sequence[Unit], Timetable], RoutingPlan]] = dict(
    zip(ROUTINGS, (_at_once, _direct, _vlb, _hoho, _opera), strict=True)
)
"""`at-once`: over the circuits of the matching in force, several in sequence if necessary. `direct`: by
circuits to the goal only. `vlb`: so, and what the next direct circuit has no time for by another unit (as
RotorNet). `hoho`: by the units and matchings that arrive first (hop-on, hop-off). `opera`: at once, and bulk
traffic by direct circuits.
"""


def view_of(units: Sequence[Unit], table: Timetable) -> TimetableView:
    """Return the schedule that a routing is made with."""
    near = (joined(each.circuits, units)[0] for each in table.matchings)
    return TimetableView(
        tuple(sorted(units)),
        tuple({unit: tuple(others) for unit, others in each.items()} for each in near),
        tuple(each.start_ns for each in table.matchings),
        table.period_ns,
        table.guard_ns,
    )


def planned(units: Sequence[Unit], table: Timetable, has_core: bool = False) -> RoutingPlan:
    """Plan a timetable's routing. RequestError for another than `at-once` where a core joins the units, and
    for a user's whose hops (`Timetable.hops`) are missing, leave by no circuit, or loop.
    """
    if table.routing == AT_ONCE:
        return _at_once(units, table, has_core)
    if has_core:
        raise RequestError(
            f"routing: {table.routing}: a core joins these units as well; {AT_ONCE} is accepted"
        )
    if table.routing in _PLANNERS:
        return _PLANNERS[table.routing](units, table)
    if not table.hops:
        raise RequestError(f"routing: {table.routing}: it lets every frame wait for ever")
    return _given(units, table)


def at_best(
    units: Sequence[Unit], table: Timetable, has_core: bool = False, down: Collection[str] = ()
) -> RoutingPlan:
    """Plan a timetable's routing without links that are down. Where the hops of a user's routing are unknown,
    frames leave by any circuit, and reach what all circuits together join.
    """
    table = table.without(down)
    if table.routing == AT_ONCE:
        return _at_once(units, table, has_core, down)
    if table.routing in _PLANNERS or table.hops:
        return planned(units, table, has_core)
    together = frozenset[Circuit]().union(*(each.circuits for each in table.matchings))
    hops = next_hops(together, units)
    known = {(unit, goal) for unit in hops for goal in hops[unit]}
    return RoutingPlan(units, _vlb(units, table).kinds, known)


def _given(units: Sequence[Unit], table: Timetable) -> RoutingPlan:
    """RoutingPlan by the hops that come with a timetable."""
    order = tuple(sorted(units))
    by_kind: dict[Frames, list[dict[tuple[Unit, Unit], tuple[Unit, ...]]]] = {
        Frames.OWN: [{} for _ in table.matchings]
    }
    for hop in table.hops:
        for unit in (hop.unit, hop.goal):
            if unit not in order:
                raise RequestError(f"routing: unit {unit}; {order[0]} to {order[-1]} are accepted")
        rows = by_kind.setdefault(Frames(hop.frames), [{} for _ in table.matchings])
        rows[hop.matching][hop.unit, hop.goal] = hop.to
    kinds = {
        frames: tuple(
            _chosen(order, each.circuits, _by_rows(rows, frames, number))
            for number, (each, rows) in enumerate(zip(table.matchings, by_matching, strict=True))
        )
        for frames, by_matching in by_kind.items()
    }
    _check_loops(by_kind, len(table.matchings))
    return RoutingPlan(units, kinds, _reached(by_kind))


def _by_rows(
    rows: Mapping[tuple[Unit, Unit], tuple[Unit, ...]], frames: Frames, matching: int
) -> Callable[[Unit, Unit, Collection[Unit]], Collection[Unit]]:
    def choose(unit: Unit, goal: Unit, near: Collection[Unit]) -> Collection[Unit]:
        to = rows.get((unit, goal), ())
        for each in to:
            if each not in near:
                raise RequestError(
                    f"routing: in matchings[{matching}], {frames.name.lower()} frames of {unit_name(unit)} "
                    f"for {unit_name(goal)} go to {unit_name(each)}, to which no circuit leads; "
                    f"{', '.join(map(unit_name, near)) or 'no unit'} is accepted"
                )
        return to

    return choose


_Rows = Mapping[Frames, Sequence[Mapping[tuple[Unit, Unit], tuple[Unit, ...]]]]


def _by_source(by_kind: _Rows, count: int) -> list[dict[tuple[Unit, Unit], tuple[Unit, ...]]]:
    """Return, by matching, the units to which frames may leave their own unit, by that and the goal."""
    steps: list[dict[tuple[Unit, Unit], tuple[Unit, ...]]] = [{} for _ in range(count)]
    goals = {
        goal
        for frames, rows in by_kind.items()
        if frames != Frames.SPARE
        for each in rows
        for _, goal in each
    }
    for frames, rows in by_kind.items():
        for number, each in enumerate(rows):
            for (unit, goal), to in each.items() if frames != Frames.CARRIED else ():
                for way in goals - {unit} if frames == Frames.SPARE else {goal}:
                    steps[number][unit, way] = (*steps[number].get((unit, way), ()), *to)
    return steps


def _reached(by_kind: _Rows) -> set[UnitPair]:
    """Return the pairs of units of which frames of the first reach the second in some sequence of matchings,
    carried from unit to unit.
    """
    carried = by_kind.get(Frames.CARRIED, by_kind[Frames.OWN])
    before: dict[tuple[Unit, Unit], set[Unit]] = {}  # units that lead to a unit, by that and the goal
    for rows in carried:
        for (unit, goal), to in rows.items():
            for each in to:
                before.setdefault((each, goal), set()).add(unit)
    pairs = set[UnitPair]()
    for rows in _by_source(by_kind, len(carried)):
        for (unit, goal), to in rows.items():
            leading, front = {goal}, {goal}
            while front:
                front = {other for each in front for other in before.get((each, goal), ())} - leading
                leading |= front
            if not leading.isdisjoint(to):
                pairs.add((unit, goal))
    return pairs


def _check_loops(by_kind: _Rows, count: int) -> None:
    """Raise RequestError if frames that always leave in time could return to a unit for ever."""
    carried = by_kind.get(Frames.CARRIED, by_kind[Frames.OWN])
    own = _by_source(by_kind, count)
    for source, goal in sorted({pair for rows in own for pair in rows}):
        by_matching = [
            {unit: to for (unit, of), to in rows.items() if of == goal and unit != source}
            | ({source: mine[source, goal]} if (source, goal) in mine else {})
            for rows, mine in zip(carried, own, strict=True)
        ]
        seen: set[tuple[int, Unit]] = set()  # from which all ways end
        for matching in range(count):
            _follow(by_matching, goal, (matching, source), seen)


def _follow(
    by_matching: Sequence[Mapping[Unit, tuple[Unit, ...]]],
    goal: Unit,
    start: tuple[int, Unit],
    seen: set[tuple[int, Unit]],
) -> None:
    """Follow all ways of a frame depth first, and raise RequestError at one that closes a loop with a
    hop in it. Waiting for ever is none.
    """

    def steps(at: tuple[int, Unit]) -> list[tuple[int, Unit]]:
        matching, unit = at
        if unit == goal:
            return []
        to = by_matching[matching].get(unit, ())
        return [(matching, each) for each in to] or [((matching + 1) % len(by_matching), unit)]

    if start in seen:
        return
    path, on_path, waiting = [start], {start}, [steps(start)]
    while path:
        if not waiting[-1]:
            waiting.pop()
            at = path.pop()
            on_path.remove(at)
            seen.add(at)
            continue
        following = waiting[-1].pop()
        if following in on_path:
            around = [unit for _, unit in path[path.index(following) :]]
            if len(set(around)) > 1:
                names = " to ".join(unit_name(unit) for unit, _ in itertools.groupby([*around, around[0]]))
                raise RequestError(
                    f"routing: frames for {unit_name(goal)} go from {names} for ever; a routing that brings "
                    f"each frame to its goal, or lets it wait, is accepted"
                )
        elif following not in seen:
            path.append(following)
            on_path.add(following)
            waiting.append(steps(following))
