"""The events of a request: what the daemon tells a client while it works on it. Pure.

A job's are its beginning, the lines of its processes, notes, and output that was missed; a batch's of queued
jobs, that they are queued, and news of each; a capture's, its link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from testbed.messages.coding import UNSET, Number, UnsetType, decode


@dataclass(frozen=True, slots=True)
class JobBegun:
    """A job that has its hosts. `service` is the name of what `ps_host` runs; `logs` is a folder."""

    job: int
    hosts: tuple[str, ...]
    ps_host: str | None
    service: str
    logs: str


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line that a process printed, and the label of the process."""

    output: str
    label: str


@dataclass(frozen=True, slots=True)
class JobNote:
    """A line that whoever reads a job's result must know."""

    note: str


@dataclass(frozen=True, slots=True)
class MissedLines:
    """A count of lines, and of their bytes."""

    lines: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OutputMissed:
    """The output that came faster than the client read (testbed/client/rpc/connection.py)."""

    missed: MissedLines


@dataclass(frozen=True, slots=True)
class BatchQueued:
    """Jobs that were queued together, by number, and `what` they are, in words; the queue's policy."""

    queued: tuple[int, ...]
    policy: str
    slot_s: Number
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNews:
    """A line on a queued job, or, without one, on its queue, `at_s` after the session's first slot."""

    job: int | UnsetType = UNSET
    name: str | UnsetType = UNSET
    at_s: Number
    what: str

    @property
    def about(self) -> str:
        """Return the job that it is about, as a line's beginning."""
        return "" if isinstance(self.job, UnsetType) else f"job {self.job} ({self.name}): "


@dataclass(frozen=True, slots=True)
class LinkTapped:
    """The link of a capture that has begun."""

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
"""The types of events, each by a field that no other type has."""


def event_of(data: Mapping[str, Any]) -> Event | None:
    """Return the event that `as_json` was given; None of one that a later version has."""
    for name, kind in KINDS.items():
        if name in data:
            return decode(kind, data, "event")
    return None
