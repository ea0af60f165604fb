"""The optical fabric as the controller holds it: brings switches to what policy says, and carries out reconfigurations one at a time.

Order of a reconfiguration: the affected ports go dark in the data plane; the old circuits' flows go, the new ones' come, barrier,
read-back; the fast path gets the new circuits and routes; the gate opens by itself when the dark time is over, and is watched until it
does. Ports of circuits that stay are never written to.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Protocol

from controller import policy
from controller.switch import Switch
from testbed.errors import TestbedError
from testbed.ocs.circuits import Circuit, checked, ports_of
from testbed.ocs.latency import draw
from testbed.ocs.plan import Pair, Plan, plan
from testbed.ocs.routes import tree
from testbed.topology import addresses
from testbed.topology.model import Topology

LOG = logging.getLogger("controller")
WATCH_BEFORE_NS = 300_000  # the gate is polled from this long before it should open
LIGHT_TIMEOUT_NS = 5_000_000_000


class Plane(Protocol):
    """The fast path. Ports are numbers at the optical switch."""

    def darken(self, ports: Sequence[int], until_ns: int) -> None: ...
    def connect(self, pairs: Sequence[tuple[int, int]]) -> None: ...
    def disconnect(self, ports: Sequence[int]) -> None: ...
    def circuits(self) -> dict[int, int]: ...
    def lit(self, port: int) -> bool: ...
    def set_routes(self, unit: int, routes: policy.Routes) -> None: ...


class Fabric:
    """All switches of a testbed. Thread-safe: one change at a time."""

    def __init__(self, topology: Topology, plane: Plane | None, history: Path) -> None:
        self._topology, self._plane = topology, plane
        self._ports = policy.unit_ports(topology)
        self._random = Random(topology.ocs.seed)
        self._switches: dict[int, Switch] = {}
        self._verified: set[int] = set()
        self._circuits: frozenset[Circuit] | None = None if topology.optical_ports else frozenset()
        self._dark: tuple[str, ...] = ()
        self._history_file = history
        self._history: list[dict[str, Any]] = _read_history(history)
        for _ in self._history:  # go on in the model's sequence where the process before this one stopped
            draw(topology.ocs, self._random)
        self._changing = threading.Lock()

    # ---- switches come and go ----

    def connected(self, switch: Switch) -> None:
        """A switch is there: brings it to what it should hold. What it holds already stays, and its circuits are taken over."""
        with self._changing:
            self._switches[switch.dpid] = switch
            if switch.dpid == addresses.OXC_DPID:
                self._take_over(switch)
            if self._circuits is not None:
                self._settle()

    def disconnected(self, dpid: int) -> None:
        """A switch is gone; what it forwards it goes on forwarding."""
        self._switches.pop(dpid, None)
        self._verified.discard(dpid)

    def _take_over(self, switch: Switch) -> None:
        there = policy.circuits_of(switch.flows(), self._topology)
        if self._circuits is None:
            initial = checked(self._topology.ocs.circuits, self._topology.optical_ports)
            self._circuits = there or initial
        switch.set(policy.oxc_flows(self._circuits))
        if self._plane:
            wanted = dict(pair for c in self._circuits for pair in (_numbers(c), _numbers(c)[::-1]))
            lit = self._plane.circuits()
            self._plane.disconnect([port for port in lit if wanted.get(port) != lit[port]])
            self._plane.connect(
                [_numbers(c) for c in sorted(self._circuits) if lit.get(_numbers(c)[0]) != _numbers(c)[1]]
            )
        self._verified.add(switch.dpid)

    def _settle(self) -> None:
        """Brings every connected ToR to the flows that the circuits ask for, and the fast path after it."""
        assert self._circuits is not None
        for unit, flows in policy.tor_flows(self._topology, self._circuits).items():
            switch = self._switches.get(addresses.tor_dpid(unit))
            if switch is None:
                continue
            switch.set(flows)
            if self._plane:
                self._plane.set_routes(unit, policy.routes_of(unit, flows))
            self._verified.add(switch.dpid)

    # ---- requests ----

    def ready(self) -> bool:
        """Whether every switch is connected and holds, read back, what it should."""
        wanted = {addresses.tor_dpid(unit.index) for unit in self._topology.units}
        if self._topology.optical_ports:
            wanted.add(addresses.OXC_DPID)
        return wanted <= self._verified

    def circuits(self) -> dict[str, Any]:
        """The circuits and the ports that are dark now."""
        return {"circuits": _pairs(self._circuits or ()), "dark": list(self._dark)}

    def history(self) -> list[dict[str, Any]]:
        """All reconfigurations, the oldest first, those of controllers before this one too."""
        return list(self._history)

    def plan(self, demands: Iterable[Pair]) -> Plan:
        """What circuits would serve these pairs of units."""
        return plan(self._current(), demands, self._ports)

    def tree(self, root: int, members: Iterable[int]) -> dict[int, list[int]]:
        """Which optical ports carry a packet from a unit to several."""
        return tree(self._current(), self._ports, root, members)

    def request(self, demands: Iterable[Pair]) -> dict[str, Any] | None:
        """Plans and applies. The event, or None when nothing had to change."""
        with self._changing:
            return self._apply(plan(self._current(), demands, self._ports).target)

    def apply(self, pairs: Iterable[Sequence[str]]) -> dict[str, Any] | None:
        """Has exactly these circuits. The event, or None when nothing had to change."""
        target = checked(pairs, self._topology.optical_ports)
        with self._changing:
            return self._apply(target)

    def _current(self) -> frozenset[Circuit]:
        if self._circuits is None:
            raise TestbedError("circuits: the optical switch has not connected yet")
        return self._circuits

    def _apply(self, target: frozenset[Circuit]) -> dict[str, Any] | None:
        current = self._current()
        removed, added = current - target, target - current
        if not removed and not added:
            return None
        oxc = self._switches.get(addresses.OXC_DPID)
        if oxc is None:
            raise TestbedError("change circuits: the optical switch is not connected")
        affected = ports_of(removed | added)
        dark = draw(self._topology.ocs, self._random)
        began_unix, began_ns = time.time(), time.monotonic_ns()
        self._dark = affected
        try:
            if self._plane:
                numbers = [_number(port) for port in affected]
                self._plane.darken(numbers, began_ns + dark.total_ns)
                self._plane.disconnect([_number(port) for port in ports_of(removed)])
            oxc.change(policy.oxc_flows(removed), ())
            if self._plane is None:
                _sleep_until(began_ns + dark.total_ns)
            oxc.set(policy.oxc_flows(target))
            self._circuits = target
            if self._plane:
                self._plane.connect([_numbers(c) for c in sorted(added)])
            with ThreadPoolExecutor(1) as watcher:  # beside the ToRs' flows, which may take longer than the dark time
                watched = watcher.submit(self._watch, added, began_ns, began_ns + dark.total_ns)
                self._settle()
                settled_ns = time.monotonic_ns()
                lit_ns, resolution_ns = watched.result()
        finally:
            self._dark = ()
        event = {
            "id": len(self._history) + 1,
            "time": began_unix,
            "ports": list(affected),
            "asked_ms": dark.total_ns / 1e6,
            "switch_ms": dark.switch_ns / 1e6,
            "lock_ms": dark.lock_ns / 1e6,
            "measured_ms": (lit_ns - began_ns) / 1e6 if added else None,
            "resolution_ms": resolution_ns / 1e6,
            "settled_ms": (settled_ns - began_ns) / 1e6,
            "removed": _pairs(removed),
            "added": _pairs(added),
        }
        self._history.append(event)
        with self._history_file.open("a") as file:
            file.write(json.dumps(event) + "\n")
        return event

    def _watch(self, added: Iterable[Circuit], began_ns: int, due_ns: int) -> tuple[int, int]:
        """Polls the gate until all new circuits are lit: when the first poll found them so, and how long before it the last one did not."""
        waiting = [_number(port) for port in ports_of(added)]
        if self._plane is None or not waiting:
            _sleep_until(due_ns)
            return time.monotonic_ns(), 0
        _sleep_until(due_ns - WATCH_BEFORE_NS)
        last_dark_ns = began_ns
        while True:
            before = time.monotonic_ns()
            waiting = [port for port in waiting if not self._plane.lit(port)]
            now = time.monotonic_ns()
            if not waiting:
                return now, now - last_dark_ns
            last_dark_ns = before
            if now > due_ns + LIGHT_TIMEOUT_NS:
                raise TestbedError(
                    f"light optical ports {waiting}: dark {(now - due_ns) / 1e6:.0f} ms after they should be lit"
                )


def _number(port: str) -> int:
    return addresses.oxc_port_number(*addresses.parse_optical_port(port))


def _numbers(c: Circuit) -> tuple[int, int]:
    return (_number(c.a), _number(c.b))


def _pairs(circuits: Iterable[Circuit]) -> list[list[str]]:
    return [list(c.ports) for c in sorted(circuits)]


def _sleep_until(monotonic_ns: int) -> None:
    rest_ns = monotonic_ns - time.monotonic_ns()
    if rest_ns > 0:
        time.sleep(rest_ns / 1e9)


def _read_history(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    events = []
    for line in path.read_text().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # a process that was killed while it wrote
            LOG.warning("%s: a line that is no JSON is left out", path.name)
    return events
