"""The memory-mapped job records of trees summed by blocks: the agent changes single words of them while BPF
programs do too (docs/trio.md).
"""

from __future__ import annotations

import ctypes
import mmap

from testbed.systems.trio.contract import JOB_RECORD, MOST_JOB_RECORDS, MOST_SOURCES, Space
from testbed.systems.trio.standing import Reached, beyond
from testbed.systems.trio.xdp.timers import library

_BYTES = JOB_RECORD.dtype().itemsize
_SIZE = -(-MOST_JOB_RECORDS * _BYTES // mmap.PAGESIZE) * mmap.PAGESIZE


class SharedRecords:
    """All job records, mapped by the map's descriptor. Every write is to one word."""

    def __init__(self, fd: int) -> None:
        assert _BYTES % 8 == 0  # the kernel aligns an array's values to 8 bytes
        self._library = library()
        self._memory = mmap.mmap(fd, _SIZE)

    def close(self) -> None:
        """Unmap the memory."""
        self._memory.close()

    def set_bits(self, index: int, place: int, bits: int) -> None:
        """Mark sources as absent: set `bits` in word `place` of `out`."""
        word = self._u64(index, JOB_RECORD.offset("out") + 8 * place)
        self._library.timers_set_bits(ctypes.byref(word), bits)

    def note(self, index: int, source: int, reached: Reached) -> None:
        """Record a source's progress, by space; a smaller value is ignored."""
        for space in Space:
            at = JOB_RECORD.offset("reached") + 4 * (space * MOST_SOURCES + source)
            word = ctypes.c_uint32.from_buffer(self._memory, index * _BYTES + at)
            if beyond(reached[space], word.value) > 0:
                word.value = reached[space]

    def rise(self, index: int, floors: Reached) -> None:
        """Raise the floors, by space; lower values are ignored."""
        for space in Space:
            word = self._u64(index, JOB_RECORD.offset("floor") + 8 * space)
            self._library.timers_raise(ctypes.byref(word), floors[space])

    def _u64(self, index: int, at: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_buffer(self._memory, index * _BYTES + at)
