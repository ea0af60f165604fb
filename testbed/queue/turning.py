"""The rotation of a session on the optical switch: begun, replaced and ended through the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.messages.coding import decode
from testbed.messages.controller import LitCircuits
from testbed.ocs.plan import PortTable
from testbed.ocs.timetable import as_data
from testbed.scheduling import live
from testbed.scheduling.model import Rotation


class Turning:
    """The optical switch keeps what a policy answers; a user's own timetable is left alone."""

    def __init__(self, controller: Callable[..., Any], ports: PortTable) -> None:
        self._controller, self._ports = controller, ports
        self.rotation: Rotation | None = None

    def follow(self, rotation: Rotation | None) -> bool:
        """Have this rotation, or none; return whether that was a change. Raises what the controller refuses;
        none is kept then.
        """
        if rotation == self.rotation:
            return False
        timetable = None if rotation is None else as_data(live.timetable_of(rotation, self._ports))
        if self.rotation is not None:
            if decode(LitCircuits, self._controller("circuits"), "circuits").timetable:
                self._controller("unschedule")
            self.rotation = None
        if timetable is not None:
            self._controller("schedule", schedule=timetable)
            self.rotation = rotation
        return True
