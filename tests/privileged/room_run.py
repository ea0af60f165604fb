"""Empty pushes at an XDP switch over real devices: the sum that an empty push completes, or asks for again,
needs more room than its buffer has.

Frames are sent into the workers' ends of veth pairs and results come out there, so the kernel makes the copy
that has room.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping

from testbed.aggregation.entries import Sender
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.packet_room import open_room
from testbed.dataplanes.xdp.places import XdpSwitch
from testbed.dataplanes.xdp.program import Programs
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.topology.addresses import ROOM_DEVICES
from testbed.wire import spec
from testbed.wire.frame import Frame
from tests.limits import CALL_S
from tests.privileged.bmv2_aggregator import Wires
from tests.vectors.build import JOB, SIZE, empty, job_in_unit, push, worker_lanes

UNIT, WORKERS, ROUNDS = 1, 3, 12
LATE_S = 30.0


def inside(programs: Programs, _: Mapping[int, int]) -> dict[str, list[int]]:
    """Return the fragments whose results were wrong; the fragments of a window are under way at the
    same time.
    """
    for name in ROOM_DEVICES:
        subprocess.run(["ip", "link", "set", name, "up"], check=True, timeout=CALL_S)
    open_room(programs)
    with Wires(UNIT, range(1, WORKERS + 1)) as wires:
        with FeatureControl() as control:
            for name in wires.names.values():
                control.set(f"t{name}", wire_features(gro=True))
        for name in wires.names.values():
            for end in (name, f"t{name}"):
                subprocess.run(["ip", "link", "set", end, "mtu", "1500"], check=True, timeout=CALL_S)
            programs.attach("tor_port", name)
        switch = XdpSwitch(
            Cells(programs), UNIT, {port: socket.if_nametoindex(name) for port, name in wires.names.items()}
        )
        for port in wires.names:
            switch.bind(port, Sender(JOB, port - 1))
        switch.set_group(JOB, 0, [*wires.names.values()])
        switch.admit(JOB, job_in_unit(WORKERS))
        sockets = [wires.sockets[port] for port in sorted(wires.names)]
        for opened in sockets:
            opened.settimeout(LATE_S)
        try:
            wrong = [at for turn in range(ROUNDS) for at in _window(sockets, turn * SIZE // 2)]
            asked = ROUNDS * SIZE // 2 - 1
            sockets[1].send(empty(1, asked))
            return {"wrong": wrong, "again": [] if _is_right(_taken(sockets[1]), asked) else [asked]}
        finally:
            switch.release(JOB)
            switch.close()


def _window(sockets: list[socket.socket], first: int) -> list[int]:
    """Let every worker in turn own a fragment, and push it before, after or between the empty pushes. Return
    the fragments whose results were wrong.
    """
    window = range(first, first + SIZE // 2)
    for turn in range(WORKERS):
        for fragment in window:
            worker = (fragment // WORKERS + turn) % WORKERS
            sockets[worker].send(
                push(worker, fragment) if worker == _owner(fragment) else empty(worker, fragment)
            )
    results = [_taken(opened) for opened in sockets for _ in window]
    return [result.header.fragment for result in results if not _is_right(result, result.header.fragment)]


def _owner(fragment: int) -> int:
    return fragment % WORKERS


def _taken(opened: socket.socket) -> Frame:
    while True:
        data, address = opened.recvfrom(1 << 16)
        if address[2] != socket.PACKET_OUTGOING and data[12:14] == b"\x08\0":
            return Frame.parse(data)


def _is_right(result: Frame, fragment: int) -> bool:
    header = result.header
    said = (header.op, header.fragment, header.contributors)
    return said == (spec.Op.RESULT, fragment, WORKERS) and bool(
        (result.lanes == worker_lanes(_owner(fragment), fragment)).all()
    )
