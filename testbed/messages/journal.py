"""A testbed's journal: events of jobs, links and processes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import UNSET, Number, UnsetType
from testbed.messages.verdict import JobVerdict


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that has run since `began` (seconds since 1970), the pairs of units that it joins, which decide
    the circuits that it uses, and the verdict on its last seconds; None if it is too early for one.
    """

    id: int
    began: float
    pairs: tuple[tuple[str, str], ...]
    verdict: JobVerdict | None


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended; without a result it has no verdict. `ratio` is the measured time of a round over
    its bound, if it has one, and `measured_ms` that time; `retransmits` counts the packets that its workers
    sent again; `notes` are the last of the notes that a reader of the result must know.
    """

    id: int
    began: float
    pairs: tuple[tuple[str, str], ...]
    sync: str
    user: str
    script: str
    hosts: tuple[str, ...]
    ps_host: str | None
    failure: str | None
    verdict: JobVerdict | None
    notes: tuple[str, ...]
    ratio: Number | None
    measured_ms: Number | None
    retransmits: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry, at `time` in seconds since 1970: `text` is a line for people. Entries are numbered from 1. An
    entry about a job that has ended has `job`.
    """

    number: int
    time: float
    kind: str
    text: str
    job: EndedJob | UnsetType = UNSET

    @property
    def ended(self) -> EndedJob | None:
        """Return the ended job that the entry is about, if any."""
        return None if isinstance(self.job, UnsetType) else self.job


@dataclass(frozen=True, slots=True)
class JournalAnswer:
    """The journal's entries after a given one, oldest first, and the jobs that run."""

    entries: tuple[JournalEntry, ...]
    running: tuple[RunningJob, ...]
