"""Timetables of rotors: the matchings of RotorNet, which change at all ports at once, and those of Opera, in
which one port at a time changes. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any, TypeAlias

Matching: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of units."""
UNITS = (4, 6, 8)
"""Accepted numbers of units. Less one they are primes, so that any two of a rotation's matchings together
join all units; and a traffic file has room for a stream between each two of them.
"""
OPERA_UNITS = (6, 8)
"""Those whose rotation is so long that OPERA_PORTS ports always have different matchings."""
_MOMENTS = 101  # of a period
OPERA_PORTS = 3  # while one is absent, two join all units


@dataclass(frozen=True, slots=True)
class PortLight:
    """The pairs of units that circuits join from a time of the period to another: a pair for each circuit."""

    from_ms: float
    until_ms: float
    pairs: tuple[tuple[int, int], ...]


def round_robin(units: int) -> tuple[Matching, ...]:
    """Return the matchings of a rotation, which join each two of an even number of units once."""
    first, *others = range(1, units + 1)
    matchings = []
    for _ in others:
        order = [first, *others]
        matchings.append(tuple((order[place], order[-1 - place]) for place in range(units // 2)))
        others = [others[-1], *others[:-1]]
    return tuple(matchings)


def rotornet(units: int, slot_ms: float, guard_ms: float, routing: str) -> dict[str, Any]:
    """Return a timetable in which units with one port each meet in turn."""
    starts = [(slot_ms * place, _circuits(matching, 1)) for place, matching in enumerate(round_robin(units))]
    return _timetable(starts, slot_ms * len(starts), guard_ms, routing)


def opera(units: int, slot_ms: float, absent_ms: float, routing: str) -> dict[str, Any]:
    """Return a timetable of units with OPERA_PORTS ports each. In each time slot one port changes to the next
    matching of the rotation, and is absent for the slot's first `absent_ms`.
    """
    rotation = round_robin(units)
    places = [2 * port for port in range(OPERA_PORTS)]
    starts = []
    for slot in range(OPERA_PORTS * len(rotation)):
        changing = slot % OPERA_PORTS
        begin_ms = slot * slot_ms
        for is_absent in (True, False):
            places[changing] += not is_absent
            lit = [port for port in range(OPERA_PORTS) if port != changing or not is_absent]
            circuits = [
                circuit
                for port in lit
                for circuit in _circuits(rotation[places[port] % len(rotation)], port + 1)
            ]
            starts.append((begin_ms + (0 if is_absent else absent_ms), circuits))
    return _timetable(starts, slot_ms * OPERA_PORTS * len(rotation), 0.0, routing)


def is_joined(units: int, circuits: Sequence[Sequence[str]]) -> bool:
    """Return whether circuits join all units, over one another's units."""
    return len(_distances(1, [_pair(circuit) for circuit in circuits])) == units


def lights(timetable: Mapping[str, Any]) -> Iterator[PortLight]:
    """Yield what is lit in each part of a period: circuits that were not in the matching before begin after
    the guard.
    """
    matchings, guard_ms = timetable["matchings"], timetable["guard_ms"]
    ends_ms = [*(each["start_ms"] for each in matchings[1:]), timetable["period_ms"]]
    for number, (matching, end_ms) in enumerate(zip(matchings, ends_ms, strict=True)):
        before = matchings[number - 1]["circuits"]
        stay = [_pair(circuit) for circuit in matching["circuits"] if circuit in before]
        new = [_pair(circuit) for circuit in matching["circuits"] if circuit not in before]
        yield PortLight(matching["start_ms"], end_ms, tuple(stay))
        yield PortLight(matching["start_ms"] + guard_ms, end_ms, tuple(new))


def lit_share(timetable: Mapping[str, Any], a: int, b: int) -> float:
    """Return for how much of a period a circuit joins two units; circuits at the same time count each."""
    lit_ms = sum(
        (light.until_ms - light.from_ms) * sum({a, b} == set(pair) for pair in light.pairs)
        for light in lights(timetable)
    )
    return float(lit_ms / timetable["period_ms"])


def median_direct_ms(timetable: Mapping[str, Any], units: int, wire_ms: float) -> float:
    """Return the median of the least times that bytes need which take `wire_ms` on a circuit, if they wait
    for direct circuits only: over moments of the period and pairs of units.
    """
    times = []
    for a, b in combinations(range(1, units + 1), 2):
        spans = _spans(timetable, a, b)
        times += [
            _direct_ms(spans, timetable["period_ms"], timetable["period_ms"] * moment / _MOMENTS, wire_ms)
            for moment in range(_MOMENTS)
        ]
    return statistics.median(times)


def _direct_ms(
    spans: Sequence[tuple[float, float]], period_ms: float, from_ms: float, wire_ms: float
) -> float:
    """Return how long light of `wire_ms` takes from a moment on."""
    for turn in count():
        for begin_ms, end_ms in spans:
            begin_ms, end_ms = begin_ms + turn * period_ms, end_ms + turn * period_ms
            begin_ms = max(begin_ms, from_ms)
            if end_ms - begin_ms >= wire_ms:
                return begin_ms + wire_ms - from_ms
            wire_ms -= max(0.0, end_ms - begin_ms)
    raise AssertionError("unreachable")


def _spans(timetable: Mapping[str, Any], a: int, b: int) -> list[tuple[float, float]]:
    """Return when a circuit joins two units. No two do at once: ports have different matchings."""
    return sorted(
        (light.from_ms, light.until_ms)
        for light in lights(timetable)
        if any({a, b} == set(pair) for pair in light.pairs)
    )


def mean_hops(timetable: Mapping[str, Any], units: int) -> float:
    """Return how many circuits the shortest way between two units has, on average over pairs and time."""
    ends_ms = [*(each["start_ms"] for each in timetable["matchings"][1:]), timetable["period_ms"]]
    hops_ms = 0.0
    for matching, end_ms in zip(timetable["matchings"], ends_ms, strict=True):
        pairs = [_pair(circuit) for circuit in matching["circuits"]]
        lasts_ms = end_ms - matching["start_ms"]
        hops_ms += lasts_ms * sum(sum(_distances(unit, pairs).values()) for unit in range(1, units + 1))
    return float(hops_ms / timetable["period_ms"] / (units * (units - 1)))


def _distances(unit: int, pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return how many circuits lead to each unit that can be reached."""
    distances, edge = {unit: 0}, [unit]
    for at in edge:
        near = [b if a == at else a for a, b in pairs if at in (a, b)]
        fresh = dict.fromkeys(each for each in near if each not in distances)
        distances |= dict.fromkeys(fresh, distances[at] + 1)
        edge += fresh
    return distances


def _circuits(matching: Matching, port: int) -> list[list[str]]:
    return [[f"u{a}o{port}", f"u{b}o{port}"] for a, b in matching]


def _pair(circuit: Sequence[str]) -> tuple[int, int]:
    a, b = (int(end[1:].partition("o")[0]) for end in circuit)
    return a, b


def _timetable(
    starts: Sequence[tuple[float, list[list[str]]]], period_ms: float, guard_ms: float, routing: str
) -> dict[str, Any]:
    matchings = [{"start_ms": start_ms, "circuits": circuits} for start_ms, circuits in starts]
    return {"period_ms": period_ms, "guard_ms": guard_ms, "routing": routing, "matchings": matchings}
