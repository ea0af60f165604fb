"""Measure the time that one core needs for a frame of gradients over links as a testbed has them, in the
current namespaces: `python -m testbed.emulation.frame_cost MTU`, run by testbed/host_checks/frame_costs.py.
Prints the microseconds of each trial, one a line; a failure is one line and exit code 1.

Two hosts push bursts over shaped links, the XDP program of a ToR adds, and each sum goes over both links into
the hosts' rings. All of it runs on the core that sends, so the passed time is the time of that core. Leaves
its devices and namespaces behind: the namespaces that it runs in end with it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from testbed.aggregation.entries import NO_IP, Entry, Sender
from testbed.aggregation.grants import group_ip
from testbed.aggregation.place_interfaces import Ring
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.control import open_control
from testbed.dataplanes.xdp.hosts import XdpHosts
from testbed.dataplanes.xdp.places import XdpSwitch
from testbed.dataplanes.xdp.program import Programs, in_namespace
from testbed.emulation.links import SYSCTLS, WIRES, HostAddress, WireEnd, Wires, WireSpec
from testbed.emulation.namespaces import NETNS_DIR, NetworkNamespaces, entered
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.emulation.pairs import pair
from testbed.emulation.parts import PREFIX
from testbed.errors import TestbedError
from testbed.host_checks.features import ProbeFailure
from testbed.host_checks.frames import tool
from testbed.plugins.registry import sources
from testbed.topology import addresses
from testbed.topology.units import Unit
from testbed.topology.values import MAX_MBPS
from testbed.wire import spec
from testbed.wire.codec import packet_dtype
from testbed.wire.spec import Op, lanes_for

WARM_UP_S, TRIALS_S, MOST_S, LEAST = 0.1, 0.8, 10.0, 20
_UNIT, _JOB, _WORKERS, _SLOTS = Unit(1), 1, 2, 64
_MOST_BYTES, _MOST_FRAMES = 60_000, 16  # in a burst, as workers send them (workloads/native/sends.h)
_UDP_SEGMENT, _BUFFER_BYTES = 103, 1 << 20
_LOST_S = 0.5  # a trial's frames have come by then, also on a busy machine


class _Workers:
    """The workers, which push a packet for each slot, and the rings in which they get results."""

    def __init__(
        self, lanes: int, sockets: Sequence[socket.socket], rings: Sequence[Ring], to: tuple[str, int]
    ) -> None:
        self._sockets, self._to = sockets, to
        self._results = [_mapped(ring) for ring in rings]
        kind = packet_dtype(lanes)
        self._packets = np.zeros((len(sockets), _SLOTS), kind)
        slots, ranks = np.arange(_SLOTS), np.arange(len(sockets))[:, None]
        fixed = {"magic": spec.MAGIC, "version": spec.VERSION, "op": Op.PUSH, "job": _JOB, "contributors": 1}
        per_packet = {"generation": 1, "count": lanes, "lanes": lanes, "slot": slots}
        for name, value in {**fixed, **per_packet, "fragment": slots, "worker": ranks}.items():
            self._packets[name] = value
        self._packets["gradients"] = np.arange(lanes)
        self._burst = max(1, min(_MOST_FRAMES, _MOST_BYTES // kind.itemsize))
        self._control = [(socket.SOL_UDP, _UDP_SEGMENT, struct.pack("=H", kind.itemsize))]

    def push(self) -> float | None:
        """Push all slots and wait for the results; return the seconds for a packet and its result, or None if
        some were lost.
        """
        self._packets["fragment"] += _SLOTS
        awaited = self._packets["fragment"][0] + 1  # of each slot: fragment + 1
        began = time.perf_counter()
        for start in range(0, _SLOTS, self._burst):
            for sender, packets in zip(self._sockets, self._packets, strict=True):
                burst = packets[start : start + self._burst].tobytes()
                sender.sendmsg([burst], self._control, 0, self._to)
        while not all((results["sequence"] == awaited).all() for results in self._results):
            if time.perf_counter() - began > _LOST_S:
                return None
            os.sched_yield()  # the kernel may have left some to its own thread, on this core
        return (time.perf_counter() - began) / self._packets.size


def _mapped(ring: Ring) -> npt.NDArray[np.void]:
    """Map a ring's results into this process."""
    kind = layout.result(ring.lanes)
    size = -(-kind.itemsize * _SLOTS // mmap.PAGESIZE) * mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(ring.fd, size), kind, _SLOTS)


def measured_us(mtu: int) -> list[float]:
    """Return the microseconds that a worker's frame and its result took, in each trial. TestbedError if all
    lost frames.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with _workers(mtu) as workers:
        began = time.monotonic()
        trials: list[float] = []
        while time.monotonic() - began < WARM_UP_S:
            workers.push()
        while (passed_s := time.monotonic() - began) < WARM_UP_S + TRIALS_S or len(trials) < LEAST:
            if passed_s > MOST_S:
                break
            if (took_s := workers.push()) is not None:
                trials.append(took_s * 1e6)
    if not trials:
        raise TestbedError(f"in {MOST_S:g} s no burst of frames came back whole")
    return trials


@contextlib.contextmanager
def _workers(mtu: int) -> Iterator[_Workers]:
    """Make hosts, links and a ToR that adds, for the block."""
    tor, hosts = addresses.tor_dpid(_UNIT), tuple(range(1, _WORKERS + 1))
    ports = {host: addresses.tor_port_device(_UNIT, host) for host in hosts}
    switch_ip = addresses.tor_ip(tor)
    with contextlib.ExitStack() as stack:
        loaded = Programs(sources("xdp"), lanes_for(mtu))
        loaded.load()
        stack.callback(loaded.close)
        sockets = [stack.enter_context(sender) for sender in _wired(hosts, ports, mtu)]
        stack.enter_context(pair(addresses.CONTROL_DEVICES, mtu))
        open_control(loaded)
        for host, port in ports.items():
            loaded.attach("tor_port", port)
            in_namespace(
                NETNS_DIR / addresses.host_name(_UNIT, host), lambda: loaded.attach("host_port", "eth0")
            )
        with FeatureControl() as control:  # attaching a program to a veth turned GRO on
            for port in ports.values():
                control.set(port, wire_features(gro=False))
        cells = Cells(loaded)
        switch = XdpSwitch(cells, tor, {host: socket.if_nametoindex(port) for host, port in ports.items()})
        stack.callback(switch.close)
        hosts_rings, rings = XdpHosts(cells), []
        for rank, host in enumerate(hosts):
            switch.bind(host, Sender(_JOB, rank))
            rings.append(hosts_rings.attach((_UNIT, host), _JOB, 1, [0], _SLOTS, loaded.lanes))
            stack.callback(hosts_rings.detach, (_UNIT, host))
        switch.set_group(_JOB, 0, list(ports.values()))
        everyone, to_all = (1 << _WORKERS) - 1, group_ip(_JOB)
        switch.admit(
            _JOB, Entry(0, 1, everyone, 0, 0, 0, _SLOTS, 0, 0, switch_ip, NO_IP, to_all, loaded.lanes)
        )
        yield _Workers(loaded.lanes, sockets, rings, (switch_ip, spec.UDP_PORT))


def _wired(hosts: Sequence[int], ports: Mapping[int, str], mtu: int) -> list[socket.socket]:
    """Make hosts and their shaped links to `ports`; return a socket of each host."""
    NETNS_DIR.mkdir(exist_ok=True)
    names = {host: addresses.host_name(_UNIT, host) for host in hosts}
    namespaces = NetworkNamespaces()
    namespaces.add([WIRES, *names.values()], SYSCTLS)
    wires = []
    for host, name in names.items():
        mac, ifindex = addresses.host_mac(_UNIT, host), addresses.host_ifindex(_UNIT, host)
        end = WireEnd("eth0", name, mac, ifindex)
        wires.append(WireSpec(name, end, WireEnd(ports[host]), MAX_MBPS, _BUFFER_BYTES, mtu))
    made = Wires(namespaces, wires)
    made.make(lambda *_: None)
    tor = addresses.tor_dpid(_UNIT)
    gateway, mac = addresses.tor_ip(tor), addresses.tor_mac(tor)
    own = [
        HostAddress(name, "eth0", addresses.host_ip(_UNIT, host), PREFIX, gateway, ((gateway, mac),))
        for host, name in names.items()
    ]
    made.configure_hosts(own, lambda *_: None)
    sockets = []
    for name in names.values():
        with entered(namespaces[name]):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        sockets.append(sender)
    return sockets


def main(words: Sequence[str]) -> int:
    try:
        tool(
            "mount", "-t", "tmpfs", "optinc-frame-cost", "/run"
        )  # private: the namespaces' files end with it
        print("\n".join(f"{each:.4f}" for each in measured_us(int(words[0]))))
    except (TestbedError, ProbeFailure, OSError) as lack:
        print(str(lack).splitlines()[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
