"""A routing over timetables: packets that the next direct circuit has no time for go by one unit, the hub.
Named in a timetable's file: `routing: one_detour.py:OneDetour`.
"""

from __future__ import annotations

from testbed.ocs.routing import Routing
from testbed.topology.units import Unit
from testbed.wire.places import Frames

HUB = Unit(1)


class OneDetour(Routing):
    """Send by direct circuits, and what these have no time for to the hub, which sends by direct circuits."""

    treats = (Frames.OWN, Frames.CARRIED, Frames.SPARE)

    def towards(self, frames: Frames, matching: int, unit: Unit, goal: Unit) -> tuple[Unit, ...]:
        if frames == Frames.SPARE:
            return (goal,) if goal == HUB else ()
        return (goal,) if goal in self.schedule.neighbours[matching][unit] else ()
