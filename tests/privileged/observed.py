"""The XDP programs, observed: their verdicts and the devices by which they send are recorded for each frame,
and the test sets their clock.

The sources are the same, with four names wrapped before them (observe.h): a test run in the kernel reports
that a frame is redirected, but not where to.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.program import Programs, source
from testbed.dataplanes.xdp.syscall import XDP_REDIRECT
from testbed.plugins.registry import sources

BEHIND = '#line 1 "parse.h"'  # before it come the kernel's headers and bpf/maps.h
BROADCAST, EXCLUDE_INGRESS = 1 << 3, 1 << 4  # <linux/bpf.h>
BY_DEVICE, TO_GROUP = 1, 2
_SEEN = struct.Struct("=I4IIQI72II")  # struct seen
_SYS_BPF, _TEST_RUN = {"x86_64": 321, "aarch64": 280, "riscv64": 280}[os.uname().machine], 10
_ROOM = 4096  # the longest frame of a test run


def text() -> str:
    """Return the programs' source with observe.h inserted."""
    whole = source(layout.BPF_DIR / "programs.c", sources("xdp"))
    assert whole.count(BEHIND) == 1
    return whole.replace(BEHIND, Path(__file__).with_name("observe.h").read_text() + BEHIND)


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of a program's run on a frame. `verdicts` are indices into layout.verdict_names(),
    `devices` are sorted ifindices.
    """

    action: int
    data: bytes
    verdicts: tuple[int, ...]
    kind: int  # BY_DEVICE, TO_GROUP, or 0
    flags: int  # flags of a redirect to a group
    devices: tuple[int, ...]
    in_order: tuple[int, ...]  # the devices in the order of the group's cells


class Observed:
    """Runs programs that were compiled from `text()`. A context manager."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._maps: list[mmap.mmap] = []
        self._attributes = ctypes.create_string_buffer(152)
        self._context = ctypes.create_string_buffer(24)
        self._frame, self._left = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._arguments = (ctypes.c_long(_SYS_BPF), ctypes.c_int(_TEST_RUN))
        self._put = struct.Struct(
            "=IIIIQQIIII"
        ).pack_into  # program, result, lengths, frames, repeat, duration, contexts

    def __enter__(self) -> Self:
        assert _SEEN.size == self._programs.compiled.value_bytes("seen")
        for name in ("seen", "seen_clock"):
            self._maps.append(mmap.mmap(self._programs.map_fd(name), mmap.PAGESIZE))
        self._seen, self._clock = self._maps
        self._empty = bytes(40)
        struct.pack_into("=Q", self._attributes, 48, ctypes.addressof(self._context))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for mapped in self._maps:
            mapped.close()

    def set_clock(self, now_ns: int) -> None:
        """Set the time that the programs read from now on, in ns."""
        self._clock[:8] = struct.pack("=Q", now_ns)

    def run(self, program: int, data: bytes, ifindex: int) -> Run:
        """Run a program (by descriptor) on a frame that arrives at a device. OSError if the test run
        fails.
        """
        length, attributes = len(data), self._attributes
        ctypes.memmove(self._frame, data, length)
        struct.pack_into("=IIIIII", self._context, 0, 0, length, 0, ifindex, 0, 0)
        frame, left = ctypes.addressof(self._frame), ctypes.addressof(self._left)
        self._put(attributes, 0, program, 0, length, _ROOM, frame, left, 1, 0, 24, 0)
        self._seen[:40] = self._empty
        if self._call(*self._arguments, attributes, ctypes.c_uint(152)) < 0:
            code = ctypes.get_errno()
            raise OSError(code, f"test run of {length} bytes: {os.strerror(code)}")
        action, _, size = struct.unpack_from("=III", attributes, 4)
        counted, *fields = _SEEN.unpack_from(self._seen)
        assert counted <= 4, f"{counted} verdicts on one frame"
        kind, flags, count = fields[4:7]
        devices: tuple[int, ...] = ()
        if action == XDP_REDIRECT:
            devices = tuple(fields[7 : 7 + count])
            if kind == TO_GROUP:
                assert flags & ~(BROADCAST | EXCLUDE_INGRESS) == 0, flags
                if not flags & BROADCAST:
                    devices = devices[:1]  # the key is 0
                if flags & EXCLUDE_INGRESS:
                    devices = tuple(device for device in devices if device != ifindex)
        verdicts = tuple(fields[:counted])
        data = ctypes.string_at(self._left, size)
        return Run(action, data, verdicts, kind, flags, tuple(sorted(devices)), devices)
