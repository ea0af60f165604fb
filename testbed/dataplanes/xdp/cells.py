"""Allocate the cells of the maps that all places of the XDP programs share. Thread-safe, since jobs are
admitted at several places in parallel.
"""

from __future__ import annotations

import itertools

from testbed.aggregation.segments import NoRoomError
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.program import Programs
from testbed.topology.model import IncSpec

_USUAL = IncSpec()


class Cells:
    """The free cells of the maps that all places of `programs` share."""

    def __init__(self, programs: Programs, inc: IncSpec = _USUAL) -> None:
        """Make all cells free. `inc` says how many timers and records each table of block records gets."""
        self.programs, self.inc = programs, inc
        self._words: dict[str, str] = {}
        self._free: dict[str, set[int]] = {}
        for kind, (words, size) in _CELLS.items():
            self.add_kind(kind, words, layout.SIZES[size])
        self._serials = itertools.count(1)

    def add_kind(self, kind: str, words: str, count: int) -> None:
        """Add `count` cells of a kind for a program's own map; `words` names them in NoRoomError. Do nothing
        if the kind exists.
        """
        self._words.setdefault(kind, words)
        self._free.setdefault(kind, set(range(count)))

    def serial(self) -> int:
        """Return a number that was never returned before."""
        return next(self._serials)

    def take(self, kind: str) -> int:
        try:
            return self._free[kind].pop()  # atomic among threads
        except KeyError:
            raise NoRoomError(f"no more {self._words[kind]}") from None

    def free(self, kind: str, cell: int) -> None:
        self._free[kind].add(cell)


_CELLS = {
    "entries": ("entries for trees at places", "MAX_ENTRIES"),
    "groups": ("groups of result ports", "MAX_GROUPS"),
    "cells": ("ways of results over parallel circuits", "MAX_GROUP_CELLS"),
    "slots": ("aggregators", "MAX_AGGREGATORS"),
    "rings": ("rings for results", "MAX_HOSTS"),
    "copies": ("pairs of devices for copies of results", "MAX_COPIES"),
}
