"""The timetable that the XDP programs execute, in the pinned maps: its matchings' meetings and routes, and
its start. Programs follow it from its start on; so the start is written last and deleted first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.syscall import map_delete, map_keys, map_lookup, map_update, u32
from testbed.errors import RequestError, SettingError
from testbed.ocs.timetable import Kept, Timetable
from testbed.wire.places import MATCHING_SHIFT, MAX_MATCHINGS, MAX_MEETINGS, MAX_ROUTES, NEVER_NS, ROUTINGS
from testbed.wire.records import filled

DIFFER = "schedule: what was set and what is read back differ"

Entries = Mapping[bytes, bytes]  # of a map, by key


@dataclass(frozen=True, slots=True)
class TimetableRecord:
    """The value in the map `timetables` (TIMETABLE). Elements of `starts_ns` from `count` on are NEVER_NS."""

    start_ns: int
    period_ns: int
    guard_ns: int
    count: int
    routing: int
    starts_ns: tuple[int, ...]

    @classmethod
    def of(cls, table: Timetable) -> TimetableRecord:
        """Make the record of a timetable that has not started."""
        starts_ns = [each.start_ns for each in table.matchings]
        padding = [NEVER_NS] * (MAX_MATCHINGS - len(starts_ns))
        routing = ROUTINGS.index(table.routing) if table.routing in ROUTINGS else len(ROUTINGS)
        return cls(0, table.period_ns, table.guard_ns, len(starts_ns), routing, (*starts_ns, *padding))

    @classmethod
    def read(cls, value: bytes) -> TimetableRecord:
        *numbers, starts_ns = np.frombuffer(value, layout.TIMETABLE)[0]
        start_ns, period_ns, guard_ns, count, routing = map(int, numbers)
        return cls(start_ns, period_ns, guard_ns, count, routing, tuple(starts_ns.tolist()))

    def packed(self) -> bytes:
        return filled(layout.TIMETABLE, **asdict(self)).tobytes()


class KeptTimetable:
    """The one timetable, in the maps `timetables`, `meetings` and `routes`, which also has the routes outside
    timetables.
    """

    def __init__(self, timetables: int, meetings: int, routes: int) -> None:
        self._timetables, self._meetings, self._routes = timetables, meetings, routes

    def keep(self, table: Timetable, meetings: Entries, routes: Entries, start_ns: Callable[[], int]) -> None:
        """Write a timetable in place of any other; it runs from `start_ns()` on, which is called once all
        else is written. RequestError if there is no room, SettingError if it reads back different; then
        nothing of it remains.
        """
        others = self.clear()
        for name, count, most in (
            ("meetings", len(meetings), MAX_MEETINGS),
            ("routes", len(routes), MAX_ROUTES - others),
        ):
            if count > most:
                raise RequestError(f"schedule: {count} {name} of all its matchings; {most} are accepted")
        try:
            self._write(self._meetings, meetings, layout.MEETING.itemsize)
            self._write(self._routes, routes, layout.ROUTE.itemsize)
            record = TimetableRecord.of(table)
            map_update(self._timetables, u32(0), record.packed())
            started = replace(record, start_ns=start_ns()).packed()
            map_update(self._timetables, u32(0), started)
            if map_lookup(self._timetables, u32(0), layout.TIMETABLE.itemsize) != started:
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
        stopped = replace(self._record(), start_ns=0)
        map_update(self._timetables, u32(0), stopped.packed())

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
            owner, _, _, _ = np.frombuffer(key, layout.ROUTE_KEY)[0]
            if int(owner) >> MATCHING_SHIFT:
                map_delete(self._routes, key)
            else:
                left += 1
        return left

    def kept(self) -> Kept | None:
        """Return the running timetable, or None."""
        record = self._record()
        if not record.start_ns:
            return None
        peers: list[dict[int, int]] = [{} for _ in range(record.count)]
        for key in list(map_keys(self._meetings, layout.MEETING_KEY.itemsize)):
            value = map_lookup(self._meetings, key, layout.MEETING.itemsize)
            if value is not None:
                port, matching = np.frombuffer(key, layout.MEETING_KEY)[0]
                peer = np.frombuffer(value, layout.MEETING)[0][0]
                peers[int(matching)][int(port)] = int(peer)
        starts_ns = record.starts_ns[: record.count]
        return Kept(record.period_ns, record.guard_ns, starts_ns, tuple(peers), record.routing)

    def start_ns(self) -> int:
        """Return when the running timetable began, or will begin; 0: none runs."""
        return self._record().start_ns

    def _record(self) -> TimetableRecord:
        return TimetableRecord.read(map_lookup(self._timetables, u32(0), layout.TIMETABLE.itemsize) or b"")

    @staticmethod
    def _write(fd: int, entries: Entries, size: int) -> None:
        for key, value in entries.items():
            map_update(fd, key, value)
        if any(map_lookup(fd, key, size) != value for key, value in entries.items()):
            raise SettingError(DIFFER)
