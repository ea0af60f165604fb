"""The timers of a place that sums by block records: a compiled thread that sends ticks for blocks without a
contribution during their job's timeout (testbed/systems/trio/xdp/native/timers.c, docs/trio.md).
"""

from __future__ import annotations

import ctypes
import os
import socket
from dataclasses import dataclass
from functools import cache

from testbed import native
from testbed.aggregation.entries import Entry, Tick
from testbed.aggregation.ticks import tick_frame
from testbed.dataplanes.xdp.syscall import u32
from testbed.errors import HostError
from testbed.systems.trio.contract import BLOCK, BUCKET_RECORD, MOST_SOURCES
from testbed.systems.trio.terms import terms_of
from testbed.topology.addresses import CONTROL_DEVICES

_COMPILED = native.of_system(f"{__package__}._timers")
_LIBRARY = _COMPILED.path
_SOURCE = slice(6, 10)  # bytes of a frame that hold the place's device index
_QDISC_BYPASS = 20  # PACKET_QDISC_BYPASS
_SOL_PACKET = 263


_COUNTED = ("wakes", "visited", "ticks", "unsent", "busy_ns", "late_ns_most")


class _Counts(ctypes.Structure):
    """struct timer_counts."""

    _fields_ = [(name, ctypes.c_uint64) for name in _COUNTED]


@dataclass(frozen=True, slots=True)
class MappedTable:
    """A table's map descriptors for mmap, its number of buckets, and the bytes of a record."""

    bucket_fd: int
    record_fd: int
    buckets: int
    record_bytes: int


@dataclass(frozen=True, slots=True)
class TimerCounts:
    """The counters of a place's timers: wake-ups of the thread, buckets visited, ticks sent and not sent,
    processing time, and the largest wake-up delay.
    """

    wakes: int
    visited: int
    ticks: int
    unsent: int
    busy_ns: int
    late_ns_most: int


@cache
def library() -> ctypes.CDLL:
    """Load the compiled timers. HostError if they were not compiled, or from other sources."""
    if why := _COMPILED.why_stale(_LIBRARY):
        raise HostError(why)
    try:
        library = ctypes.CDLL(str(_LIBRARY), use_errno=True)
    except OSError as error:
        raise HostError(f"{_LIBRARY.name} does not load ({error}); run: sudo make setup") from error
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    library.timers_layout.restype = ctypes.c_uint64
    has_all = hasattr(library, "timers_error")
    if not has_all or library.timers_layout() != BUCKET_RECORD.dtype().itemsize << 32 | BLOCK.offset("pairs"):
        raise HostError(f"{_LIBRARY.name} was compiled from other sources; run: sudo make setup")
    library.timers_open.restype = pointer
    library.timers_open.argtypes = [ctypes.c_int, ctypes.c_int, number, number, ctypes.c_int, number]
    library.timers_close.argtypes = [pointer]
    library.timers_set.argtypes = [pointer, number, number, ctypes.c_int64, ctypes.c_char_p, number]
    words = ctypes.POINTER(ctypes.c_uint64)
    library.timers_lacked.argtypes = [pointer, number, words]
    library.timers_set_bits.argtypes = [words, ctypes.c_uint64]
    library.timers_raise.argtypes = [words, number]
    library.timers_error.argtypes = [pointer]
    library.timers_counts.argtypes = [pointer, ctypes.POINTER(_Counts)]
    return library


def control_socket() -> socket.socket:
    """Open a socket that sends into CONTROL_DEVICES, which are in the caller's network namespace."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC)
    try:
        opened.setsockopt(_SOL_PACKET, _QDISC_BYPASS, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        opened.bind((CONTROL_DEVICES[0], 0))
    except BaseException:
        opened.close()
        raise
    return opened


class Timers:
    """The timers of one table. `ifindex` is the device that represents the place. `opened` is the socket
    through which frames reach its control port; `close` closes it.
    """

    def __init__(
        self,
        table: MappedTable,
        ifindex: int,
        opened: socket.socket,
        count: int,
    ) -> None:
        self._library, self._ifindex, self._socket = library(), ifindex, opened
        self._handle = self._library.timers_open(
            table.bucket_fd, table.record_fd, table.buckets, table.record_bytes, opened.fileno(), count
        )
        if not self._handle:
            code = ctypes.get_errno()
            raise OSError(code, f"start the timers of a place: {os.strerror(code)}")

    def set(self, record: int, serial: int, number: int, entry: Entry) -> None:
        """Let the blocks of a tree of job `number` age out by its entry's terms; its job record has this
        index and serial number.
        """
        frame = bytearray(tick_frame(Tick(number, entry.generation, entry.tree, 0, 0, 0), entry))
        frame[_SOURCE] = u32(self._ifindex)
        timeout_ns = round(terms_of(entry).age_out_ms * 1e6)
        self._library.timers_set(self._handle, record, serial, timeout_ns, bytes(frame), len(frame))

    def forget(self, record: int) -> None:
        """Stop ageing out a tree's blocks."""
        self._library.timers_set(self._handle, record, 0, 0, b"", 0)

    def lacked(self, record: int) -> int:
        """Return the bitmap of a tree's sources for which blocks waited in vain since the last call."""
        words = (ctypes.c_uint64 * (MOST_SOURCES // 64))()
        self._library.timers_lacked(self._handle, record, words)
        return sum(word << 64 * place for place, word in enumerate(words))

    def failure(self) -> str | None:
        """Return why the timers stopped: the kernel refuses their ticks permanently. None while they run."""
        code = int(self._library.timers_error(self._handle))
        return f"send ticks by {CONTROL_DEVICES[0]}: {os.strerror(code)}" if code else None

    def counts(self) -> TimerCounts:
        """Return the timers' counters."""
        counts = _Counts()
        self._library.timers_counts(self._handle, ctypes.byref(counts))
        return TimerCounts(*(int(getattr(counts, name)) for name in _COUNTED))

    def close(self) -> None:
        """Stop the thread. No other call may follow."""
        self._library.timers_close(self._handle)
        self._socket.close()
