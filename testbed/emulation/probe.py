"""Tries a link's marks in the namespaces that it is run in: `python -m testbed.emulation.probe`, which
testbed/probing/kernel.py runs. Prints what it saw; in one line why not, with exit code 1.

Makes and leaves a veth pair, for those namespaces end with the probe.
"""

from __future__ import annotations

import socket
import sys
import time

from testbed.dataplanes.xdp.link_marks import PROGRAM, MarkProgram, QueueSpec
from testbed.emulation.ingress import attach
from testbed.emulation.netlink import MARK_PRIORITY, RouteSocket, add_ingress
from testbed.errors import TestbedError
from testbed.probing.features import ProbeFailure
from testbed.probing.frames import DEADLINE_S, RESEND_S, make_veth, send

# An empty IPv4 packet whose sender heeds marks (RFC 3168, ECT(0)), to everybody on the link.
_ECT = bytes.fromhex("4502001400000000403b0000") + b"\x0a\xff\x00\x01\x0a\xff\x00\xff"
_FRAME = (b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x01" + b"\x08\x00" + _ECT).ljust(64, b"\0")


def marks() -> str:
    """A program at a device's ingress, with a queue so slow that the second frame waits there."""
    make_veth("marks-a", "marks-b")
    ifindex = socket.if_nametoindex("marks-b")
    with MarkProgram() as program, RouteSocket() as route:
        program.set_queue(ifindex, QueueSpec(64, 1, 1 << 20, 0))
        route.send([add_ingress(ifindex)])
        attach(route, [ifindex], program, PROGRAM, MARK_PRIORITY, "a program at a device's ingress")
        deadline = time.monotonic() + DEADLINE_S
        while not (counters := program.counters(ifindex))["marked"]:
            if time.monotonic() > deadline:
                raise ProbeFailure(f"of {counters['seen']} frames that a program saw it could mark none")
            send("marks-a", _FRAME)
            time.sleep(RESEND_S / 10)
    return "a frame that waits was marked by a program at a device's ingress"


def main() -> int:
    try:
        print(marks())
    except (TestbedError, ProbeFailure, OSError) as lack:
        print(str(lack).splitlines()[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
