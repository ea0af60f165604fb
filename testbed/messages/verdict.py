"""The verdict on a job, which says whether its links set the result. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """`name` is for programs and stays; `text` has the numbers."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The verdict, which says whether links set a result: `trustworthy` is None for a job that sent next to
    nothing. Reasons make a result not trustworthy, notes need not.
    """

    trustworthy: bool | None
    line: str
    reasons: tuple[Reason, ...]
    notes: tuple[Reason, ...]

    @property
    def text(self) -> str:
        """Return the line without the word that begins it."""
        return self.line.removeprefix("verdict: ")
