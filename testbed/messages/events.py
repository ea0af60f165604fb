"""The events that the daemon sends to a client while it works on a request. Pure.

A job's events: its start, its processes' lines, notes, and missed output. A submission's: that its jobs are
queued, and news of each. A capture's: its link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from testbed.messages.coding import UNSET, Number, UnsetType, decode


@dataclass(frozen=True, slots=True)
class JobBegun:
    """A job that has its hosts. `service` names the process that `ps_host` runs; `logs` is a folder."""

    job: int
    hosts: tuple[str, ...]
    ps_host: str | None
    service: str
    logs: str


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line that a process printed, with the process's label."""

    output: str
    label: str


@dataclass(frozen=True, slots=True)
class JobNote:
    """A line that every reader of a job's result must know."""

    note: str


@dataclass(frozen=True, slots=True)
class MissedLines:
    """The number of lines, and of their bytes."""

    lines: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OutputMissed:
    """Output that was dropped because it came faster than the client read
    (testbed/client/rpc/connection.py).
    """

    missed: MissedLines


@dataclass(frozen=True, slots=True)
class BatchQueued:
    """Jobs that were queued together: their numbers, a description of them in words, and the queue's
    policy.
    """

    queued: tuple[int, ...]
    policy: str
    slot_s: Number
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNews:
    """A line about a queued job or, without `job`, about its queue, `at_s` after the session's first time
    slot.
    """

    job: int | UnsetType = UNSET
    name: str | UnsetType = UNSET
    at_s: Number
    what: str

    @property
    def about(self) -> str:
        """Return the beginning of the line: the job that it is about."""
        return "" if isinstance(self.job, UnsetType) else f"job {self.job} ({self.name}): "


@dataclass(frozen=True, slots=True)
class LinkTapped:
    """The link of a capture that has started."""

    capturing: str


Event: TypeAlias = JobBegun | OutputLine | JobNote | OutputMissed | BatchQueued | QueueNews | LinkTapped

KINDS: Mapping[str, type[Event]] = {
    "output": OutputLine,
    "note": JobNote,
    "hosts": JobBegun,
    "missed": OutputMissed,
    "queued": BatchQueued,
    "at_s": QueueNews,
    "capturing": LinkTapped,
}
"""The types of events, each by a field that only it has."""


def event_of(data: Any) -> Event | None:
    """Make an event from the data that `as_json` returned; None for an event of a later version."""
    for name, kind in KINDS.items():
        if name in data:
            return decode(kind, data, "event")
    return None
