"""Delay links where the kernel has no netem: the program of bpf/link_delay.c, loaded, with its map, and the
compiled thread that holds the frames (testbed/dataplanes/xdp/native/delays.c).

testbed/emulation/delay_stage.py attaches the program to devices.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache

from testbed import native
from testbed.dataplanes.xdp.compiled import MapLayout
from testbed.dataplanes.xdp.layout import DEVICE
from testbed.dataplanes.xdp.link_program import LinkProgram
from testbed.dataplanes.xdp.thread_library import frame_socket, loaded
from testbed.errors import TestbedError
from testbed.wire import links

PROGRAM, MAPS = "link_delay", ("delayed",)
_DELAYED = links.DELAYED.dtype()
_SEND_BYTES = 256 << 20  # frames in links' queues count until they leave


class DelayProgram(LinkProgram):
    """The program that hands frames to the thread, with a record for each delayed direction."""

    def __init__(self) -> None:
        super().__init__(
            "delay", "link_delay.c", PROGRAM, MapLayout(MAPS[0], DEVICE, _DELAYED, "testbed/wire/links.py")
        )

    def set_direction(self, ifindex: int, device: int, number: int) -> None:
        """Hand the frames that arrive at a device to another, as frames of a direction's number."""
        self._set(ifindex, {"device": device, "number": number})

    def counts(self, ifindex: int) -> tuple[int, int]:
        """Return how many of a direction's frames went to the thread, and how many could not be handed."""
        direction = self._get(ifindex)
        return int(direction["handed"]), int(direction["failed"])


@cache
def _library() -> ctypes.CDLL:
    library = loaded(native.DELAYS)
    pointer, number, time_ns = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64
    counter = ctypes.POINTER(ctypes.c_uint64)
    library.delays_open.restype = pointer
    library.delays_open.argtypes = [ctypes.c_int, number]
    library.delays_set.argtypes = [
        pointer, ctypes.c_uint16, number, time_ns, time_ns, ctypes.c_uint64,
    ]  # fmt: skip
    library.delays_counts.argtypes = [pointer, ctypes.c_uint16, counter, counter]
    library.delays_overrun.restype = ctypes.c_uint64
    library.delays_overrun.argtypes = [pointer]
    library.delays_error.argtypes = [pointer]
    library.delays_close.argtypes = [pointer]
    return library


class HoldingThread:
    """The thread, which receives frames of up to `frame_bytes` at a device of the caller's network
    namespace.
    """

    def __init__(self, device: str, frame_bytes: int) -> None:
        self._using = threading.Lock()
        self._socket = frame_socket(device, _SEND_BYTES, has_queue=True)
        self._handle: int | None = _library().delays_open(self._socket.fileno(), frame_bytes)
        if not self._handle:
            code = ctypes.get_errno()
            self._socket.close()
            raise OSError(code, f"start the delays of links: {os.strerror(code)}")

    def close(self) -> None:
        """End it, with the frames that it holds."""
        with self._using:
            handle, self._handle = self._handle, None
            _library().delays_close(handle)
            self._socket.close()

    def set(self, number: int, egress: int, delay_ns: tuple[int, int], room_bytes: int) -> None:
        """Set the delay and jitter of a direction's frames that arrive from now on, the device by which they
        leave, and how many bytes of them are held at most.
        """
        with self._using:
            if self._handle:
                _library().delays_set(self._handle, number, egress, *delay_ns, room_bytes)

    def watch(self) -> None:
        """Raise TestbedError if it has ended."""
        with self._using:
            code = _library().delays_error(self._handle) if self._handle else 0
        if code:
            raise TestbedError(f"delays of links: a frame could not be sent: {os.strerror(code)}")

    def counts(self, number: int) -> tuple[int, int]:
        """Return how many of a direction's frames it received, and how many of these it dropped."""
        received, dropped = ctypes.c_uint64(), ctypes.c_uint64()
        with self._using:
            if self._handle:
                _library().delays_counts(self._handle, number, ctypes.byref(received), ctypes.byref(dropped))
        return received.value, dropped.value

    def overrun(self) -> int:
        """Count the frames of all directions that arrived faster than it received them, and are lost."""
        with self._using:
            return int(_library().delays_overrun(self._handle)) if self._handle else 0
