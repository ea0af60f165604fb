"""The records of a place's owned trees in the XDP programs' maps (docs/luwu-network.md). Not thread-safe."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from testbed.aggregation.entries import Entry
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.syscall import map_lookup, map_update, u32
from testbed.systems.luwu.contract import MOST_RECORDS, OWNED_RECORD
from testbed.wire.records import filled

Key = tuple[int, int]  # a job's number, and one of its trees
_RECORD = OWNED_RECORD.dtype()


class OwnedRecords:
    """The records of one place."""

    has_slots = True

    def __init__(self, cells: Cells, _ifindex: int) -> None:
        self._cells = cells
        cells.add_kind("owned_records", "records of owned trees", MOST_RECORDS)
        self._records: dict[Key, int] = {}

    def close(self) -> None:
        """Free all records."""
        for key in list(self._records):
            self.release(*key)

    def admit(self, number: int, entry: Entry, is_new: bool) -> Mapping[str, int]:
        """Write the record of a tree that is summed here, unless it exists already. Return its index."""
        if not entry.members:
            return {}
        key = (number, entry.tree)
        if key not in self._records:
            self._records[key] = self._cells.take("owned_records")
        if is_new:
            record = filled(_RECORD, leader=(entry.members & -entry.members).bit_length() - 1)
            fd = self._cells.programs.map_fd("owned_records")
            map_update(fd, u32(self._records[key]), record.tobytes())
        return {"record": self._records[key]}

    def release(self, number: int, tree: int) -> None:
        """Free a tree's record; do nothing if it has none."""
        if (index := self._records.pop((number, tree), None)) is not None:
            self._cells.free("owned_records", index)

    def record(self, number: int, tree: int = 0) -> np.void:
        """Read a tree's record from the map."""
        fd, size = self._cells.programs.map_fd("owned_records"), _RECORD.itemsize
        raw = map_lookup(fd, u32(self._records[number, tree]), size)
        return np.frombuffer(raw or b"", _RECORD)[0]  # type: ignore[no-any-return]
