"""Try the marks of a link, bursts over a link, and the testbed's own XDP programs, in the current namespaces:
`python -m testbed.emulation.probe marks`, `bursts` or `programs`, run by testbed/host_checks/kernel.py.
Prints the result (for programs a JSON object: feature -> [works, detail]); a failure is one line and exit
code 1.

Leaves its devices and namespaces behind: the namespaces that it runs in end with it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from testbed.aggregation.entries import NO_IP, Entry, Sender, Tick
from testbed.aggregation.grants import group_ip
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.control import open_control
from testbed.dataplanes.xdp.link_marks import PROGRAM, MarkProgram, QueueSpec
from testbed.dataplanes.xdp.places import XdpSwitch
from testbed.dataplanes.xdp.program import Programs
from testbed.dataplanes.xdp.syscall import MAP_TYPE_ARRAY, map_create, map_update, u32
from testbed.emulation.ingress import attach
from testbed.emulation.links import SYSCTLS, WIRES, HostAddress, WireEnd, Wires, WireSpec
from testbed.emulation.namespaces import NETNS_DIR, NetworkNamespaces, entered
from testbed.emulation.netlink import MARK_PRIORITY, RouteSocket, add_ingress
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.emulation.pairs import pair
from testbed.errors import TestbedError
from testbed.host_checks.features import ProbeFailure
from testbed.host_checks.frames import DEADLINE_S, RESEND_S, make_veth, send
from testbed.plugins.registry import sources
from testbed.topology import addresses
from testbed.topology.units import Unit
from testbed.wire.codec import Header
from testbed.wire.frame import ETHERTYPE_IPV4, Frame
from testbed.wire.spec import Op

# An empty IPv4 packet with ECT(0), whose sender reacts to marks (RFC 3168), broadcast on the link.
_ECT = bytes.fromhex("4502001400000000403b0000") + b"\x0a\xff\x00\x01\x0a\xff\x00\xff"
_FRAME = (b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x01" + b"\x08\x00" + _ECT).ljust(64, b"\0")


def marks() -> str:
    """Try a marking program at a device's ingress, with a queue so slow that the second frame waits there."""
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
    """Send a burst of segments over each kind of link, and check what arrives at the other end."""
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
    """Send a burst; return why it did not arrive complete with correct checksums, or None."""
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
    """Return whether the checksum of a UDP frame matches its addresses, header and payload."""
    protocol, source, destination, _, length, _ = _HEADERS.unpack_from(frame)
    data = source + destination + bytes([0, protocol]) + struct.pack(">H", length) + frame[34:]
    total = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) // 2 * 2]))
    total += data[-1] << 8 if len(data) % 2 else 0
    return bool(total % 0xFFFF == 0)


def programs() -> str:
    """Load the testbed's programs for the default MTU, insert a map of slots as for a job, and let a tick
    complete a sum.
    """
    with Programs(sources("xdp")) as loaded:
        slots = map_create(MAP_TYPE_ARRAY, 4, layout.slot(loaded.lanes).itemsize, layout.SLOTS, 0, "slots")
        map_update(loaded.map_fd("slots"), u32(0), u32(slots))
        count = len(loaded.compiled.functions)
        findings = {"programs": (True, f"{count} programs loaded, and slots put into their map")}
        try:
            findings["ticks"] = (True, _ticked(loaded))
        except (TestbedError, ProbeFailure, OSError) as lack:
            findings["ticks"] = (False, str(lack).splitlines()[0])
    return json.dumps(findings)


_JOB, _UNIT, _WORKERS, _AGE_MS, _MTU = 1, Unit(1), 2, 250, 1500


def _ticked(loaded: Programs) -> str:
    """Push one worker's value to a switch with two workers, and send ticks until both have the sum."""
    ports = {worker + 1: f"ticks-{worker + 1}" for worker in range(_WORKERS)}
    values = np.arange(loaded.lanes, dtype=np.uint32)
    with contextlib.ExitStack() as stack:
        stack.enter_context(pair(addresses.CONTROL_DEVICES, _MTU))
        open_control(loaded)
        control = stack.enter_context(FeatureControl())
        listeners = []
        for device in ports.values():
            make_veth(device, f"{device}2")
            control.set(device, wire_features(gro=True))
            loaded.attach("tor_port", f"{device}2")
            listener = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
            listener.bind((device, ETHERTYPE_IPV4))
            listener.settimeout(RESEND_S)
            listeners.append(listener)
        switch = XdpSwitch(
            Cells(loaded),
            addresses.tor_dpid(_UNIT),
            {port: socket.if_nametoindex(f"{name}2") for port, name in ports.items()},
        )
        stack.callback(switch.close)
        for worker, port in enumerate(ports):
            switch.bind(port, Sender(_JOB, worker))
        switch.set_group(_JOB, 0, [f"{name}2" for name in ports.values()])
        switch_ip = addresses.tor_ip(addresses.tor_dpid(_UNIT))
        everyone, to_all = (1 << _WORKERS) - 1, group_ip(_JOB)
        switch.admit(_JOB, Entry(0, 1, everyone, 0, 0, 0, 1, 0, 0, switch_ip, NO_IP, to_all, loaded.lanes))
        host_ip, mac = addresses.host_ip(_UNIT, 1), addresses.mac_of(switch_ip)
        deadline, fragment, waiting = time.monotonic() + DEADLINE_S, 0, set(listeners)
        while waiting:
            if time.monotonic() > deadline:
                raise ProbeFailure(f"{len(waiting)} of {len(listeners)} workers got no sum that was ticked")
            header = Header(Op.PUSH, _JOB, 0, 1, 1, 0, fragment, loaded.lanes, lanes=loaded.lanes)
            push = Frame(header, values, host_ip, switch_ip, addresses.host_mac(_UNIT, 1), mac)
            listeners[0].send(push.pack())
            switch.tick(Tick(_JOB, 1, 0, 0, fragment, _AGE_MS))
            reached = {each for each in listeners if _has_sum(each, values)}
            waiting -= reached
            fragment += bool(
                reached
            )  # a tick may precede its push, and a new device may drop the first frames
    return "a sum that waited for a worker was completed by a tick, and reached both"


def _has_sum(listener: socket.socket, values: npt.NDArray[np.uint32]) -> bool:
    """Return whether a result arrives; ProbeFailure if it is not exactly the pushing worker's value."""
    while True:
        try:
            data = listener.recv(1 << 16)
        except TimeoutError:
            return False
        try:
            result = Frame.parse(data)
        except ValueError:
            continue
        if result.header.op != Op.RESULT:
            continue
        if result.header.contributors != 1 or not (result.lanes == values).all():
            raise ProbeFailure("a sum that was ticked is garbled")
        return True


PROBES: Mapping[str, Callable[[], str]] = {"marks": marks, "bursts": bursts, "programs": programs}


def main(words: Sequence[str]) -> int:
    try:
        print(PROBES[words[0]]())
    except (TestbedError, ProbeFailure, OSError) as lack:
        print(str(lack).splitlines()[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
