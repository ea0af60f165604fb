"""Ask a user's routing (FILE.py:CLASS) about a timetable. For processes that run as that user."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from testbed.errors import RequestError
from testbed.ocs.routing import Routing, TimetableView, view_of
from testbed.ocs.timetable import Hop, Timetable
from testbed.plugins.user_class import in_a_line, line_of, load
from testbed.topology.units import Unit
from testbed.wire.places import Frames

_MOST_UNITS = 256
MOST_HOPS = 30_000  # of all matchings: what a request to the testbed holds


def hops_of(table: Timetable) -> list[Hop]:
    """Return the steps that a user's routing allows frames. RequestError, in one line, if it is no class of
    Routing, raises an exception, answers with anything but units, or allows more than MOST_HOPS steps.
    """
    name = table.routing
    try:
        kind = load(name)
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise RequestError(f"routing: {name}: {in_a_line(error)}") from error
    if not (inspect.isclass(kind) and issubclass(kind, Routing) and kind is not Routing):
        raise RequestError(f"routing: {name}: a class of testbed.ocs.routing.Routing is accepted")
    units = sorted({unit for each in table.matchings for pair in each.circuits for unit in pair.units})
    schedule = view_of(units, table)
    hops, count = [], 0
    for hop in _asked(kind, schedule, name):
        hops.append(hop)
        count += len(hop.to)
        if count > MOST_HOPS:
            raise RequestError(f"routing: {name}: more than {MOST_HOPS} steps; so many are accepted")
    return hops


def _asked(kind: type[Routing], schedule: TimetableView, name: str) -> Iterator[Hop]:
    try:
        routing = kind(schedule)
        for frames in map(Frames, kind.treats):
            for matching, near in enumerate(schedule.neighbours):
                for unit in schedule.units:
                    goals: Iterable[Unit] = near[unit] if frames == Frames.SPARE else schedule.units
                    for goal in goals:
                        answer = routing.towards(frames, matching, unit, goal) if goal != unit else ()
                        to = _units(answer)
                        if to:
                            yield Hop(frames, matching, unit, goal, to)
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise RequestError(f"routing: {name}{line_of(error, name)}: {in_a_line(error)}") from error


def _units(answer: Any) -> tuple[Unit, ...]:
    to = dict.fromkeys(itertools.islice(answer, _MOST_UNITS))
    for each in to:
        if isinstance(each, bool) or not isinstance(each, int | np.integer):
            raise TypeError(f"towards answered {each!r}; units of the schedule are accepted")
    return tuple(Unit(int(each)) for each in to)
