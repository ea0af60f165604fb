"""Parse and represent timetables: matchings of optical ports that follow each other by the clock alone and
repeat. Pure.

Each matching begins with a dark guard time, in which mirrors and transceivers would move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit, checked
from testbed.topology.addresses import parse_optical_port
from testbed.topology.fields import shown
from testbed.wire.places import MAX_MATCHINGS

SHORTEST_MS, LONGEST_MS = 1.0, 60_000.0
_KEYS, _MATCHING_KEYS = ("period_ms", "guard_ms", "matchings"), ("start_ms", "circuits")


@dataclass(frozen=True, slots=True)
class Matching:
    """The circuits from a time of the period until the next matching starts."""

    start_ns: int
    circuits: frozenset[Circuit]


@dataclass(frozen=True, slots=True)
class Timetable:
    """Matchings in the order of their starts, the first at 0; each begins with `guard_ns` of darkness."""

    period_ns: int
    guard_ns: int
    matchings: tuple[Matching, ...]


@dataclass(frozen=True, slots=True)
class TimetableRun:
    """A timetable, and from when to when it ran, by the monotonic clock; `ended_ns` is None while it runs."""

    table: Timetable
    began_ns: int
    ended_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """A timetable as a data plane stores it: the start of each matching, and its pairs of ports, as peers by
    port number.
    """

    period_ns: int
    guard_ns: int
    starts_ns: tuple[int, ...]
    peers: tuple[Mapping[int, int], ...]


def parse(data: Any, ports: Iterable[str] | None) -> Timetable:
    """Parse a user's timetable. `ports` is None where the testbed's ports are not known. RequestError names
    the key, its value and what is accepted.
    """
    _check_keys("schedule", data, _KEYS)
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
    known = ports if ports is None or isinstance(ports, Mapping) else list(ports)
    matchings = []
    for number, (start_ms, matching) in enumerate(zip(starts_ms, listed, strict=True)):
        try:
            pairs = _pairs(matching.get("circuits"))
            circuits = checked(pairs, _names(pairs) if known is None else known)
        except RequestError as error:
            raise RequestError(f"matchings[{number}].circuits: {error}") from None
        matchings.append(Matching(round(start_ms * 1e6), circuits))
    return Timetable(round(period_ms * 1e6), round(guard_ms * 1e6), tuple(matchings))


def as_data(timetable: Timetable) -> dict[str, Any]:
    """Convert a timetable to the data that `parse` reads."""
    return {
        "period_ms": timetable.period_ns / 1e6,
        "guard_ms": timetable.guard_ns / 1e6,
        "matchings": [
            {"start_ms": each.start_ns / 1e6, "circuits": [list(c.ports) for c in sorted(each.circuits)]}
            for each in timetable.matchings
        ],
    }


def _check_keys(what: str, data: Any, keys: tuple[str, ...]) -> None:
    if not isinstance(data, Mapping):
        raise RequestError(f"{what}: {shown(data)}; a mapping with the keys {', '.join(keys)} is accepted")
    for key in data:
        if key not in keys:
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
