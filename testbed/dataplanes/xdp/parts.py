"""The interface of a program's own part of a place: the records that it has in maps of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from testbed.aggregation.entries import Entry


class PlacePart(Protocol):
    """A program's part of one place. It is made of the maps' free cells (`Cells`) and the ifindex of the
    device that stands for the place, when the first of the program's trees comes.
    """

    has_slots: bool  # whether its trees have segments of the place's slots

    def admit(self, number: int, entry: Entry, is_new: bool) -> Mapping[str, int]:
        """Put the records of a tree of job `number`, before its entry: those of one that is not new stay as
        they are. Return the fields of `struct entry` that name them.
        """

    def release(self, number: int, tree: int) -> None:
        """Take the records of a tree away, once its entry is gone; nothing if it has none."""

    def close(self) -> None:
        """Give back all that it has."""
