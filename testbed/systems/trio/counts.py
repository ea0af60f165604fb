"""The counts of a job's blocks, as Trio-ML's program reports them: messages in a job's status and result, and
their words for people. Pure; imports no other module of this folder.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.aggregation.counts import ProgramCounts
from testbed.messages.coding import Number, UnsetType, decode
from testbed.messages.result import RunResult


@dataclass(frozen=True, slots=True)
class AbsenceStatus:
    """A worker or place that left the place `at`, which sums it, after `events` checks without a contribution
    (0: all that it sums left). Times are in s since the job's attempt began. `back_s`, and `blocks`, the
    number of blocks made meanwhile, are None until it is back.
    """

    who: str
    workers: tuple[int, ...]
    at: str
    events: int
    left_s: Number
    back_s: Number | None
    blocks: int | None

    def __str__(self) -> str:
        """Describe the absence: which worker or place left, when, why, and until when."""
        back = (
            "and did not come back"
            if self.back_s is None
            else f"and was back {self.back_s - self.left_s:.2f} s later; {self.blocks} blocks "
            "and votes went on without it"
        )
        why = f"after {self.events} looks in vain" if self.events else "as all that it sums did"
        return f"{self.who} left {self.at} {why}, {back}"


@dataclass(frozen=True, slots=True)
class BlocksStatus(ProgramCounts):
    """The blocks of a job that is summed by block records: how many were made, how many are under way, how
    many lacked (`without`) a worker (by rank) or a place, and the workers and places that left.
    """

    made: int
    active: int
    without: dict[str, int]
    left: tuple[AbsenceStatus, ...] = ()

    def lines(self) -> list[str]:
        without = f", some without {self._shares_without()}" if self.without else ""
        return [f"{self.made} blocks and votes, {self.active} under way{without}", *map(str, self.left)]

    def notes(self) -> list[str]:
        """Make the notes: how many blocks lacked which worker, which workers left, and how many blocks were
        never completed.
        """
        notes = []
        if self.without:
            notes.append(f"of {self.made} blocks and votes some were sent without {self._shares_without()}")
        notes += map(str, self.left)
        if self.active:
            notes.append(f"{self.active} block records were left without a result")
        return notes

    def absent(self) -> int:
        return sum(absence.back_s is None for absence in self.left)

    def _shares_without(self) -> str:
        """Count degraded blocks by the worker or place that was missing, with their share of all."""
        made = max(1, self.made)
        return ", ".join(
            f"{f'worker {source}' if source.isdecimal() else source} {count} ({count / made:.1%})"
            for source, count in self.without.items()
        )


COUNTS = (BlocksStatus,)


def blocks_of(result: RunResult) -> BlocksStatus | None:
    """Return the counts of a job's blocks; None for a job without block records."""
    if isinstance(result.blocks, UnsetType):
        return None
    return decode(BlocksStatus, result.blocks, f"job {result.id}: its blocks")
