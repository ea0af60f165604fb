"""The pair of devices by which the ToRs' programs give packets room (testbed/dataplanes/xdp/room.py)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.emulation.netlink import DeviceSpec, NetlinkError, RouteSocket, add_veth, delete_device, set_up
from testbed.topology.addresses import ROOM_DEVICES

_NAMESPACE = Path("/proc/thread-self/ns/net")


@contextlib.contextmanager
def room(mtu: int) -> Iterator[None]:
    """Make the pair in the caller's network namespace; leaving takes it away."""
    namespace = os.open(_NAMESPACE, os.O_RDONLY)
    try:
        ends = [DeviceSpec(name, namespace, mtu) for name in ROOM_DEVICES]
        with RouteSocket() as route:
            route.send([add_veth(*ends), *(set_up(name) for name in ROOM_DEVICES)])
    finally:
        os.close(namespace)
    try:
        yield
    finally:
        with RouteSocket() as route, contextlib.suppress(NetlinkError):  # the fabric's end takes it along
            route.send([delete_device(ROOM_DEVICES[0])])
