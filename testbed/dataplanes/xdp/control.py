"""The control port of places: a pair of devices.

The place's agent sends ticks into one end; `control_port` is attached to the other, and reads the device that
represents the place from a tick's source address. Nothing else sends over these devices. The switches' pair
is in their network namespace and serves all of them; a host's is in its own.
"""

from __future__ import annotations

import socket

from testbed.dataplanes.xdp.plane import put_port
from testbed.dataplanes.xdp.program import Programs
from testbed.dataplanes.xdp.syscall import u32
from testbed.errors import TestbedError
from testbed.topology.addresses import CONTROL_DEVICES
from testbed.wire.places import Port

_SOURCE = slice(6, 10)  # bytes of a frame: part of its source address


def open_control(programs: Programs) -> None:
    """Attach the program to CONTROL_DEVICES, which are in the calling thread's network namespace."""
    put_port(programs, socket.if_nametoindex(CONTROL_DEVICES[1]), kind=Port.CONTROL)
    programs.attach("control_port", CONTROL_DEVICES[1])


class Injector:
    """Sends ticks into the pair of the network namespace in which it was made. Thread-safe."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind((CONTROL_DEVICES[0], 0))
        except OSError as error:
            self._socket.close()
            raise TestbedError(f"send ticks by {CONTROL_DEVICES[0]}: {error.strerror}") from error

    def send(self, tick: bytes, ifindex: int) -> None:
        """Send a tick for the place that the device `ifindex` represents. TestbedError if it cannot
        be sent.
        """
        frame = bytearray(tick)
        frame[_SOURCE] = u32(ifindex)
        try:
            self._socket.send(frame)
        except OSError as error:
            raise TestbedError(f"send a tick by {CONTROL_DEVICES[0]}: {error.strerror}") from error

    def close(self) -> None:
        self._socket.close()
