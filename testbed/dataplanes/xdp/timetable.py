"""The timetable that the XDP programs execute, in the pinned maps: its matchings' meetings and routes, and
its start. Programs follow it from its start on; so the start is written last and deleted first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.syscall import map_delete, map_keys, map_lookup, map_update, u32
from testbed.errors import RequestError, SettingError
from testbed.ocs.timetable import Kept, Timetable
from testbed.wire.places import MATCHING_SHIFT, NEVER_NS
from testbed.wire.records import filled

DIFFER = "schedule: what was set and what is read back differ"

Entries = Mapping[bytes, bytes]  # of a map, by key


class KeptTimetable:
    """The one timetable, in the maps `timetables`, `meetings` and `routes`, which also has the routes outside
    timetables.
    """

    def __init__(self, maps: Mapping[str, int]) -> None:
        self._timetables, self._meetings, self._routes = maps["timetables"], maps["meetings"], maps["routes"]

    def keep(self, table: Timetable, meetings: Entries, routes: Entries, start_ns: Callable[[], int]) -> None:
        """Write a timetable in place of any other; it runs from `start_ns()` on, which is called once all
        else is written. RequestError if there is no room, SettingError if it reads back different; then
        nothing of it remains.
        """
        others = self.clear()
        for name, count, most in (
            ("meetings", len(meetings), layout.SIZES["MAX_MEETINGS"]),
            ("routes", len(routes), layout.SIZES["MAX_ROUTES"] - others),
        ):
            if count > most:
                raise RequestError(f"schedule: {count} {name} of all its matchings; {most} are accepted")
        try:
            self._write(self._meetings, meetings, layout.MEETING.itemsize)
            self._write(self._routes, routes, layout.ROUTE.itemsize)
            record = filled(
                layout.TIMETABLE,
                period_ns=table.period_ns,
                guard_ns=table.guard_ns,
                count=len(table.matchings),
            )
            record["starts_ns"] = NEVER_NS
            record["starts_ns"][: len(table.matchings)] = [each.start_ns for each in table.matchings]
            map_update(self._timetables, u32(0), record.tobytes())
            record["start_ns"] = start_ns()
            map_update(self._timetables, u32(0), record.tobytes())
            if map_lookup(self._timetables, u32(0), layout.TIMETABLE.itemsize) != record.tobytes():
                raise SettingError(DIFFER)
        except OSError as error:
            self.clear()
            raise SettingError(
                f"schedule: {len(meetings) + len(routes)} entries: {error.strerror}"
            ) from error
        except BaseException:
            self.clear()
            raise

    def stop(self) -> None:
        """Stop the timetable: circuits are as they were last set. Its entries stay until `clear`."""
        record = self._record()
        record["start_ns"] = 0
        map_update(self._timetables, u32(0), record.tobytes())

    def clear(self) -> int:
        """Stop any timetable, and delete all timetables' entries, also those of a process killed while
        writing. Return the number of other routes.
        """
        if self.start_ns():
            self.stop()
        for key in list(map_keys(self._meetings, layout.MEETING_KEY.itemsize)):
            map_delete(self._meetings, key)
        left = 0
        for key in list(map_keys(self._routes, layout.ROUTE_KEY.itemsize)):
            if int(np.frombuffer(key, layout.ROUTE_KEY)[0]["owner"]) >> MATCHING_SHIFT:
                map_delete(self._routes, key)
            else:
                left += 1
        return left

    def kept(self) -> Kept | None:
        """Return the running timetable, or None."""
        record = self._record()
        if not record["start_ns"]:
            return None
        count = int(record["count"])
        peers: list[dict[int, int]] = [{} for _ in range(count)]
        for key in list(map_keys(self._meetings, layout.MEETING_KEY.itemsize)):
            value = map_lookup(self._meetings, key, layout.MEETING.itemsize)
            if value is not None:
                at = np.frombuffer(key, layout.MEETING_KEY)[0]
                peer = np.frombuffer(value, layout.MEETING)[0]["peer"]
                peers[int(at["matching"])][int(at["port"])] = int(peer)
        starts_ns = tuple(int(start_ns) for start_ns in record["starts_ns"][:count])
        return Kept(int(record["period_ns"]), int(record["guard_ns"]), starts_ns, tuple(peers))

    def start_ns(self) -> int:
        """Return when the running timetable began, or will begin; 0: none runs."""
        return int(self._record()["start_ns"])

    def _record(self) -> np.ndarray:
        value = map_lookup(self._timetables, u32(0), layout.TIMETABLE.itemsize) or b""
        record = np.zeros((), layout.TIMETABLE)
        record[()] = np.frombuffer(value, layout.TIMETABLE)[0]
        return record

    @staticmethod
    def _write(fd: int, entries: Entries, size: int) -> None:
        for key, value in entries.items():
            map_update(fd, key, value)
        if any(map_lookup(fd, key, size) != value for key, value in entries.items()):
            raise SettingError(DIFFER)
