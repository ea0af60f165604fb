"""Compiles and loads bpf/link_marks.c, and keeps its map: a queue for each direction of a wire.

Owns what user space must know of the C side; attaching the program to devices is
testbed/emulation/marks.py's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from testbed.errors import HostError, SettingError, TestbedError
from testbed.headers import kernel_headers
from testbed.xdp.layout import BPF_DIR
from testbed.xdp.syscall import map_lookup, map_update, program_id

PROGRAM = "link_mark"
COUNTERS = ("seen", "marked")
_FRACTION_BITS = 16
_QUEUE = np.dtype(
    [(name, "=u8") for name in ("byte_time", "bucket", "threshold", "limit", "level", "at", *COUNTERS)]
)


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A direction's token bucket and queue in bytes, and behind how many waiting bytes a frame is marked."""

    rate_bytes_per_s: int
    bucket_bytes: int
    limit_bytes: int
    threshold_bytes: int

    def words(self) -> dict[str, int]:
        """What struct queue says of it: times in ns."""

        def time_ns(size: int) -> int:
            return round(size * 1e9 / self.rate_bytes_per_s)

        return {
            "byte_time": round((1 << _FRACTION_BITS) * 1e9 / self.rate_bytes_per_s),
            "bucket": time_ns(self.bucket_bytes),
            "threshold": time_ns(self.threshold_bytes),
            "limit": time_ns(self.limit_bytes),
        }


class MarkProgram:
    """The loaded program, by descriptor. A context manager; leaving it drops program and map, once no filter
    holds them.
    """

    def __init__(self) -> None:
        os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
        try:
            from bcc import BPF
        except ImportError as error:
            raise HostError(
                f"import bcc: {error}; install Debian's python3-bpfcc (`make setup` does)"
            ) from error
        try:
            # -w: the kernel's own headers warn under bcc's clang
            self._bpf: Any = BPF(text=(BPF_DIR / "link_marks.c").read_text(), cflags=["-w"])
            self.fd = int(self._bpf.load_func(PROGRAM, BPF.SCHED_CLS).fd)
        except Exception as error:  # bcc raises nothing narrower
            raise HostError(
                f"load the marking program: {error}; `testbed doctor` says what this host lacks"
            ) from error
        self._queues = int(self._bpf["queues"].map_fd)
        leaf = self._bpf["queues"].Leaf
        made = {name: getattr(leaf, name).offset for name, *_ in leaf._fields_}
        said = {name: spot[1] for name, spot in (_QUEUE.fields or {}).items()}
        if made != said:
            raise SettingError(
                f"bpf/link_marks.c: a queue has the fields {made}, testbed/xdp/link_marks.py {said}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bpf.cleanup()

    @property
    def kernel_id(self) -> int:
        """The program's number in the kernel, which a filter that runs it reports."""
        return program_id(self.fd)

    def set_queue(self, ifindex: int, spec: QueueSpec) -> None:
        """Makes a direction's queue, or gives it other numbers; then it counts as empty, with a full bucket,
        for a moment.
        """
        queue = np.zeros((), _QUEUE)
        for name, value in spec.words().items():
            queue[name] = value
        map_update(self._queues, ifindex.to_bytes(4, "little"), queue.tobytes())
        found = self._queue(ifindex)
        if any(int(found[name]) != value for name, value in spec.words().items()):
            raise SettingError(f"marks of device {ifindex}: what was set reads back different")

    def counters(self, ifindex: int) -> dict[str, int]:
        """COUNTERS of a direction since its queue was set."""
        queue = self._queue(ifindex)
        return {name: int(queue[name]) for name in COUNTERS}

    def _queue(self, ifindex: int) -> np.ndarray:
        value = map_lookup(self._queues, ifindex.to_bytes(4, "little"), _QUEUE.itemsize)
        if value is None:
            raise TestbedError(f"marks of device {ifindex}: there is no queue")
        queue: np.ndarray = np.frombuffer(value, _QUEUE)[0]
        return queue
