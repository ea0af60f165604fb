"""The account of a job's permanent stragglers: who left, and until when (docs/trio.md). The time is an
argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.messages.jobs import AbsenceStatus
from testbed.systems.trio.leaving import Departure


@dataclass(slots=True)
class Absence:
    """A source that left a place, from then until it was back, in seconds since the job's attempt began; and
    the blocks that its place made meanwhile.
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
        """Return it as it stands now."""
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
    """The account of who left. As safe for threads as a list."""

    def __init__(self) -> None:
        self._all: list[Absence] = []

    def add(self, departures: Sequence[Departure], at_s: float) -> list[str]:
        """Take account of departures and returns, and return a line for each."""
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
        """Return the ranks of the workers that are out."""
        return {worker for each in self._all if each.back_s is None for worker in each.workers}

    def status(self) -> tuple[AbsenceStatus, ...]:
        """Return all of them, in the order of their leaving."""
        return tuple(each.status() for each in list(self._all))
