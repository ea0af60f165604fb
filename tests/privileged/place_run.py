"""Places on real devices: a switch that is ticked, and a host with a worker of its own that pushes over
the loop.
"""

from __future__ import annotations

import mmap
import select
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from testbed.aggregation.entries import Sender, Tick
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.control import open_control
from testbed.dataplanes.xdp.hosts import XdpHosts
from testbed.dataplanes.xdp.places import XdpSwitch
from testbed.dataplanes.xdp.plane import set_port
from testbed.dataplanes.xdp.program import Programs, in_namespace, verdict_counts
from testbed.emulation.loop import Loops
from testbed.emulation.namespaces import NETNS_DIR, NetworkNamespaces, entered
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.emulation.pairs import pair
from testbed.topology import addresses
from testbed.wire import spec
from testbed.wire.frame import HEADERS_BYTES, Frame
from testbed.wire.places import Port
from tests.limits import CALL_S
from tests.privileged.bmv2_aggregator import Wires
from tests.vectors.build import (
    BASE,
    GENERATION,
    JOB,
    OPTICAL,
    PS_IP,
    SIZE,
    UP_BASE,
    job_at_ps,
    job_in_unit,
    lanes,
    partial,
    push,
    sum_of,
)

UNIT, HOST = 1, (3, 1)
LATE_S = 30.0


def inside(programs: Programs, _: Mapping[int, int], what: str) -> dict[str, Any]:
    return ticked(programs) if what == "ticked" else looped(programs)


# ---------------------------------------------------------------- a tick


def ticked(programs: Programs) -> dict[str, Any]:
    """Return by port the results received: of a fragment that was ticked with one of two contributions, and
    of one that was complete before its tick.
    """
    ports = (1, 2, OPTICAL[0])
    with Wires(UNIT, ports, 1500) as wires, pair(addresses.CONTROL_DEVICES, 1500):
        open_control(programs)
        with FeatureControl() as control:
            for name in wires.names.values():
                control.set(f"t{name}", wire_features(gro=True))
        devices = {port: socket.if_nametoindex(name) for port, name in wires.names.items()}
        switch = XdpSwitch(Cells(programs), UNIT, {port: devices[port] for port in (1, 2)})
        set_port(programs, devices[OPTICAL[0]], UNIT, OPTICAL[0], Port.FABRIC)
        for port in (1, 2):
            switch.bind(port, Sender(JOB, port - 1))
        switch.set_group(JOB, 0, [wires.names[port] for port in ports])
        switch.admit(JOB, job_in_unit(2))
        for port in (1, 2):
            programs.attach("tor_port", wires.names[port])

        def come(worker: int, fragment: int) -> None:
            """Have a worker's push come in by its port, and wait until it was worked on."""
            counted = sum(verdict_counts(programs.map_fd("verdicts")).values())
            wires.sockets[worker + 1].send(push(worker, fragment))
            deadline = time.monotonic() + LATE_S
            while sum(verdict_counts(programs.map_fd("verdicts")).values()) == counted:
                assert time.monotonic() < deadline, f"the push of worker {worker} did not come in"

        try:
            come(1, 2)
            began = time.monotonic()
            switch.tick(Tick(JOB, GENERATION, 0, BASE + 2, 2, 250))
            seconds = time.monotonic() - began
            for worker in (0, 1):
                come(worker, 3)
            switch.tick(Tick(JOB, GENERATION, 0, BASE + 3, 3, 250))  # too late: it causes no frame
            come(0, 4)
            switch.tick(Tick(JOB, GENERATION, 0, BASE + 4, 4, 1))
            came = {port: _results(wires.sockets[port], 3) for port in ports}
        finally:
            switch.release(JOB)
            switch.close()
    expected = {2: sum_of(2, 1), 3: sum_of(3, 0, 1), 4: sum_of(4, 0)}
    results = {
        port: [
            (frame.header.fragment, frame.header.flags, frame.header.contributors, frame.header.age)
            for frame in frames
            if (frame.lanes == expected[frame.header.fragment]).all()
        ]
        for port, frames in came.items()
    }
    return {"came": results, "seconds": seconds}


def _results(opened: socket.socket, count: int) -> list[Frame]:
    """Return the next `count` results at a device."""
    results: list[Frame] = []
    deadline = time.monotonic() + LATE_S
    while len(results) < count:
        left = deadline - time.monotonic()
        assert left > 0, f"{len(results)} of {count} results after {LATE_S:g} s"
        if select.select([opened], [], [], left)[0]:
            data = opened.recv(1 << 16)
            if data[36:38] == spec.UDP_PORT.to_bytes(2, "big") and data[45] == spec.Op.RESULT:
                results.append(Frame.parse(data))
    return results


# ---------------------------------------------------------------- a loop


def looped(programs: Programs) -> dict[str, Any]:
    """Run a host at the top of a tree, with a worker of its own and a place below. Return the frames that
    leave its eth0, the contents of its worker's ring, what wakes the worker, and the devices before, with and
    after the worker.
    """
    seen: dict[str, Any] = {}
    with ExitStack() as stack:
        namespaces = NetworkNamespaces()
        stack.callback(namespaces.remove_all)
        namespaces.add(["u3h1"], {"net/ipv6/conf/default/disable_ipv6": "1"})
        outer = stack.enter_context(_link(namespaces))
        path = NETNS_DIR / "u3h1"
        in_namespace(path, lambda: programs.attach("host_port", "eth0"))
        hosts = XdpHosts(Cells(programs), {HOST: path}, Loops({HOST: path}, 1500))
        stack.callback(hosts.close)
        place = hosts.place(HOST)
        seen["before"] = _devices(path)
        place.bind(HOST[1], Sender(JOB, 3))
        seen["with"] = _devices(path)
        place.set_group(JOB, 0, ["eth0", addresses.LOOP_PLACE_DEVICE])
        place.admit(JOB, job_at_ps(2, workers=0b1000))
        ring = hosts.attach(HOST, JOB, GENERATION, (UP_BASE,), SIZE, spec.LANES)
        with entered(namespaces["u3h1"]):
            worker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        stack.callback(worker.close)
        worker.bind(("", spec.UDP_PORT))
        worker.settimeout(LATE_S)
        results = _mapped(ring.fd, layout.result(spec.LANES), layout.RING_SLOTS)
        wake = _mapped(ring.wake_fd, layout.WAKE, 1)
        wake["wake_at"] = 2
        for fragment in (2, 3):
            outer.send(partial(0, fragment))
            worker.sendto(
                push(3, fragment, slot=UP_BASE + fragment)[HEADERS_BYTES:],
                (addresses.LOOP_PLACE_IP, spec.UDP_PORT),
            )
            outer.send(partial(1, fragment, contributors=4))
        left = _results(outer, 2)
        seen["left"] = [
            bool((frame.lanes == sum_of(frame.header.fragment, 0, 1, 3)).all())
            and (frame.header.contributors, frame.source_ip) == (7, PS_IP)
            for frame in left
        ]
        data, sender = worker.recvfrom(1 << 16)
        seen["woken"] = [int.from_bytes(data[20:24], "big"), sender[0]]
        seen["ring"] = [
            (int(results[place]["sequence"]), bool((results[place]["lanes"] == sum_of(place, 0, 1, 3)).all()))
            for place in (2, 3)
        ]
        outer.send(partial(1, 4, contributors=4))
        place.tick(Tick(JOB, GENERATION, 0, UP_BASE + 4, 4, 9))
        (last,) = _results(outer, 1)
        seen["ticked"] = [last.header.fragment, last.header.flags, last.header.contributors, last.header.age]
        place.release(JOB)
        hosts.detach(HOST)
        place.bind(HOST[1], None)
        seen["after"] = _devices(path)
    assert lanes(0).size == spec.LANES
    return seen


def _link(namespaces: NetworkNamespaces) -> socket.socket:
    """Make the host's eth0, and return a socket at its other end."""
    ifindex, mac = addresses.host_ifindex(*HOST), addresses.host_mac(*HOST)
    with entered(namespaces["u3h1"]):
        lines = [f"link add eth0 index {ifindex} address {mac} type veth peer name outer", "link set lo up"]
        lines += [
            f"address add {addresses.host_ip(*HOST)}/24 dev eth0",
            "link set eth0 up",
            "link set outer up",
        ]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, timeout=CALL_S)
        with FeatureControl() as control:
            control.set("outer", wire_features(gro=True))
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        opened.bind(("outer", 3))
    return opened


def _devices(path: Any) -> list[str]:
    names: Sequence[str] = ()

    def look() -> None:
        nonlocal names
        names = [name for _, name in socket.if_nameindex()]

    in_namespace(path, look)
    return sorted(name for name in names if name.startswith("sum"))


def _mapped(fd: int, kind: np.dtype, count: int) -> np.ndarray:
    size = (kind.itemsize * count + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(fd, size), kind, count)
