"""The ports by which notices leave an XDP switch: the kernel runs the program on live frames, so that
redirected frames cross veth pairs.

A frame has been handled when a mark has come out of every port. A mark is a result of another job, whose
group is all ports, sent after the frame. Frames that are redirected to a veth device stay in order.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping

from testbed.aggregation.entries import Sender
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.places import XdpSwitch
from testbed.dataplanes.xdp.plane import set_port
from testbed.dataplanes.xdp.program import Programs
from testbed.dataplanes.xdp.syscall import run_live
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.wire.places import Port
from tests.privileged.bmv2_aggregator import Wires
from tests.vectors.build import JOB, OPTICAL, job_across, job_passing, lanes, result_from_ps, workers_at_ports
from tests.vectors.units import a_notice

UNIT, PS_PORT, MARKS_FROM = 1, 9, 10
WORKERS = workers_at_ports([1, 3])  # by port
GROUP = (*WORKERS, *OPTICAL)
MARK_JOB = JOB + 1
LATE_S = 30.0


def inside(programs: Programs, _: Mapping[int, int]) -> dict[int, list[int]]:
    """Return, by the port at which a notice arrives, the ports by which it leaves."""
    with Wires(UNIT, [*WORKERS, PS_PORT, MARKS_FROM, *OPTICAL]) as wires:
        with FeatureControl() as control:
            for name in wires.names.values():
                control.set(f"t{name}", wire_features(gro=True))
        ports = {port: socket.if_nametoindex(name) for port, name in wires.names.items()}
        switch = XdpSwitch(Cells(programs), UNIT, {port: ports[port] for port in (*WORKERS, PS_PORT)})
        for port in (*OPTICAL, MARKS_FROM):
            set_port(programs, ports[port], UNIT, port, Port.FABRIC)
        for port, (sender,) in WORKERS.items():
            switch.bind(port, sender)
        switch.bind(PS_PORT, Sender(JOB, None, True))
        for job, group in ((JOB, GROUP), (MARK_JOB, (*GROUP, PS_PORT))):
            switch.set_group(job, 0, [wires.names[port] for port in group])
        switch.admit(JOB, job_across())
        switch.admit(MARK_JOB, job_passing())
        try:
            program = programs.program_fd("tor_port")
            return {
                port: _left_by(wires, program, a_notice(), ports[port], ports[MARKS_FROM])
                for port in (*OPTICAL, PS_PORT)
            }
        finally:
            for job in (JOB, MARK_JOB):
                switch.release(job)
            switch.close()


def _left_by(wires: Wires, program: int, data: bytes, ifindex: int, marks_from: int) -> list[int]:
    """Return the ports by which a frame left that arrived at this device."""
    mark = result_from_ps(0, lanes(0), job=MARK_JOB)
    run_live(program, data, ifindex)
    run_live(program, mark, marks_from)
    waited = {opened: port for port, opened in wires.sockets.items() if port != MARKS_FROM}
    left: list[int] = []
    deadline = time.monotonic() + LATE_S
    while waited:
        assert time.monotonic() < deadline, f"no mark at ports {sorted(waited.values())} after {LATE_S:g} s"
        for opened in select.select([*waited], [], [], 1.0)[0]:
            port, frame = waited[opened], opened.recv(1 << 16)
            if frame[12:] == mark[12:]:
                del waited[opened]
            elif frame[12:] == data[12:]:
                left.append(port)
    return sorted(left)
