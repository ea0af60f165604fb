"""The verdict on a job: whether its links determined the result. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason or note. `name` is for programs and does not change between versions; `text` has the
    numbers.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The verdict on a job's result. `trustworthy` is None for a job that sent next to nothing. Each reason
    makes the result not trustworthy; notes do not.
    """

    trustworthy: bool | None
    line: str
    reasons: tuple[Reason, ...]
    notes: tuple[Reason, ...]

    @property
    def text(self) -> str:
        """Return the line without the prefix "verdict: "."""
        return self.line.removeprefix("verdict: ")
