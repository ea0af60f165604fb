"""Pairs of devices that are no link: where the switches' programs give packets room, and by which ticks come
(testbed/dataplanes/xdp/packet_room.py and control.py).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.emulation.netlink import DeviceSpec, RouteSocket, add_veth, set_up

_NAMESPACE = Path("/proc/thread-self/ns/net")
# Of no vendor, and no device's number in their first bytes: a process of a user's may have the kernel send
# frames by such a pair, and can not choose the address that they come from.
_MACS = "02:ff:ff:ff:00:01", "02:ff:ff:ff:00:02"


@contextlib.contextmanager
def pair(names: tuple[str, str], mtu: int) -> Iterator[None]:
    """Make a pair in the caller's network namespace; leaving takes it away."""
    add_pair(names, mtu)
    try:
        yield
    finally:
        with RouteSocket() as route:
            route.delete(names[0])  # which the fabric's end takes along


def add_pair(names: tuple[str, str], mtu: int, ifindices: tuple[int, int] = (0, 0)) -> None:
    """Make a pair in the caller's network namespace, both ends up. Of the ifindices the kernel chooses both
    or none: it heeds the second where the first is not 0 (drivers/net/veth.c, veth_newlink).
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
