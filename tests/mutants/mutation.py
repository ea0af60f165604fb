"""A bug planted on purpose: a text of a program, and what stands there instead."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Kind(Enum):
    """The programs that a bug is in: those of a kind are made and tried in the same way."""

    XDP = "XDP"
    LINKS = "link faults"
    P4 = "P4"
    ENDPOINT = "endpoint"
    WINDOW = "window"
    PYTHON = "Python"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`name` says what is wrong with the program then; `old` stands in `file` exactly once."""

    kind: Kind
    file: str
    name: str
    old: str
    new: str

    def plant(self, root: Path) -> None:
        """Puts it into the tree at `root`. ValueError if `old` does not stand there once."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file}: {text.count(self.old)} places with {self.old!r} (mutation: {self.name})"
            )
        path.write_text(text.replace(self.old, self.new))
