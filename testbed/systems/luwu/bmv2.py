"""The owned trees of a P4 switch (p4/systems/owned.p4, docs/luwu-network.md): which tree has which record
of its members' beats. Not safe for several threads.
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
        """Give a tree a record in which nobody was heard; one that is there of its generation stays as it is.
        NoRoomError where all are taken.
        """
        tree = (number, entry.tree)
        known = self._records.get(tree)
        if known and known[1] == entry.generation:
            return {"record": known[0]}
        # another than the one of a generation before, which packets that are worked on still go to
        free = set(range(P4_OWNED_RECORDS)) - {record for record, _ in self._records.values()}
        if not free:
            raise NoRoomError(f"all {P4_OWNED_RECORDS} records of trees with an owner are taken")
        record = min(free)
        # what a member said last counts only once it was heard
        for name in ("owned_heard", "owned_sent_ack", "owned_sent_credit"):
            self._client.fill_register(name, record, record + 1, 0)
        self._records[tree] = (record, entry.generation)
        return {"record": record}

    def record(self, number: int, tree: int = 0) -> int:
        """Return the number of a tree's record."""
        return self._records[number, tree][0]

    def release(self, number: int, tree: int) -> None:
        """Take a tree's record back; nothing if it has none."""
        self._records.pop((number, tree), None)

    forget = release

    def restart(self) -> None:
        """Forget all trees."""
        self._records.clear()

    def close(self) -> None:
        """Do nothing: nothing runs."""
