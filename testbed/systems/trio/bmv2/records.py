"""The block records of a P4 switch (p4/systems/blocks.p4, docs/trio.md): allocate them to trees, and read the
counts of their job records. Not thread-safe.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.aggregation.entries import Entry
from testbed.aggregation.segments import NoRoomError
from testbed.dataplanes.bmv2.switch_client import Action, Key, SwitchClient
from testbed.errors import RequestError
from testbed.systems.trio.contract import P4_JOB_RECORDS, P4_RECORDS, P4_SOURCES, P4_TERMS, Space
from testbed.systems.trio.parts import BlockCounts
from testbed.systems.trio.terms import BlockTerms, terms_of
from testbed.wire.mapping import FIRST_VOTE
from testbed.wire.places import SLOTS

Tree = tuple[int, int]  # a job's number, and one of its trees
_TABLE = "terms"
_FIRST = (0, FIRST_VOTE)  # block of each space


@dataclass(frozen=True, slots=True)
class BlockRow:
    """The contiguous records of a tree: its vectors' from `first` on, then its votes'."""

    first: int
    data: int
    votes: int

    @property
    def end(self) -> int:
        """The index after its last record."""
        return self.first + self.data + self.votes


def row_for(terms: BlockTerms, first: int = 0) -> BlockRow:
    """Size a row so that no two blocks that a tree may have at the same time, by its terms, share a
    record.
    """
    data, votes = (
        1 << (window + kept - 1).bit_length() for window, kept in zip(terms.window, terms.kept, strict=True)
    )
    return BlockRow(first, data, votes)


class Rows:
    """The allocation of a switch's records to trees. Pure."""

    def __init__(self, records: int = P4_RECORDS) -> None:
        self._records = records
        self._taken: dict[Tree, BlockRow] = {}

    def take(self, tree: Tree, terms: BlockTerms) -> BlockRow:
        """Allocate a row for a tree. NoRoomError says which job holds how many."""
        start = 0
        for row in sorted(self._taken.values(), key=lambda row: row.first):
            if row_for(terms, start).end <= row.first:
                break
            start = row.end
        row = row_for(terms, start)
        if row.end > self._records:
            held = ", ".join(f"job {job} ({row.data + row.votes})" for (job, _), row in self._taken.items())
            raise NoRoomError(
                f"{row.data + row.votes} block records in a row are needed of {self._records}: "
                f"{held or 'no jobs'}"
            )
        self._taken[tree] = row
        return row

    def of(self, tree: Tree) -> BlockRow | None:
        """Return a tree's row, or None."""
        return self._taken.get(tree)

    def free(self, tree: Tree) -> None:
        """Free a tree's row; do nothing if it has none."""
        self._taken.pop(tree, None)


class BlockRecords:
    """The records of one switch."""

    def __init__(self, client: SwitchClient) -> None:
        self._client = client
        self._rows = Rows()
        self._handles: dict[Tree, tuple[int, int]] = {}  # of its terms, and its job record

    def trees(self) -> list[Tree]:
        """Return the trees that are summed by blocks here."""
        return list(self._handles)

    def row(self, tree: Tree) -> BlockRow | None:
        """Return a tree's row; None if it is not summed by blocks here."""
        return self._rows.of(tree) if tree in self._handles else None

    def admit(self, tree: Tree, entry: Entry, empties: bool) -> None:
        """Write a tree's terms and job record, before its entry; a tree that has them keeps them. With
        `empties`, its records are cleared first.
        """
        if tree in self._handles:
            return
        terms = terms_of(entry)
        if entry.members >> P4_SOURCES:
            most = entry.members.bit_length() - 1
            raise RequestError(f"a source has the number {most}; a P4 switch has records of {P4_SOURCES}")
        row = self._rows.take(tree, terms)
        try:
            record = min(set(range(P4_JOB_RECORDS)) - {record for _, record in self._handles.values()})
            self._clear(record)
            if empties:
                self._client.fill_register("slot_state", SLOTS + row.first, SLOTS + row.end, 0)
                self._client.fill_register("block_marks", row.first, row.end, 0)
            action = Action("set_terms", terms_data(terms, record, row))
            handle = self._client.add_entry(_TABLE, Key(tree[0] << 8 | tree[1], 24), action)
        except BaseException:
            self._rows.free(tree)
            raise
        self._handles[tree] = (handle, record)

    def _clear(self, record: int) -> None:
        fill, sources = self._client.fill_register, record * P4_SOURCES
        for name in ("block_active", "block_made"):
            fill(name, record, record + 1, 0)
        fill("block_missed", sources, sources + P4_SOURCES, 0)
        for space in Space:
            at = len(Space) * record + space
            fill("block_floor", at, at + 1, _FIRST[space])
            fill("block_reached", at * P4_SOURCES, (at + 1) * P4_SOURCES, _FIRST[space])

    def release(self, tree: Tree) -> None:
        """Delete a tree's terms, after its entry; do nothing if it has none."""
        if tree in self._handles:
            self._client.delete_entry(_TABLE, self._handles[tree][0])
            self.forget(tree)

    def forget(self, tree: Tree) -> None:
        """Drop the state of a tree whose terms were lost with the switch."""
        self._handles.pop(tree, None)
        self._rows.free(tree)

    def counts(self, tree: Tree) -> BlockCounts | None:
        """Return the counts of a tree's blocks; None if it is not summed by blocks here."""
        if tree not in self._handles:
            return None
        record = self._handles[tree][1]
        made, active = (self._client.register(name)[record] for name in ("block_made", "block_active"))
        missed = self._client.register("block_missed")[record * P4_SOURCES : (record + 1) * P4_SOURCES]
        return BlockCounts(made, active, {source: count for source, count in enumerate(missed) if count})


def terms_data(terms: BlockTerms, record: int, row: BlockRow) -> tuple[int, ...]:
    """Return the arguments of the P4 program's `set_terms`, in its order."""
    data, votes = Space.DATA, Space.VOTES
    reach = [sum(span) for span in zip(terms.window, terms.kept, strict=True)]
    values = {
        "record": record, "sources": record * P4_SOURCES, "data": terms.data, "cap": terms.cap,
        "first": row.first, "mask": row.data - 1, "window": terms.window[data], "reach": reach[data],
        "ahead": terms.ahead[data],
        "vote_first": row.first + row.data, "vote_mask": row.votes - 1, "vote_window": terms.window[votes],
        "vote_reach": reach[votes], "vote_ahead": terms.ahead[votes],
    }  # fmt: skip
    return tuple(values[parameter.name] for parameter in P4_TERMS)
