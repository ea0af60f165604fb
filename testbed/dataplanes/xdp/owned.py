"""The records of a place's owned trees in the XDP programs' maps (docs/luwu-network.md). Not safe for several
threads.
"""

from __future__ import annotations

import numpy as np

from testbed.aggregation.entries import Entry
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.syscall import map_lookup, map_update, u32

Key = tuple[int, int]  # a job's number, and one of its trees


class OwnedRecords:
    """Those of one place."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._records: dict[Key, int] = {}

    def close(self) -> None:
        """Give them all back."""
        for key in list(self._records):
            self.release(key)

    def admit(self, key: Key, entry: Entry, is_new: bool) -> int:
        """Put the record of a tree; one which is there stays as it is. Return its index."""
        if key not in self._records:
            self._records[key] = self._cells.take("owned_records")
        if is_new:
            record = np.zeros((), layout.OWNED_RECORD)
            record["leader"] = (entry.members & -entry.members).bit_length() - 1
            self._put(key, record.tobytes())
        return self._records[key]

    def release(self, key: Key) -> None:
        """Take the record of a tree away; nothing if there is none."""
        if key in self._records:
            self._cells.free("owned_records", self._records.pop(key))

    def record(self, key: Key) -> np.void:
        """Return the record of a tree as it is."""
        fd, size = self._cells.programs.map_fd("owned_records"), layout.OWNED_RECORD.itemsize
        raw = map_lookup(fd, u32(self._records[key]), size)
        return np.frombuffer(raw or b"", layout.OWNED_RECORD)[0]  # type: ignore[no-any-return]

    def _put(self, key: Key, record: bytes) -> None:
        map_update(self._cells.programs.map_fd("owned_records"), u32(self._records[key]), record)
