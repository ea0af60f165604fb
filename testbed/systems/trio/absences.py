"""Record a job's permanent stragglers: which sources left, and until when (docs/trio.md). The time is an
argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.systems.trio.counts import AbsenceStatus
from testbed.systems.trio.leaving import Departure


@dataclass(slots=True)
class Absence:
    """A source's absence at a place, from its departure until its return, in seconds since the job's attempt
    began; `blocks` counts the blocks that the place completed meanwhile.
    """

    name: str
    workers: tuple[int, ...]
    at: str
    events: int
    left_s: float
    made: int
    back_s: float | None = None
    blocks: int | None = None

    def status(self) -> AbsenceStatus:
        """Convert the absence, as it stands now, for a status."""
        return AbsenceStatus(
            who=self.name,
            workers=self.workers,
            at=self.at,
            events=self.events,
            left_s=round(self.left_s, 3),
            back_s=None if self.back_s is None else round(self.back_s, 3),
            blocks=self.blocks,
        )


class Absences:
    """The record of all absences. As thread-safe as a list."""

    def __init__(self) -> None:
        self._all: list[Absence] = []

    def add(self, departures: Sequence[Departure], at_s: float) -> list[str]:
        """Record departures and returns, and return a line for each."""
        return [self._add(each, at_s) for each in departures]

    def _add(self, each: Departure, at_s: float) -> str:
        name = f"worker {each.source}" if isinstance(each.source, int) else str(each.source)
        if not each.is_back:
            self._all.append(Absence(name, each.workers, str(each.at), each.events, at_s, each.made))
            after = f" after {each.events} looks in vain" if each.events else ", as all that it sums did"
            return f"{name} left {each.at}{after}: sums go on without it until it is back"
        for absence in reversed(self._all):
            if (absence.name, absence.at, absence.back_s) == (name, str(each.at), None):
                absence.back_s, absence.blocks = at_s, each.made - absence.made
                return (
                    f"{name} is back at {each.at} after {at_s - absence.left_s:.2f} s; {absence.blocks} "
                    "blocks and votes went on without it"
                )
        return f"{name} is back at {each.at}"

    def out(self) -> set[int]:
        """Return the ranks of the absent workers."""
        return {worker for each in self._all if each.back_s is None for worker in each.workers}

    def status(self) -> tuple[AbsenceStatus, ...]:
        """Return all absences, in the order of departure."""
        return tuple(each.status() for each in list(self._all))
