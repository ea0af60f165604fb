"""Timetables of circuits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import Number


@dataclass(frozen=True, slots=True)
class MatchingStatus:
    """The circuits that are lit together, from `start_ms` of a timetable's period on."""

    start_ms: Number
    circuits: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TimetableStatus:
    """Matchings that take turns by the clock. Circuits are dark for `guard_ms` at each turn."""

    period_ms: Number
    guard_ms: Number
    matchings: tuple[MatchingStatus, ...]
