"""The interface of a data-plane program's counts of a job's sums, from the places to all that shows them.
Pure, and imports nothing: a command that only shows a job loads no program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class ProgramCounts(ABC):
    """A job's counts at all of its places. Each program with counts has its own type: a frozen dataclass that
    is a message, in the module `counts` of its system's folder, which lists it in `COUNTS`. Only that type
    knows the fields; all others transfer them unchanged, as JSON, and request these methods.
    """

    __slots__ = ()

    @abstractmethod
    def lines(self) -> Sequence[str]:
        """Format the counts as lines of a job's status."""

    @abstractmethod
    def notes(self) -> Sequence[str]:
        """Make the notes on the counts in a job's result."""

    @abstractmethod
    def absent(self) -> int:
        """Count the workers and places that sums go on without."""
