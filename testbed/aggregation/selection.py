"""The testbed's choice of a system for a job (`--sync auto`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """A chosen system, as in testbed/messages/automatic.py."""

    system: str
    size_bytes: int
    bounds_ms: Mapping[str, float]
    refused: Mapping[str, str]
    line: str
