"""The control port of a unit's switch: a link by which the daemon sends it ticks, and nobody else anything.

It is a pair of devices in the network namespace of the switch. The one end is a port of the switch, whose
tables know it as PORT_CONTROL; frames are sent to the other end by a socket of this process.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from testbed.emulation.netlink import DeviceSpec, NetlinkError, RouteSocket, add_veth, delete_device, set_up
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.errors import TestbedError
from testbed.topology import addresses
from testbed.topology.units import Unit

_MTU = 9000  # no fabric has a larger one
_NAMESPACE = Path("/proc/thread-self/ns/net")


class ControlPort:
    """The link of one unit. `open` makes it, `close` takes it away; both may be called at any time."""

    def __init__(self, unit: Unit) -> None:
        self.device = addresses.control_device(unit)
        self._far = addresses.control_far_device(unit)
        self._is_made = False
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Make the devices, both up. NetlinkError if they are there."""
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
            self._socket.bind((self._far, 0))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(namespace)

    def close(self) -> None:
        """Delete the devices, if `open` made them and they are not gone."""
        if self._socket:
            self._socket.close()
            self._socket = None
        if self._is_made:
            self._is_made = False
            with RouteSocket() as route, contextlib.suppress(NetlinkError):
                route.send([delete_device(self.device)])

    def send(self, frame: bytes) -> None:
        """Have the switch receive a frame. TestbedError where it cannot be sent."""
        if self._socket is None:
            raise TestbedError(f"{self.device}: the control port is not open")
        try:
            self._socket.send(frame)
        except OSError as error:
            raise TestbedError(f"{self.device}: {error.strerror}") from error


def _silence(device: str) -> None:
    """Have the kernel send nothing of its own by a device, where it has IPv6."""
    switch = Path("/proc/sys/net/ipv6/conf", device, "disable_ipv6")
    if switch.exists():
        switch.write_text("1")
