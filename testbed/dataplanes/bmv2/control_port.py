"""The control port of a switch: a link over which only the daemon sends, and sends ticks.

It is a pair of devices in the network namespace of the switch. One end is a port of the switch, PORT_CONTROL
in its tables; a socket of this process sends frames from the other end.

The switch reads frames from libpcap's ring at its end: 2 MiB, divided into frames of the device's MTU; frames
that do not fit are lost silently (231 frames fitted at an MTU of 9000). So after every WINDOW frames comes a
mark, which the switch sends back, and no more frames are sent until it has arrived.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

from testbed.emulation.netlink import DeviceSpec, RouteSocket, add_veth, set_up
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.errors import TestbedError
from testbed.topology import addresses
from testbed.topology.addresses import Dpid

WINDOW = 128
ANSWER_S = 5.0
_MTU = 9000  # no fabric has a larger one
_LEAST_BYTES = 60
_MARK_ETHERTYPE = 0x88B6  # for local experiments (IEEE 802), as that of the agent's question is
_NAMESPACE = Path("/proc/thread-self/ns/net")


class AwayError(TestbedError):
    """The switch accepts no frames now: it has ended, is restarting, or is overloaded."""


class ControlPort:
    """The control link of one switch. `open` makes it, `close` removes it; either may be called at any time.
    `send` is thread-safe.
    """

    def __init__(self, dpid: Dpid) -> None:
        self.device = addresses.control_device(dpid)
        mac = bytes.fromhex(addresses.control_mac(dpid).replace(":", ""))
        self._mark = mac + mac + _MARK_ETHERTYPE.to_bytes(2, "big")
        self._far = addresses.control_far_device(dpid)
        self._is_made = False
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._under_way = 0  # frames since the last returned mark
        self._marks = 0

    def open(self) -> None:
        """Make the devices, both up. NetlinkError if they exist."""
        namespace = os.open(_NAMESPACE, os.O_RDONLY)
        ends = [DeviceSpec(name, namespace, _MTU) for name in (self.device, self._far)]
        try:
            with RouteSocket() as route, FeatureControl() as features:
                route.send([add_veth(*ends)])
                self._is_made = True
                for end in ends:
                    features.set(end.name, wire_features(gro=False))
                    _silence(end.name)
                route.send([set_up(end.name) for end in ends])
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self._socket.bind((self._far, _MARK_ETHERTYPE))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(namespace)

    def close(self) -> None:
        """Delete the devices, if `open` made them and they still exist."""
        if self._socket:
            self._socket.close()
            self._socket = None
        if self._is_made:
            self._is_made = False
            with RouteSocket() as route:
                route.delete(self.device)

    def send(self, frame: bytes) -> None:
        """Send a frame to the switch. TestbedError if it cannot be sent; AwayError if the port is not open,
        or if the switch does not process the earlier frames within ANSWER_S.
        """
        with self._sending:
            if self._under_way >= WINDOW:
                self._await_mark()
            self._put(frame)
            self._under_way += 1

    def _await_mark(self) -> None:
        """Wait until the switch has processed everything sent. It reads a ring's frames in order."""
        self._marks += 1
        mark = self._mark + self._marks.to_bytes(8, "big")
        self._put(mark.ljust(_LEAST_BYTES, b"\0"))
        deadline = time.monotonic() + ANSWER_S
        while self._heard(deadline)[: len(mark)] != mark:
            pass  # an earlier mark that came after its deadline
        self._under_way = 0

    def _put(self, frame: bytes) -> None:
        if self._socket is None:
            raise AwayError(f"{self.device}: the control port is not open")
        try:
            self._socket.send(frame)
        except OSError as error:
            raise TestbedError(f"send a tick by {self.device}: {error.strerror}") from error

    def _heard(self, deadline: float) -> bytes:
        """Return the next frame that the switch sends back."""
        opened = self._socket
        if opened is None:
            raise AwayError(f"{self.device}: the control port is not open")
        try:
            opened.settimeout(max(deadline - time.monotonic(), 1e-3))
            return opened.recv(_LEAST_BYTES)
        except TimeoutError as late:
            said = f"{self._under_way} ticks are not worked on after {ANSWER_S:g} s"
            raise AwayError(f"{self.device}: {said}") from late
        except OSError as error:
            raise TestbedError(f"await a mark at {self.device}: {error.strerror}") from error
        finally:
            if opened.fileno() >= 0:  # not closed meanwhile
                opened.settimeout(None)


def _silence(device: str) -> None:
    """Prevent the kernel from sending IPv6 traffic of its own on a device."""
    switch = Path("/proc/sys/net/ipv6/conf", device, "disable_ipv6")
    if switch.exists():
        switch.write_text("1")
