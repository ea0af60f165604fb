"""Device pairs that are no links: over one, the switches' programs give packets more room; over others, ticks
arrive (testbed/dataplanes/xdp/packet_room.py and control.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.emulation.netlink import DeviceSpec, RouteSocket, add_veth, set_up

_NAMESPACE = Path("/proc/thread-self/ns/net")
# Addresses of no vendor, without a device's number in their first bytes: a user's process may make the kernel
# send frames over such a pair, but cannot choose their source address.
_MACS = "02:ff:ff:ff:00:01", "02:ff:ff:ff:00:02"


@contextlib.contextmanager
def pair(names: tuple[str, str], mtu: int) -> Iterator[None]:
    """Make a pair in the caller's network namespace; leaving removes it."""
    add_pair(names, mtu)
    try:
        yield
    finally:
        with RouteSocket() as route:
            route.delete(names[0])  # its peer is deleted with it


def add_pair(names: tuple[str, str], mtu: int, ifindices: tuple[int, int] = (0, 0)) -> None:
    """Make a pair in the caller's network namespace, both ends up. The kernel chooses both ifindices or none:
    it uses the second only if the first is not 0 (drivers/net/veth.c, veth_newlink).
    """
    namespace = os.open(_NAMESPACE, os.O_RDONLY)
    try:
        ends = [
            DeviceSpec(name, namespace, mtu, mac, number)
            for name, mac, number in zip(names, _MACS, ifindices, strict=True)
        ]
        with RouteSocket() as route:
            route.send([add_veth(*ends), *(set_up(name) for name in names)])
    finally:
        os.close(namespace)
