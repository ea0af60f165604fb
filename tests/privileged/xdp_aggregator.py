"""The XDP programs as an engine of the packet vectors: frames go through BPF_PROG_TEST_RUN, one at a time.

A frame's verdict is the counter that it raised. Where a redirected frame would leave is not to be seen in a test run, only that it leaves.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from testbed.inc.job import Job, Role, Sender
from testbed.simulation.aggregator import Emission, To
from testbed.topology import addresses
from testbed.xdp import layout
from testbed.xdp.plane import ip_number
from testbed.xdp.program import Programs, verdict_counts
from testbed.xdp.syscall import (
    MAP_TYPE_ARRAY,
    MAP_TYPE_DEVMAP,
    XDP_DROP,
    XDP_PASS,
    XDP_REDIRECT,
    map_create,
    map_delete,
    map_update,
    run_once,
)
from tests.vectors.build import OPTICAL, SLOTS

UNIT = 1  # TOR_IP's
UNITS = (1, 2, 3)  # those that can be reached
HOST_PORTS = range(1, 65)
ROLES = {Role.FINAL: layout.ROLE_FINAL, Role.PARTIAL: layout.ROLE_PARTIAL, Role.TRANSIT: layout.ROLE_TRANSIT}
_JOBS_EACH = 16
_PASSED_ON = ("forwarded", "to_ovs")  # counted beside the verdict on a partial sum that leaves


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


@contextmanager
def devices() -> Iterator[dict[int, int]]:
    """A device for each port, in the calling process's network namespace: port number -> ifindex. No frame goes over them."""
    ports = [*HOST_PORTS, *OPTICAL]
    names = {port: f"p{port}" for port in ports}
    pairs = zip(ports[::2], ports[1::2], strict=True)
    lines = [f"link add {names[a]} type veth peer name {names[b]}" for a, b in pairs]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    try:
        yield {port: socket.if_nametoindex(name) for port, name in names.items()}
    finally:
        gone = [f"link delete {names[port]}" for port in ports[::2]]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(gone), text=True, check=True)


class XdpAggregator:
    """The ToR of a unit, or a PS host behind port 1's device, with slots of its own that begin empty. A context manager.

    Several at once need ports (number -> ifindex) and an `index` each of their own.
    """

    def __init__(
        self, programs: Programs, ports: dict[int, int], is_host: bool = False, unit: int = UNIT, index: int = 0
    ) -> None:
        self._programs, self._ports, self._unit, self._index = programs, ports, unit, index
        self._program = programs.program_fd("host_port" if is_host else "tor_port")
        self._owner = ports[1] if is_host else unit
        self._senders: dict[int, Sender | None] = {}
        self._entries: dict[int, int] = {}  # job -> index into jobs

    def __enter__(self) -> XdpAggregator:
        slot = layout.slot(self._programs.lanes)
        self.slots = map_create(MAP_TYPE_ARRAY, 4, slot.itemsize, layout.SIZES["MAX_SLOTS"], 0, "slots")
        assert layout.SIZES["MAX_SLOTS"] >= SLOTS
        somewhere = next(iter(self._ports.values()))
        map_update(self._programs.map_fd("slots"), _u32(self._index), _u32(self.slots))
        group = map_create(MAP_TYPE_DEVMAP, 4, 4, 1, 0, "group")
        map_update(group, _u32(0), _u32(somewhere))
        map_update(self._programs.map_fd("groups"), _u32(self._index), _u32(group))
        os.close(group)
        for unit in UNITS:
            key = np.zeros((), layout.ROUTE_KEY)
            key["owner"], key["prefix"], key["ip"] = self._unit, 24, ip_number(addresses.unit_network(unit))
            route = np.zeros((), layout.ROUTE)
            route["ifindex"] = somewhere
            map_update(self._programs.map_fd("routes"), key.tobytes(), route.tobytes())
        self._set_ports()
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._entries):
            self.release(number)
        map_delete(self._programs.map_fd("slots"), _u32(self._index))
        os.close(self.slots)

    def verdicts(self) -> dict[str, int]:
        return verdict_counts(self._programs.map_fd("verdicts"))

    # ------------------------------------------------------------------ what an engine of the vectors does

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        self._senders[port] = next(iter(senders), None)
        self._set_ports()

    def admit(self, number: int, job: Job) -> None:
        entry = np.zeros((), layout.JOB)
        for name in ("members", "generation", "base", "size", "total", "local", "up_base"):
            entry[name] = getattr(job, name)
        entry["id"], entry["unit"], entry["role"] = number, job.index, ROLES[job.role]
        entry["aggregator"], entry["group"] = self._index, self._index
        for name in ("self_ip", "up_ip", "group_ip"):
            entry[name] = ip_number(getattr(job, name))
        index = self._entries.setdefault(number, _JOBS_EACH * self._index + len(self._entries) + 1)
        map_update(self._programs.map_fd("jobs"), _u32(index), entry.tobytes())
        map_update(self._programs.map_fd("job_index"), self._key(number), _u32(index))
        self._set_ports()

    def release(self, number: int) -> None:
        map_delete(self._programs.map_fd("job_index"), self._key(number))
        map_update(self._programs.map_fd("jobs"), _u32(self._entries.pop(number)), bytes(layout.JOB.itemsize))
        self._set_ports()

    def receive(self, data: bytes, port: int) -> tuple[str, list[Emission]]:
        before = self.verdicts()
        action, left = run_once(self._program, data, self._ports[port])
        risen = [name for name, count in self.verdicts().items() for _ in range(count - before[name])]
        if len(risen) > 1:
            risen = [name for name in risen if name not in _PASSED_ON]
        verdict = " and ".join(risen) if risen else "passed"
        where = {XDP_REDIRECT: To.ROUTE, XDP_PASS: To.STACK}
        assert action in (*where, XDP_DROP), f"{verdict}: action {action}"
        return verdict, [Emission(where[action], left)] if action in where else []

    # ------------------------------------------------------------------ its maps

    def _key(self, number: int) -> bytes:
        return np.array((self._owner, number), layout.JOB_KEY).tobytes()

    def _set_ports(self) -> None:
        for port, ifindex in self._ports.items():
            entry = np.zeros((), layout.PORT)
            entry["owner"], entry["number"] = self._unit, port
            entry["self_ip"] = ip_number(addresses.tor_ip(self._unit))
            sender = self._senders.get(port)
            if port not in self._senders:
                entry["kind"] = layout.PORT_FABRIC
            elif sender is None:
                entry["kind"] = layout.PORT_HOST
            else:
                entry["kind"] = layout.PORT_PS if sender.worker is None else layout.PORT_WORKER
                entry["job"], entry["worker"] = sender.job, sender.worker or 0
                entry["index"] = self._entries.get(sender.job, 0)
            map_update(self._programs.map_fd("ports"), _u32(ifindex), entry.tobytes())
