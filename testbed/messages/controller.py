"""The controller's answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import UNSET, Number, UnsetType
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconfigurationEvent:
    """An event of the history: the ports that were dark, from `time` on (seconds since 1970), how long they
    were to be dark and were (None: no new circuit), and what changed. The end of a timetable has the circuits
    that were lit anew, `relit`.
    """

    id: int
    time: Number
    ports: tuple[str, ...]
    asked_ms: Number
    switch_ms: Number
    lock_ms: Number
    circuits_ms: dict[str, Number] | UnsetType = UNSET
    failed_locks: dict[str, int] | UnsetType = UNSET
    measured_ms: Number | None
    resolution_ms: Number
    settled_ms: Number
    since_asked_ms: dict[str, Number]
    removed: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str], ...]
    relit: tuple[tuple[str, str], ...] | UnsetType = UNSET
