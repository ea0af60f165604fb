"""BPF maps in memory, for tests of what a control plane writes to them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from testbed.dataplanes.xdp import layout, plane, routes, timetable
from testbed.dataplanes.xdp.syscall import Rows, records

FDS = {name: number for number, name in enumerate(plane.PINNED_MAPS)}
_ZEROS = {"circuits": layout.CIRCUIT, "glimpses": layout.GLIMPSE, "timetables": layout.TIMETABLE}


class ModelMaps:
    """The pinned maps. `room` limits the entries of a hash map; after `killed_after` writes the writer
    is killed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries: dict[int, dict[bytes, bytes]] = {fd: {} for fd in FDS.values()}
        self.room: dict[str, int] = {}
        self.killed_after = -1
        for module in (plane, timetable):
            monkeypatch.setattr(module, "map_update", self._update)
            monkeypatch.setattr(module, "map_lookup", self._lookup)
        for name, function in (("map_delete", self._delete), ("map_keys", self._keys)):
            monkeypatch.setattr(timetable, name, function)
        monkeypatch.setattr(routes, "map_lookup", self._lookup)
        monkeypatch.setattr(plane, "map_lookup_rows", self._lookup_rows)
        monkeypatch.setattr(plane, "map_update_rows", self._update_rows)
        monkeypatch.setattr(routes, "map_update_rows", self._update_rows)
        monkeypatch.setattr(routes, "map_delete_rows", self._delete_rows)
        monkeypatch.setattr(routes, "map_rows", self._rows)
        monkeypatch.setattr(routes, "map_entries", lambda fd, *kinds: dict(self.entries[fd]))
        monkeypatch.setattr(socket, "if_nametoindex", lambda device: int(re.sub(r"\D", "", device)))

    def plane(self, ports: int) -> plane.PinnedPlane:
        """Return a plane of ports 1 to `ports`, as another process would open it."""
        return plane.PinnedPlane(
            plane.PinnedMaps(**FDS), -1, {port: f"port{port}" for port in range(1, ports + 1)}
        )

    def of(self, name: str) -> dict[bytes, bytes]:
        """Return a map's entries."""
        return self.entries[FDS[name]]

    def _update(self, fd: int, key: bytes, value: bytes) -> None:
        if self.killed_after == 0:
            raise Killed
        self.killed_after -= 1
        room = self.room.get(plane.PINNED_MAPS[fd])
        if room is not None and key not in self.entries[fd] and len(self.entries[fd]) >= room:
            raise OSError(7, "Argument list too long")
        self.entries[fd][key] = value

    def _update_rows(self, fd: int, keys: Rows, values: Rows) -> None:
        for key, value in zip(records(keys), records(values), strict=True):
            self._update(fd, key, value)

    def _delete_rows(self, fd: int, keys: Rows) -> None:
        for key in records(keys):
            self._delete(fd, key)

    def _rows(self, fd: int, key: np.dtype[Any], value: np.dtype[Any], most: int) -> tuple[Rows, Rows]:
        entries = self.entries[fd]
        return np.frombuffer(b"".join(entries), key), np.frombuffer(b"".join(entries.values()), value)

    def _lookup_rows(self, fd: int, keys: Rows, value: np.dtype[Any]) -> Rows:
        values = (self._lookup(fd, key, value.itemsize) for key in records(keys))
        return np.frombuffer(b"".join(each or b"" for each in values), value).copy()

    def _lookup(self, fd: int, key: bytes, value_bytes: int) -> bytes | None:
        name = plane.PINNED_MAPS[fd]
        zeros = bytes(_ZEROS[name].itemsize) if name in _ZEROS else None
        return self.entries[fd].get(key, zeros)

    def _delete(self, fd: int, key: bytes) -> bool:
        if self.killed_after == 0:
            raise Killed
        return self.entries[fd].pop(key, None) is not None

    def _keys(self, fd: int, key_bytes: int) -> Iterator[bytes]:
        return iter(list(self.entries[fd]))


class Killed(BaseException):
    """The process ends here: it does nothing more."""
