"""Tries a link's marks, and bursts over a link, in the namespaces that it is run in: `python -m
testbed.emulation.probe marks` or `bursts`, which testbed/probing/kernel.py runs. Prints what it saw; in one
line why not, with exit code 1.

Makes and leaves devices and namespaces, for those that it is run in end with the probe.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from testbed.dataplanes.xdp.link_marks import PROGRAM, MarkProgram, QueueSpec
from testbed.emulation.ingress import attach
from testbed.emulation.links import SYSCTLS, WIRES, HostAddress, WireEnd, Wires, WireSpec
from testbed.emulation.namespaces import NETNS_DIR, NetworkNamespaces, entered
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


_HOST, _PEER = ("10.0.0.1", "02:00:00:00:00:01"), ("10.0.0.2", "02:00:00:00:00:02")
_SEGMENTS, _SEGMENT_BYTES, _PORT, _UDP_SEGMENT = 7, 997, 48879, 103
_HEADERS = struct.Struct(">14x9xB2x4s4s2xHHH")  # protocol, addresses, port, length, checksum


def bursts() -> str:
    """A burst of segments over each kind of our links, and what arrives of it at the other end."""
    NETNS_DIR.mkdir(exist_ok=True)
    namespaces = NetworkNamespaces()
    namespaces.add([WIRES, "shaped", "plain"], SYSCTLS)
    specs = [
        WireSpec("a", WireEnd("eth0", "shaped", _HOST[1]), WireEnd("far-a", None, _PEER[1]), 997.0, 1 << 20),
        WireSpec("b", WireEnd("eth0", "plain", _HOST[1]), WireEnd("far-b", None, _PEER[1]), None, 1 << 20),
    ]
    wires = Wires(namespaces, specs)
    wires.make(lambda *_: None)
    hosts = [HostAddress(spec.a.namespace or "", "eth0", _HOST[0], 24, _PEER[0], (_PEER,)) for spec in specs]
    wires.configure_hosts(hosts, lambda *_: None)
    if lack := _burst_over(namespaces, specs[0]):
        raise ProbeFailure(f"over a link with a rate: {lack}")
    if lack := _burst_over(namespaces, specs[1]):
        return f"whole over links with a rate; over others packets are sent one by one: {lack}"
    return "whole over links with a rate and over others"


def _burst_over(namespaces: NetworkNamespaces, spec: WireSpec) -> str | None:
    """Send a burst, and return why it did not arrive whole and with right checksums; None: it did."""
    sent = [bytes([number]) * _SEGMENT_BYTES for number in range(1, _SEGMENTS + 1)]
    with entered(namespaces[spec.a.namespace or ""]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    with sender, listener:
        listener.bind((spec.b.device, 0x0800))
        listener.settimeout(DEADLINE_S)
        sender.setsockopt(socket.SOL_UDP, _UDP_SEGMENT, _SEGMENT_BYTES)
        try:
            sender.sendto(b"".join(sent), (_PEER[0], _PORT))
        except OSError as error:
            return f"UDP_SEGMENT: {errno.errorcode.get(error.errno or 0, error.errno)}, {error.strerror}"
        got: list[bytes] = []
        try:
            while len(got) < len(sent):
                frame = listener.recv(1 << 16)
                if _HEADERS.unpack_from(frame)[3] == _PORT:
                    got.append(frame)
        except TimeoutError:
            return f"{len(got)} of {len(sent)} packets arrived"
    if [frame[_HEADERS.size :] for frame in got] != sent:
        return "other packets arrived than were sent"
    wrong = sum(not _is_right(frame) for frame in got)
    return f"{wrong} of {len(got)} packets arrived with a wrong checksum" if wrong else None


def _is_right(frame: bytes) -> bool:
    """Return whether the checksum of a frame of UDP is that of its addresses, header and payload."""
    protocol, source, destination, _, length, _ = _HEADERS.unpack_from(frame)
    data = source + destination + bytes([0, protocol]) + struct.pack(">H", length) + frame[34:]
    total = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) // 2 * 2]))
    total += data[-1] << 8 if len(data) % 2 else 0
    return bool(total % 0xFFFF == 0)


PROBES: Mapping[str, Callable[[], str]] = {"marks": marks, "bursts": bursts}


def main(words: Sequence[str]) -> int:
    try:
        print(PROBES[words[0]]())
    except (TestbedError, ProbeFailure, OSError) as lack:
        print(str(lack).splitlines()[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
