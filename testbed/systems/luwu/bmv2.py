"""The owned trees of a P4 switch (p4/systems/owned.p4, docs/luwu-network.md): assign each tree a record for
its members' beats. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.aggregation.entries import Entry
from testbed.aggregation.segments import NoRoomError
from testbed.dataplanes.bmv2.parts import SwitchAccess
from testbed.systems.luwu.contract import P4_OWNED_RECORDS

Tree = tuple[int, int]  # a job's number, and one of its trees


class SwitchOwnedRecords:
    """The records of one switch."""

    has_slots = True

    def __init__(self, switch: SwitchAccess) -> None:
        self._client = switch.client
        self._records: dict[Tree, tuple[int, int]] = {}  # the record, and the tree's generation

    def admit(self, number: int, entry: Entry) -> Mapping[str, int]:
        """Assign an empty record to a tree; a tree that has one of the same generation keeps it unchanged.
        NoRoomError if all records are taken.
        """
        tree = (number, entry.tree)
        known = self._records.get(tree)
        if known and known[1] == entry.generation:
            return {"record": known[0]}
        # never the record of the tree's earlier generation: packets still in the pipeline write to it
        free = set(range(P4_OWNED_RECORDS)) - {record for record, _ in self._records.values()}
        if not free:
            raise NoRoomError(f"all {P4_OWNED_RECORDS} records of trees with an owner are taken")
        record = min(free)
        # a member's latest beat is read only once its bit in owned_heard is set, so these registers suffice
        for name in ("owned_heard", "owned_sent_ack", "owned_sent_credit"):
            self._client.fill_register(name, record, record + 1, 0)
        self._records[tree] = (record, entry.generation)
        return {"record": record}

    def record(self, number: int, tree: int = 0) -> int:
        """Return the number of a tree's record."""
        return self._records[number, tree][0]

    def release(self, number: int, tree: int) -> None:
        """Free a tree's record; do nothing if it has none."""
        self._records.pop((number, tree), None)

    forget = release

    def restart(self) -> None:
        """Free the records of all trees."""
        self._records.clear()

    def close(self) -> None:
        """Do nothing: there is no process to end."""
