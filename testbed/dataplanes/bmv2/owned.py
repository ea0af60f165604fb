"""The owned trees of a P4 switch (p4/owned.p4, docs/luwu-network.md): which tree has which record of its
members' beats. Not safe for several threads.
"""

from __future__ import annotations

from testbed.aggregation.entries import Entry
from testbed.aggregation.segments import NoRoomError
from testbed.dataplanes.bmv2.switch_client import SwitchClient
from testbed.wire.places import P4_OWNED_RECORDS

Tree = tuple[int, int]  # a job's number, and one of its trees


class OwnedRecords:
    """The records of one switch, while its process runs."""

    def __init__(self, client: SwitchClient) -> None:
        self._client = client
        self._records: dict[Tree, tuple[int, int]] = {}  # the record, and the tree's generation

    def admit(self, tree: Tree, entry: Entry) -> None:
        """Give a tree a record in which nobody was heard; one that is there of its generation stays as it is.
        NoRoomError where all are taken.
        """
        known = self._records.get(tree)
        if known and known[1] == entry.generation:
            return
        # another than the one of a generation before, which packets that are worked on still go to
        free = set(range(P4_OWNED_RECORDS)) - {record for record, _ in self._records.values()}
        if not free:
            raise NoRoomError(f"all {P4_OWNED_RECORDS} records of trees with an owner are taken")
        record = min(free)
        # what a member said last counts only once it was heard
        for name in ("owned_heard", "owned_sent_ack", "owned_sent_credit"):
            self._client.fill_register(name, record, record + 1, 0)
        self._records[tree] = (record, entry.generation)

    def record(self, tree: Tree) -> int:
        """Return the number of a tree's record; 0 for one that has none and asks for none."""
        return self._records.get(tree, (0, 0))[0]

    def release(self, tree: Tree) -> None:
        """Take a tree's record back; nothing if it has none."""
        self._records.pop(tree, None)
