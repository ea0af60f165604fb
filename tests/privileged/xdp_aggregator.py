"""The XDP programs as an engine of the packet vectors: frames go through BPF_PROG_TEST_RUN, one at a time.

A frame's verdict is the counter that it raised. Where a redirected frame would leave is not to be seen in a test run, only that it leaves.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from testbed.inc.job import Job, Sender
from testbed.simulation.aggregator import Emission, To
from testbed.topology import addresses
from testbed.xdp import layout
from testbed.xdp.engine import Cells, XdpPsHost, XdpSwitch
from testbed.xdp.plane import ip_number, set_port
from testbed.xdp.program import verdict_counts
from testbed.xdp.syscall import XDP_DROP, XDP_PASS, XDP_REDIRECT, map_lookup, map_update, run_once
from tests.vectors.build import OPTICAL, SLOTS
from tests.vectors.in_step import Held

UNIT = 1  # TOR_IP's
UNITS = (1, 2, 3)  # those that can be reached
HOST_PORTS = range(1, 65)
_STATES = {0: (False, False), 1: (False, False), 2: (True, False), 3: (True, True)}  # -> complete, final
_PASSED_ON = ("forwarded", "to_ovs")  # counted beside the verdict on a partial sum that leaves


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


class _Unemptied:
    """A job finds its slots as the one before left them: as in the model, its generation alone tells it from that one."""

    def empty(self, base: int, size: int) -> None:
        pass


class _Switch(_Unemptied, XdpSwitch):
    pass


class _PsHost(_Unemptied, XdpPsHost):
    pass


class XdpAggregator:
    """The ToR of a unit, or a PS host behind port 1's device, with slots of its own that begin empty. A context manager.

    Several at once share `cells`, and need ports (number -> ifindex) and a unit each of their own.
    """

    def __init__(self, cells: Cells, ports: dict[int, int], is_host: bool = False, unit: int = UNIT) -> None:
        self._programs, self._ports, self._unit = cells.programs, ports, unit
        self._program = self._programs.program_fd("host_port" if is_host else "tor_port")
        self._place = _PsHost(cells, ports[1]) if is_host else _Switch(cells, unit, ports)
        self._admitted: set[int] = set()

    def __enter__(self) -> XdpAggregator:
        self.slots = self._place.slot_array()
        assert self._place.slots >= SLOTS
        somewhere = next(iter(self._ports.values()))
        for unit in UNITS:
            key = np.zeros((), layout.ROUTE_KEY)
            key["owner"], key["prefix"], key["ip"] = self._unit, 24, ip_number(addresses.unit_network(unit))
            route = np.zeros((), layout.ROUTE)
            route["ifindex"] = somewhere
            map_update(self._programs.map_fd("routes"), key.tobytes(), route.tobytes())
        for port, ifindex in self._ports.items():
            set_port(self._programs, ifindex, self._unit, port, layout.PORT_FABRIC)
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._admitted):
            self.release(number)
        self._place.close()

    def verdicts(self) -> dict[str, int]:
        return verdict_counts(self._programs.map_fd("verdicts"))

    # ------------------------------------------------------------------ what an engine of the vectors does

    def bind(self, port: int, senders: Iterable[Sender]) -> None:
        assert isinstance(self._place, XdpSwitch)
        self._place.bind(port, next(iter(senders), None))

    def admit(self, number: int, job: Job) -> None:
        if isinstance(self._place, XdpSwitch) and number not in self._admitted:
            self._place.set_group(number, [socket.if_indextoname(next(iter(self._ports.values())))])
        self._place.admit(number, job)
        self._admitted.add(number)

    def release(self, number: int) -> None:
        self._place.release(number)
        self._admitted.discard(number)

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

    def slots_held(self) -> list[Held | None]:
        """What each slot holds."""
        kind = layout.slot(self._programs.lanes)
        held: list[Held | None] = []
        for at in range(SLOTS):
            raw = map_lookup(self.slots, at.to_bytes(4, "little"), kind.itemsize)
            assert raw is not None
            slot = np.frombuffer(raw, kind)[0]
            complete, final = _STATES[int(slot["state"])]
            lanes = np.stack([slot["pairs"] >> 32, slot["pairs"] & 0xFFFFFFFF], 1).reshape(-1).astype(np.uint32)
            told = (int(slot[name]) for name in ("generation", "fragment", "bitmap"))
            held.append(Held(*told, complete, final, lanes) if slot["state"] else None)
        return held
