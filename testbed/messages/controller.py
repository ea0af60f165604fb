"""The controller's answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import UNSET, Number, UnsetType
from testbed.messages.timetable import TimetableStatus


@dataclass(frozen=True, slots=True)
class LitCircuits:
    """The circuits that are set, by their optical ports; the ports that are still dark; how often
    transceivers failed to lock, by port; the optical ports and links to the core that are down, which carry
    nothing; and the timetable, unset if none runs.
    """

    circuits: tuple[tuple[str, str], ...]
    dark: tuple[str, ...]
    failed_locks: dict[str, int]
    down: tuple[str, ...]
    schedule: TimetableStatus | UnsetType = UNSET

    @property
    def carrying(self) -> tuple[tuple[str, str], ...]:
        """The circuits without a port that is down."""
        return tuple(pair for pair in self.circuits if not {*pair} & {*self.down})

    @property
    def timetable(self) -> TimetableStatus | None:
        """Return the timetable that runs; None if none does."""
        return None if isinstance(self.schedule, UnsetType) else self.schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconfigurationEvent:
    """An event of the history: the ports that were dark from `time` on (seconds since 1970), the requested
    dark time and the measured one (None: no circuit was set up, or no light came), and the circuits that
    changed. The end of a timetable lists in `relit` the circuits that are lit again.
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


@dataclass(frozen=True, slots=True)
class CrossedFrames:
    """An optical port's frames: how many crossed, how many were lost in dark time, and how many met no
    circuit.
    """

    lit: int
    dark: int
    unlit: int


@dataclass(frozen=True, slots=True)
class KeptSchedule:
    """A timetable, and when it ran, by the monotonic clock; `ended_ns` None: it still runs."""

    schedule: TimetableStatus
    began_ns: int
    ended_ns: int | None


@dataclass(frozen=True, slots=True)
class LinksDown:
    """The optical ports and links to the core that were down from a time on, by the monotonic clock."""

    at_ns: int
    down: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NetworkLight:
    """The network's state over a job's time: circuits and timetables, frames by optical port, bytes of plain
    traffic by sender, receiver, protocol and port, the number of the last reconfiguration, and each time at
    which links went down or came back.
    """

    circuits: tuple[tuple[str, str], ...]
    timetables: tuple[KeptSchedule, ...]
    crossings: dict[str, CrossedFrames]
    flows: tuple[tuple[str, str, int, int, int], ...]
    last_event: int
    links: tuple[LinksDown, ...]


@dataclass(frozen=True, slots=True)
class CircuitTargets:
    """The circuits that would be set, and the changes from the present ones."""

    target: tuple[tuple[str, str], ...]
    removed: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CircuitsExchanged:
    """The answer to `exchange`: whether it was done, which it is not if circuits had changed before it; and
    the reconfiguration (None: nothing had to change).
    """

    is_done: bool
    event: ReconfigurationEvent | None


@dataclass(frozen=True, slots=True)
class JobCircuitLoss:
    """The circuits that a running job lost, and the pairs of units that now have no path."""

    job: int
    circuits: tuple[tuple[str, str], ...]
    cut_off: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CircuitsMade:
    """The reconfiguration that a request caused (None: nothing had to change), and the jobs that lost
    circuits by it. The daemon answers with it, because it knows which jobs use which circuits.
    """

    event: ReconfigurationEvent | None
    lost: tuple[JobCircuitLoss, ...]
