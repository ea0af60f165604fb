"""The devices through which an empty push gets buffer space for the sum that it completes (bpf/programs.c,
`room_port`).

An XDP program cannot send more than its packet's buffer holds, and a push without lanes has a small one. The
kernel copies a packet that is redirected to several devices into a page each, which has enough space. So the
ToRs' program sends such a push to both ends of a pair, and the program there treats the copy as a push of
zeros. One pair serves all ToRs, which are in one network namespace.
"""

from __future__ import annotations

import os
import socket

from testbed.dataplanes.xdp.program import Programs
from testbed.dataplanes.xdp.syscall import MAP_TYPE_DEVMAP, map_create, map_update, u32
from testbed.topology.addresses import ROOM_DEVICES


def open_room(programs: Programs) -> None:
    """Attach the program to ROOM_DEVICES, which exist, and let the ToRs' program send to them."""
    for name in ROOM_DEVICES:
        programs.attach("room_port", name)
    lead_to_room(programs)


def lead_to_room(programs: Programs) -> None:
    """Let the ToRs' program send packets that need space to ROOM_DEVICES."""
    fd = map_create(MAP_TYPE_DEVMAP, 4, 4, len(ROOM_DEVICES), 0, "room")
    try:
        for position, name in enumerate(ROOM_DEVICES):
            map_update(fd, u32(position), u32(socket.if_nametoindex(name)))
        map_update(programs.map_fd("rooms"), u32(0), u32(fd))
    finally:
        os.close(fd)  # the outer map holds it
