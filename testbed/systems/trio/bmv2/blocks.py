"""The blocks of a P4 switch under Trio-ML's program: their records, and the timers by which they age out
(docs/trio.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.aggregation.entries import Entry
from testbed.dataplanes.bmv2.parts import SwitchAccess, SwitchEndedError
from testbed.systems.trio.bmv2.records import BlockRecords
from testbed.systems.trio.bmv2.timers import MarkTimers
from testbed.systems.trio.parts import BlockCounts
from testbed.systems.trio.terms import terms_of


class SwitchBlocks:
    """The blocks of one switch."""

    has_slots = False

    def __init__(self, switch: SwitchAccess) -> None:
        self._switch = switch
        self._records = BlockRecords(switch.client)
        self._timers = MarkTimers(switch.dpid, switch.send, switch.lacks_ticks)

    def admit(self, number: int, entry: Entry) -> Mapping[str, int]:
        """Allocate records for a tree and, if it has a timeout, start timers."""
        key = (number, entry.tree)
        self._records.admit(key, entry, self._switch.empties)
        row = self._records.row(key)
        if row and terms_of(entry).age_out_ms:
            self._timers.set(number, entry, row)
        return {}

    def counts(self, number: int, tree: int) -> BlockCounts | None:
        """Return the counts of a tree's blocks; None if it is not summed by blocks here, or the switch has
        ended.
        """
        try:
            with self._switch.asking():
                return self._records.counts((number, tree))
        except SwitchEndedError:
            return None

    def release(self, number: int, tree: int) -> None:
        """Free a tree's timers and records."""
        self._timers.forget(number, tree)
        self._records.release((number, tree))

    def forget(self, number: int, tree: int) -> None:
        """Drop the state of a tree that was lost with the switch."""
        self._timers.forget(number, tree)
        self._records.forget((number, tree))

    def restart(self) -> None:
        """Drop the state of all trees."""
        for tree in self._records.trees():
            self.forget(*tree)

    def close(self) -> None:
        """Stop the timers."""
        self._timers.close()
