"""The looks for permanent stragglers of a job that is summed by blocks: a thread that asks the places for
those who left and are back, and keeps account of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from testbed.aggregation.program import Departure
from testbed.errors import TestbedError
from testbed.messages.jobs import AbsenceStatus
from testbed.plugins.user_class import in_a_line


@dataclass(slots=True)
class Absence:
    """A source that left a place, from then until it was back, in seconds since the job's first look; and the
    blocks that its place made meanwhile.
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

    def __init__(self, began: float) -> None:
        self._began, self._all = began, list[Absence]()

    def add(self, departures: Sequence[Departure], now: float) -> list[str]:
        """Take account of departures and returns, and return a line for each."""
        return [self._add(each, now - self._began) for each in departures]

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


class Looks:
    """The thread of one attempt, which waits for `every_s()` before each look. `look` asks the places, and
    `hear` is told who left and who is back; `failed` is told why it looks no more, if it cannot. A context
    manager.
    """

    def __init__(
        self,
        every_s: Callable[[], float],
        look: Callable[[], list[Departure]],
        hear: Callable[[list[Departure], float], None],
        failed: Callable[[str], object],
    ) -> None:
        self._every_s, self._look, self._hear, self._failed = every_s, look, hear, failed
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looks for stragglers", daemon=True)

    def _run(self) -> None:
        try:
            while not self._ends.wait(self._every_s()):
                with contextlib.suppress(TestbedError):  # a switch ended; its jobs are told so
                    if departures := self._look():
                        self._hear(departures, time.monotonic())
        except OSError as error:
            self._failed(f"look for stragglers: {error.strerror or error}")
        except Exception as error:  # a user's own program may raise anything
            self._failed(f"look for stragglers: {in_a_line(error)}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join()
