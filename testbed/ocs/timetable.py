"""Parse and represent timetables: matchings of optical ports that follow each other by the clock alone and
repeat. Pure.

Each matching begins with a dark guard time, in which mirrors and transceivers would move.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit, carrying, checked
from testbed.topology.addresses import parse_optical_port
from testbed.topology.fields import shown
from testbed.topology.units import Unit
from testbed.wire.places import AT_ONCE, MAX_MATCHINGS, ROUTINGS, Frames

SHORTEST_MS, LONGEST_MS = 1.0, 60_000.0
USERS = "FILE.py:CLASS"
_KEYS, _MATCHING_KEYS = ("period_ms", "guard_ms", "routing", "matchings"), ("start_ms", "circuits")
_CLASS = re.compile(r"[^\x00-\x1f]{1,1000}:[A-Za-z_][A-Za-z0-9_]{0,100}")
_HOPS = "hops"  # of a user's routing: what `testbed circuits schedule` adds


class Hop(NamedTuple):
    """A step that frames for a goal may take in a matching: from a unit to those that circuits join to it. Of
    SPARE frames the goal is the unit that the step leads to.
    """

    frames: Frames
    matching: int
    unit: Unit
    goal: Unit
    to: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """The circuits from a time of the period until the next matching starts."""

    start_ns: int
    circuits: frozenset[Circuit]


@dataclass(frozen=True, slots=True)
class Timetable:
    """Matchings in the order of their starts, the first at 0. At the beginning of each, circuits that were
    not in the one before are dark for `guard_ns`. `hops` are a user's `routing`'s.
    """

    period_ns: int
    guard_ns: int
    matchings: tuple[Matching, ...]
    routing: str = AT_ONCE
    hops: tuple[Hop, ...] = ()

    def without(self, down: Collection[str]) -> Timetable:
        """Return the timetable without circuits of ports that are down."""
        left = (replace(each, circuits=carrying(each.circuits, down)) for each in self.matchings)
        return replace(self, matchings=tuple(left))

    def staying(self, number: int) -> frozenset[Circuit]:
        """Return the circuits of a matching that are in the matching before as well: they are not dark."""
        return self.matchings[number].circuits & self.matchings[number - 1].circuits


@dataclass(frozen=True, slots=True)
class TimetableRun:
    """A timetable, and from when to when it ran, by the monotonic clock; `ended_ns` is None while it runs."""

    table: Timetable
    began_ns: int
    ended_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """A timetable as a data plane stores it: the start of each matching, and its pairs of ports, as peers by
    port number; and the number of its routing, len(ROUTINGS) for a user's.
    """

    period_ns: int
    guard_ns: int
    starts_ns: tuple[int, ...]
    peers: tuple[Mapping[int, int], ...]
    routing: int = 0


def parse(data: Any, ports: Iterable[str] | None) -> Timetable:
    """Parse a user's timetable. `ports` is None where the testbed's ports are not known. RequestError names
    the key, its value and what is accepted.
    """
    _check_keys("schedule", data, _KEYS, _HOPS)
    period_ms = _milliseconds("period_ms", data.get("period_ms"), SHORTEST_MS, LONGEST_MS)
    guard_ms = _milliseconds("guard_ms", data.get("guard_ms", 0), 0.0, period_ms)
    listed = data.get("matchings")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_MATCHINGS:
        count = f"{len(listed)} of them" if isinstance(listed, list) else shown(listed)
        raise RequestError(f"matchings: {count}; a list of 1 to {MAX_MATCHINGS} is accepted")
    starts_ms = []
    for number, matching in enumerate(listed):
        _check_keys(f"matchings[{number}]", matching, _MATCHING_KEYS)
        key = f"matchings[{number}].start_ms"
        starts_ms.append(_milliseconds(key, matching.get("start_ms"), 0.0, period_ms))
    if starts_ms[0]:
        raise RequestError(f"matchings[0].start_ms: {starts_ms[0]:g}; 0 is accepted for the first")
    for number, (start_ms, end_ms) in enumerate(zip(starts_ms, [*starts_ms[1:], period_ms], strict=True)):
        lasts_ms = end_ms - start_ms
        if lasts_ms < SHORTEST_MS:
            raise RequestError(
                f"matchings[{number}].start_ms: {start_ms:g}, {lasts_ms:g} ms before the next; at least "
                f"{SHORTEST_MS:g} ms is accepted"
            )
        if lasts_ms <= guard_ms:
            raise RequestError(
                f"matchings[{number}].start_ms: {start_ms:g}; it lasts {lasts_ms:g} ms, and more than "
                f"guard_ms, {guard_ms:g}, is accepted"
            )
    routing, hops = _routing(data.get("routing", AT_ONCE)), _hops(data.get(_HOPS, ()), len(listed))
    if hops and routing in ROUTINGS:
        raise RequestError(f"{_HOPS}: routing {routing} has its own; {USERS} is accepted with them")
    known = ports if ports is None or isinstance(ports, Mapping) else list(ports)
    matchings = []
    for number, (start_ms, matching) in enumerate(zip(starts_ms, listed, strict=True)):
        try:
            pairs = _pairs(matching.get("circuits"))
            circuits = checked(pairs, _names(pairs) if known is None else known)
        except RequestError as error:
            raise RequestError(f"matchings[{number}].circuits: {error}") from None
        matchings.append(Matching(round(start_ms * 1e6), circuits))
    return Timetable(
        round(period_ms * 1e6),
        round(guard_ms * 1e6),
        tuple(matchings),
        routing,
        tuple(hops),
    )


def as_data(timetable: Timetable) -> dict[str, Any]:
    """Convert a timetable, without the hops of a user's routing, to the data that `parse` reads."""
    return {
        "period_ms": timetable.period_ns / 1e6,
        "guard_ms": timetable.guard_ns / 1e6,
        "matchings": [
            {"start_ms": each.start_ns / 1e6, "circuits": [list(c.ports) for c in sorted(each.circuits)]}
            for each in timetable.matchings
        ],
        "routing": timetable.routing,
    }


def with_hops(data: Mapping[str, Any], hops: Iterable[Hop]) -> dict[str, Any]:
    """Add the hops of a user's routing to the data that `parse` reads."""
    return {**data, _HOPS: [[*hop[:-1], list(hop.to)] for hop in hops]}


def _routing(name: Any) -> str:
    if not isinstance(name, str) or not (name in ROUTINGS or _CLASS.fullmatch(name)):
        raise RequestError(f"routing: {shown(name)}; {', '.join(ROUTINGS)}, {USERS} are accepted")
    return name


def _hops(rows: Any, count: int) -> list[Hop]:
    kinds = [each.value for each in Frames if each != Frames.RESULT]
    hops = []
    for row in rows if isinstance(rows, list | tuple) else [rows]:
        match row:
            case [int(frames), int(matching), int(unit), int(goal), [*to]] if (
                frames in kinds
                and 0 <= matching < count
                and not any(isinstance(each, bool) or not isinstance(each, int) for each in (*row[:4], *to))
            ):
                units = tuple(map(Unit, dict.fromkeys(to)))
                hops.append(Hop(Frames(frames), matching, Unit(unit), Unit(goal), units))
            case _:
                raise RequestError(
                    f"{_HOPS}: {shown(row)}; [kind of frames, matching, unit, goal, [units]] is accepted"
                )
    return hops


def _check_keys(what: str, data: Any, keys: tuple[str, ...], *others: str) -> None:
    if not isinstance(data, Mapping):
        raise RequestError(f"{what}: {shown(data)}; a mapping with the keys {', '.join(keys)} is accepted")
    for key in data:
        if key not in (*keys, *others):
            raise RequestError(f"{what}: {shown(key)} is no key; {', '.join(keys)} are accepted")


def _milliseconds(key: str, value: Any, least: float, most: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        raise RequestError(f"{key}: {shown(value)}; {least:g} to {most:g} ms is accepted")
    return float(value)


def _pairs(circuits: Any) -> list[list[str]]:
    if not isinstance(circuits, list) or not all(
        isinstance(pair, list) and all(isinstance(end, str) for end in pair) for pair in circuits
    ):
        raise RequestError(
            f"{shown(circuits)}; a list of pairs of optical ports like [u1o1, u2o1] is accepted"
        )
    return circuits


def _names(pairs: list[list[str]]) -> set[str]:
    """Collect the port names of some pairs. RequestError for a name that is no optical port of any
    testbed.
    """
    names = {end for pair in pairs for end in pair}
    for name in names:
        try:
            parse_optical_port(name)
        except ValueError as error:
            raise RequestError(str(error)) from None
    return names
