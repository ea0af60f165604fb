"""The controller's answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import UNSET, UnsetType
from testbed.messages.timetable import TimetableStatus


@dataclass(frozen=True, slots=True)
class LitCircuits:
    """The circuits that there are, by their optical ports, the ports that are `dark` still, and how often
    transceivers failed to lock, by port; the timetable that is kept, and unset where none is.
    """

    circuits: tuple[tuple[str, str], ...]
    dark: tuple[str, ...]
    failed_locks: dict[str, int]
    schedule: TimetableStatus | UnsetType = UNSET

    @property
    def timetable(self) -> TimetableStatus | None:
        """Return the timetable that is kept."""
        return None if isinstance(self.schedule, UnsetType) else self.schedule
