"""A reconfiguration in the history. Pure. Other processes read it as
`testbed.messages.controller.ReconfigurationEvent`, with a library that this process's interpreter may lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from testbed.optics.model import Ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecord:
    """A change of circuits: the ports that were dark, from `time` on (seconds since 1970); their planned and
    measured dark times (None: no new circuit); and the changes. The end of a timetable has the circuits that
    were lit anew, `relit`. Optional fields that are None are not written.
    """

    id: int
    time: float = 0.0
    ports: tuple[str, ...] = ()
    asked_ms: float = 0.0
    switch_ms: float = 0.0
    lock_ms: float = 0.0
    circuits_ms: Mapping[str, float] | None = None
    failed_locks: Mapping[str, int] | None = None
    measured_ms: float | None = None
    resolution_ms: float = 0.0
    settled_ms: float = 0.0
    since_asked_ms: Mapping[str, float] = field(default_factory=dict)
    removed: tuple[Ends, ...] = ()
    added: tuple[Ends, ...] = ()
    relit: tuple[Ends, ...] | None = None

    @classmethod
    def read(cls, data: Any) -> ChangeRecord:
        """Read a record from the data of `as_data`; fields that an earlier version did not write have
        defaults. ValueError or TypeError for other data.
        """
        if not isinstance(data, dict) or not isinstance(data.get("id"), int):
            raise TypeError(f"{data!r} is no record of a change")
        read = {name: data[name] for name in _NAMES if name in data}
        if not isinstance(read.get("time", 0.0), int | float):
            raise TypeError(f"the time {read['time']!r} of a change")
        for name in _PAIRS:
            if read.get(name) is not None:
                read[name] = tuple((a, b) for a, b in read[name])
        return cls(**{**read, "ports": tuple(read.get("ports", ()))})

    def as_data(self) -> Mapping[str, object]:
        """Convert the record for JSON."""
        values: tuple[tuple[str, Any], ...] = tuple((name, getattr(self, name)) for name in _NAMES)
        return {name: value for name, value in values if name not in _OPTIONAL or value is not None}


_NAMES = tuple(each.name for each in fields(ChangeRecord))
_OPTIONAL = ("circuits_ms", "failed_locks", "relit")
_PAIRS = ("removed", "added", "relit")
