"""The facts that a testbed's main process writes about itself, for commands of any user. Imports no
library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True)
class MainFacts:
    """The testbed's name, its main process, its user, and its configuration's name."""

    name: str
    pid: int
    user: str
    configuration: str


@dataclass(frozen=True, slots=True)
class MainState(MainFacts):
    """The facts, and the testbed's state: starting or ready."""

    state: str

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read the content of main.json; None if it is half written, or lacks a fact."""
        try:
            content = json.loads(text)
            return cls(**{each.name: content[each.name] for each in fields(cls)})
        except (json.JSONDecodeError, TypeError, KeyError):
            return None
