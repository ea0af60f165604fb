"""A bug planted on purpose: a text of a program, and its replacement."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Kind(Enum):
    """The program that a bug is in. Programs of a kind are built and tried in the same way."""

    XDP = "XDP"
    LINKS = "link faults"
    P4 = "P4"
    ENDPOINT = "endpoint"
    WINDOW = "window"
    PYTHON = "Python"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`name` says what the bug makes the program do; `old` occurs in `file` exactly once."""

    kind: Kind
    file: str
    name: str
    old: str
    new: str

    def plant(self, root: Path) -> None:
        """Replace `old` by `new` in the tree at `root`. ValueError unless `old` occurs exactly once."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file}: {text.count(self.old)} places with {self.old!r} (mutation: {self.name})"
            )
        path.write_text(text.replace(self.old, self.new))
