"""Allocate page-aligned buffers for layers, up to a bound in bytes. Imports nothing of the project but
errors.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence

from workloads.luwu.errors import LuwuError


class Pool:
    """A bounded pool of buffers. Thread-safe: one thread takes, any gives back.

    Buffers that were given back are reused for the next request of their size, within the bound; their
    content is unchanged.
    """

    def __init__(self, bound_bytes: int) -> None:
        self._bound_bytes = bound_bytes
        self._kept: dict[int, list[mmap.mmap]] = {}
        self._used_bytes = self.kept_bytes = self.most_bytes = 0
        self._stopped = False
        self._changed = threading.Condition()

    def take(self, sizes: Sequence[int]) -> list[mmap.mmap] | None:
        """Wait until there is room for a buffer of each size, and return them all; return None after `stop`.
        Raises LuwuError where the bound is too small for them.
        """
        total = sum(sizes)
        if total > self._bound_bytes:
            raise LuwuError(
                f"a layer needs {total} bytes of buffers, the pool's bound is {self._bound_bytes}"
            )
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._used_bytes + total <= self._bound_bytes)
            if self._stopped:
                return None
            self._used_bytes += total
            self.most_bytes = max(self.most_bytes, self._used_bytes)
            buffers = [self._reuse(size) for size in sizes]
            missing = sum(size for size, buffer in zip(sizes, buffers, strict=True) if buffer is None)
            self._drop(self._used_bytes + self.kept_bytes - self._bound_bytes if missing else 0)
        return [_new(size) if buffer is None else buffer for size, buffer in zip(sizes, buffers, strict=True)]

    def give(self, buffers: Sequence[mmap.mmap]) -> None:
        with self._changed:
            for buffer in buffers:
                self._kept.setdefault(len(buffer), []).append(buffer)
                self._used_bytes -= len(buffer)
                self.kept_bytes += len(buffer)
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop the pool: every `take` that waits, now or later, returns None."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _reuse(self, size: int) -> mmap.mmap | None:
        if not self._kept.get(size):
            return None
        self.kept_bytes -= size
        return self._kept[size].pop()

    def _drop(self, excess_bytes: int) -> None:
        """Drop unused buffers; their memory is freed with the last view of them."""
        for size, buffers in self._kept.items():
            while buffers and excess_bytes > 0:
                buffers.pop()
                self.kept_bytes -= size
                excess_bytes -= size


def _new(size: int) -> mmap.mmap:
    """Allocate a private mapping, which counts against a limit of the process's data."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
