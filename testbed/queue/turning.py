"""Start, replace and end a session's rotation on the optical switch, through the controller."""

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
    """The rotation that the controller runs for a session; a user's own timetable is not touched."""

    def __init__(self, controller: Callable[..., Any]) -> None:
        self._controller = controller
        self.rotation: Rotation | None = None

    def follow(self, rotation: Rotation | None, ports: PortTable) -> bool:
        """Start this rotation over these ports, or end the present one (None); return whether that was a
        change. Raises the controller's refusal; no rotation runs then.
        """
        if rotation == self.rotation:
            return False
        timetable = None if rotation is None else as_data(live.timetable_of(rotation, ports))
        if self.rotation is not None:
            if decode(LitCircuits, self._controller("circuits"), "circuits").timetable:
                self._controller("unschedule")
            self.rotation = None
        if timetable is not None:
            self._controller("schedule", schedule=timetable)
            self.rotation = rotation
        return True
