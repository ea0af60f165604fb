"""The interface of a program's own part of a place: the records that it has in its own maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from testbed.aggregation.entries import Entry


class PlacePart(Protocol):
    """A program's part of one place. It is made, with the maps' free cells (`Cells`) and the ifindex of the
    device that represents the place, when the first of the program's trees arrives.
    """

    has_slots: bool  # whether its trees have segments of the place's slots

    def admit(self, number: int, entry: Entry, is_new: bool) -> Mapping[str, int]:
        """Write the records of a tree of job `number`, before its entry; records of a tree that is not new
        stay. Return the fields of `struct entry` that refer to them.
        """

    def release(self, number: int, tree: int) -> None:
        """Free the records of a tree, after its entry; do nothing if it has none."""

    def close(self) -> None:
        """Free everything."""
