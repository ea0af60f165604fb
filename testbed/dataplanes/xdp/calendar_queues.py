"""Calendar queues: frames for other units wait at their unit's switch, while a timetable runs, for a slot in
which a circuit leads there (bpf/calendar.h). A compiled thread holds and sends them
(testbed/dataplanes/xdp/native/calendar.c).

The queues of all units are behind one device pair: their switches are in one network namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import Self

from testbed import native
from testbed.dataplanes.xdp.program import Programs
from testbed.dataplanes.xdp.syscall import map_update, u32
from testbed.dataplanes.xdp.thread_library import frame_socket, loaded
from testbed.errors import TestbedError
from testbed.messages.links import CalendarStatus
from testbed.topology import addresses
from testbed.topology.addresses import CALENDAR_DEVICES
from testbed.topology.units import Unit

_UNITS = 256
_ETHERNET_BYTES = 14
_SEND_BYTES = 8 << 20
MAPS = ("timetables", "routes", "circuits", "queued_trees")  # that the thread reads

_COUNTED = ("held", "sent", "dropped", "unlit", "marked", "missed", "waiting", "waiting_bytes")


class _Counts(ctypes.Structure):
    """struct counts."""

    _fields_ = [*((name, ctypes.c_uint64) for name in _COUNTED), ("longest_ns", ctypes.c_int64)]


@cache
def _library() -> ctypes.CDLL:
    library = loaded(native.CALENDAR)
    pointer, number, whole = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int
    library.calendar_open.restype = pointer
    library.calendar_open.argtypes = [whole, whole, whole, whole, whole, number, number]
    library.calendar_rate.argtypes = [pointer, number, ctypes.c_uint64]
    library.calendar_delay.argtypes = [pointer, number, ctypes.c_int64, ctypes.c_int64]
    library.calendar_counts.argtypes = [pointer, number, ctypes.POINTER(_Counts)]
    library.calendar_overrun.restype = ctypes.c_uint64
    library.calendar_overrun.argtypes = [pointer]
    library.calendar_error.argtypes = [pointer]
    library.calendar_close.argtypes = [pointer]
    return library


class CalendarQueues:
    """The queues of all units: `packets` frames of each unit for each other. A context manager. `programs`
    are attached to CALENDAR_DEVICES[0]; leaving detaches nothing.
    """

    def __init__(self, programs: Programs, packets: int, mtu: int) -> None:
        self._programs, self._packets, self._frame_bytes = programs, packets, mtu + _ETHERNET_BYTES
        self._using = threading.Lock()
        self._handle: int | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._programs.attach("calendar_port", CALENDAR_DEVICES[0])
            opened = stack.enter_context(frame_socket(CALENDAR_DEVICES[1], _SEND_BYTES, has_queue=False))
            maps = (self._programs.map_fd(name) for name in MAPS)
            self._handle = _library().calendar_open(opened.fileno(), *maps, self._packets, self._frame_bytes)
            if not self._handle:
                code = ctypes.get_errno()
                raise OSError(code, f"start the calendar queues: {os.strerror(code)}")
            stack.callback(self._close)
            stack.callback(self._lead_to, 0)
            self._lead_to(socket.if_nametoindex(CALENDAR_DEVICES[0]))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _close(self) -> None:
        with self._using:  # a request may still ask for counts
            handle, self._handle = self._handle, None
            _library().calendar_close(handle)

    def _lead_to(self, ifindex: int) -> None:
        map_update(self._programs.map_fd("calendars"), u32(0), u32(ifindex))

    def lead_out(self, devices: Mapping[int, str]) -> None:
        """Set the devices by which frames leave, by port number at the optical switch; by a unit's port 0, to
        the core.
        """
        for number, device in devices.items():
            map_update(self._programs.map_fd("unit_links"), u32(number), u32(socket.if_nametoindex(device)))

    def set_rates(self, bytes_per_s: Mapping[str, int]) -> None:
        """Set the rates of links, by the device of a unit's switch; 0: unlimited."""
        with self._using:
            for device, rate in bytes_per_s.items() if self._handle else ():
                _library().calendar_rate(self._handle, socket.if_nametoindex(device), rate)

    def set_delays(self, delays_ns: Mapping[str, tuple[int, int]]) -> None:
        """Set the delays of links in ns, and by how much more or less each frame's differs, by the device of
        a unit's switch.
        """
        with self._using:
            for device, (delay_ns, jitter_ns) in delays_ns.items() if self._handle else ():
                ifindex = socket.if_nametoindex(device)
                _library().calendar_delay(self._handle, ifindex, delay_ns, jitter_ns)

    def watch(self) -> None:
        """Raise TestbedError if the thread has ended."""
        with self._using:
            code = _library().calendar_error(self._handle) if self._handle else 0
        if code:
            raise TestbedError(f"calendar queues: a frame could not be sent: {os.strerror(code)}")

    def overrun(self) -> int:
        """Count the frames that were lost because they came faster than the thread took them in."""
        with self._using:
            return int(_library().calendar_overrun(self._handle)) if self._handle else 0

    def counts(self) -> tuple[CalendarStatus, ...]:
        """Return the counts of the queues that ever had a frame."""
        counted = []
        for unit in range(1, _UNITS):
            row = (_Counts * _UNITS)()
            with self._using:
                if not self._handle or not _library().calendar_counts(self._handle, unit, row):
                    continue
            for goal, each in enumerate(row):
                if each.held or each.dropped or each.unlit:
                    counts = {name: getattr(each, name) for name in _COUNTED}
                    names = addresses.unit_name(Unit(unit)), addresses.unit_name(Unit(goal))
                    counted.append(
                        CalendarStatus(*names, **counts, longest_ms=round(each.longest_ns / 1e6, 3))
                    )
        return tuple(counted)
