"""Timetables of circuits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import Number
from testbed.wire.places import AT_ONCE


@dataclass(frozen=True, slots=True)
class MatchingStatus:
    """A matching, lit from `start_ms` of the timetable's period on."""

    start_ms: Number
    circuits: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TimetableStatus:
    """Matchings lit in turn by the clock. At the start of each time slot, circuits that were not in the one
    before are dark for `guard_ms`. `routing` is how frames reach units (testbed/ocs/routing.py).
    """

    period_ms: Number
    guard_ms: Number
    matchings: tuple[MatchingStatus, ...]
    routing: str = AT_ONCE


@dataclass(frozen=True, slots=True)
class TimetableBegun(TimetableStatus):
    """A timetable that has begun; `notes` say what its user may not expect of it."""

    notes: tuple[str, ...] = ()
