"""Decide which of a job's sources are permanent stragglers and are left out until they return (section 5 of
the Trio paper, last paragraph; docs/trio.md). Pure: observations go in, measures come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from testbed.aggregation.forest import Node
from testbed.systems.trio.standing import Reached, TreeStanding, beyond
from testbed.topology.places import Place


@dataclass(frozen=True, slots=True)
class Departure:
    """A source that left at a place, or returned there: a worker by its number, or a place, with all
    `workers` below it. `events` counts the consecutive checks that missed it; 0 if it left because all
    sources of a place had left. `made` counts the place's completed blocks by then.
    """

    source: int | Place
    at: Place
    is_back: bool
    made: int
    workers: tuple[int, ...]
    events: int = 0


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures to apply after a check, in this order: the progress of sources that are places, by place
    and number; the floors to raise; and the sources (bitmaps) that leave at each place.
    """

    heard: Mapping[tuple[Place, int], Reached]
    floors: Mapping[Place, Reached]
    leave: Mapping[Place, int]


@dataclass(slots=True)
class Leaving:
    """The periodic checks of one tree. An *event* is a check at which blocks had waited for a source in vain
    and nothing had come from it since the previous check. After `after` events in a row it is a permanent
    straggler and leaves. Anything that it sends makes it a temporary one again. `window` is the number of
    blocks that a source has under way, of vectors and of votes.
    """

    top: Node
    after: int
    window: tuple[int, int]
    _events: dict[tuple[Place, int], int] = field(default_factory=dict)
    _reached: dict[tuple[Place, int], Reached] = field(default_factory=dict)
    _out: dict[Place, int] = field(default_factory=dict)

    def look(self, seen: Mapping[Place, TreeStanding]) -> tuple[Measures, list[Departure]]:
        """Perform a check: return the measures, and the sources that left or returned. Places without
        observations keep their state.
        """
        nodes = {node.place: node for node in self.top.nodes()}
        departures = self._returns(seen)
        self._out = {place: standing.out for place, standing in seen.items()}
        before = dict(self._out)
        for place, standing in seen.items():
            for source, reached in standing.reached.items():
                key = place, source
                came = self._reached.get(key) != reached
                self._reached[key] = reached
                if came or self._out[place] >> source & 1:
                    self._events[key] = 0
                elif standing.lacked >> source & 1:
                    self._events[key] = self._events.get(key, 0) + 1
        for place in reversed(list(nodes)):  # children first
            for source in sorted(seen[place].reached) if place in seen else ():
                if self._events.get((place, source), 0) >= self.after:
                    self._take_out(nodes, seen, place, source)
        leave = {place: out & ~before[place] for place, out in self._out.items() if out & ~before[place]}
        for place, sources in leave.items():
            for source in (each for each in seen[place].reached if sources >> each & 1):
                events = self._events.pop((place, source), 0)
                who, below = self._who(nodes[place], source)
                departures.append(Departure(who, place, False, seen[place].made, below, events))
        heard, floors = self._progress(nodes, seen)
        return Measures(heard, floors, leave), departures

    def _returns(self, seen: Mapping[Place, TreeStanding]) -> list[Departure]:
        nodes = {node.place: node for node in self.top.nodes()}
        departures = []
        for place, standing in seen.items():
            for source in standing.reached:
                if (self._out.get(place, 0) & ~standing.out) >> source & 1:
                    who, below = self._who(nodes[place], source)
                    departures.append(Departure(who, place, True, standing.made, below))
        return departures

    def _take_out(
        self, nodes: Mapping[Place, Node], seen: Mapping[Place, TreeStanding], place: Place, source: int
    ) -> None:
        """Remove a source; if its place then has none left, remove that place at its parent; but never the
        last source of the top.
        """
        above, out = self.top.above(), dict(self._out)
        while True:
            out[place] = out.get(place, 0) | 1 << source
            if any(not out[place] >> each & 1 for each in seen[place].reached):
                break
            if place not in above or above[place].place not in seen:
                return
            place, source = above[place].place, nodes[place].number
        self._out = out

    @staticmethod
    def _who(node: Node, source: int) -> tuple[int | Place, tuple[int, ...]]:
        """Return the source of this number, and the workers below it."""
        for child in node.below:
            if child.number == source:
                return child.place, tuple(child.ranks())
        return source, (source,)

    def _progress(
        self, nodes: Mapping[Place, Node], seen: Mapping[Place, TreeStanding]
    ) -> tuple[dict[tuple[Place, int], Reached], dict[Place, Reached]]:
        """Return the progress of places as sources, derived from the places below them; and the resulting
        floors: before these, all sources, absent ones included, have all results.
        """
        least: dict[Place, Reached] = {}
        heard: dict[tuple[Place, int], Reached] = {}
        for place in reversed(list(nodes)):
            if place not in seen:
                continue
            reached = dict(seen[place].reached)
            for child in nodes[place].below:
                if child.place in least and child.number in reached:
                    said, theirs = reached[child.number], least[child.place]
                    further = _later(said[0], theirs[0]), _later(said[1], theirs[1])
                    if further != said:
                        reached[child.number] = heard[place, child.number] = further
            if reached:
                spaces = list(zip(*reached.values(), strict=True))
                least[place] = _earliest(spaces[0]), _earliest(spaces[1])
        floors = {
            place: ((data - self.window[0]) % 2**32, (votes - self.window[1]) % 2**32)
            for place, (data, votes) in least.items()
        }
        return heard, floors


def _later(block: int, other: int) -> int:
    return block if beyond(block, other) >= 0 else other


def _earliest(numbers: tuple[int, ...]) -> int:
    first = numbers[0]
    return min(numbers, key=lambda number: beyond(number, first))
