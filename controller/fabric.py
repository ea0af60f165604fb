"""The optical fabric as the controller holds it: brings switches to what policy says, and carries out
reconfigurations one at a time.

Order of a reconfiguration: the affected ports go dark in the data plane; the old circuits' flows go, the new
ones' come, barrier, read-back; the fast path gets the new circuits and routes; the gate opens by itself when
the dark time is over, and is watched until it does. Ports of circuits that stay are never written to.
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
from testbed.errors import RequestError, TestbedError
from testbed.ocs.circuits import Circuit, checked, circuit, ports_of
from testbed.ocs.latency import draw
from testbed.ocs.plan import Pair, Plan, plan
from testbed.ocs.routes import tree
from testbed.topology import addresses
from testbed.topology.model import Topology

LOG = logging.getLogger("controller")
WATCH_BEFORE_NS = 300_000  # the gate is polled from this long before it should open
LIGHT_TIMEOUT_NS = 5_000_000_000
FINISH_TIMEOUT_S = 5.0


class Plane(Protocol):
    """The fast path, and the ToRs that speak no OpenFlow. Ports are numbers at the optical switch."""

    def darken(self, ports: Sequence[int], until_ns: int) -> None: ...
    def connect(self, pairs: Sequence[tuple[int, int]]) -> None: ...
    def disconnect(self, ports: Sequence[int]) -> None: ...
    def circuits(self) -> dict[int, int]: ...
    def lit(self, port: int) -> bool: ...

    def set_routes(self, unit: int, routes: policy.Routes) -> None:
        """Replaces a ToR's whole table, and reads it back."""


class Fabric:
    """All switches of a testbed. Thread-safe: one change at a time."""

    def __init__(self, topology: Topology, plane: Plane | None, history: Path) -> None:
        self._topology, self._plane = topology, plane
        self._ports = policy.unit_ports(topology)
        self._random = Random(topology.ocs.seed)
        self._switches: dict[int, Switch] = {}
        self._verified: set[int] = set()
        self._programmed = frozenset(unit.index for unit in topology.units if not unit.data_plane.is_bridge)
        self._circuits: frozenset[Circuit] | None = None
        self._tor_flows: dict[int, frozenset[policy.Flow]] = {}
        if not topology.optical_ports:
            self._decide(frozenset())
        self._dark: tuple[str, ...] = ()
        self._history_file, self._unwritten = history, bytearray()
        self._history: list[dict[str, Any]] = _read_history(history)
        for _ in self._history:  # go on in the model's sequence where the process before this one stopped
            draw(topology.ocs, self._random)
        self._changing = threading.Lock()

    # ---- switches come and go ----

    def connected(self, switch: Switch) -> None:
        """A switch is there: brings it to what it should hold. What it holds already stays, and its circuits
        are taken over.
        """
        with self._changing:
            self._switches[switch.dpid] = switch
            try:
                if switch.dpid == addresses.OXC_DPID:
                    self._take_over(switch)
                elif switch.dpid in self._tor_flows:
                    self._settle((switch.dpid,))
            except TestbedError:
                self.disconnected(switch)
                raise
            if switch.dpid == addresses.OXC_DPID:
                self._settle(self._tor_flows)

    def begin(self) -> None:
        """Sets what depends on no switch to connect: routes of ToRs without OpenFlow, where there are no
        circuits to wait for.

        One that fails is `unsettled`.
        """
        with self._changing:
            try:
                self._settle(self._programmed & self._tor_flows.keys())
            except TestbedError as error:
                LOG.error("%s", error)

    def resettle(self, unit: int) -> None:
        """Sets a ToR's routes again: it was started again, and has none. It does not count as ready until
        they are read back.
        """
        if unit not in self._ports:
            raise self._no_unit(unit)
        with self._changing:
            self._verified.discard(addresses.tor_dpid(unit))
            if unit in self._tor_flows:
                self._settle((unit,))

    def unsettled(self) -> list[str]:
        """The units that only `resettle` helps: what they should hold is known, they can be told, and it
        failed. None during a change.
        """
        if self._changing.locked():
            return []
        return [
            addresses.unit_name(unit)
            for unit in self._tor_flows
            if addresses.tor_dpid(unit) not in self._verified
            and (unit in self._programmed or addresses.tor_dpid(unit) in self._switches)
        ]

    def disconnected(self, switch: Switch) -> None:
        """A switch is gone; what it forwards it goes on forwarding. One that is back already by another
        connection stays.
        """
        if self._switches.get(switch.dpid) is switch:
            del self._switches[switch.dpid]
            self._verified.discard(switch.dpid)

    def finish(self) -> None:
        """Waits for a change in progress, and allows no further one."""
        self._changing.acquire(timeout=FINISH_TIMEOUT_S)

    def _take_over(self, switch: Switch) -> None:
        there = policy.circuits_of(switch.flows(), self._topology)
        if self._circuits is None:
            self._decide(there or self._last_decided())
        assert self._circuits is not None
        switch.set(policy.oxc_flows(self._circuits))
        if self._plane:
            wanted = dict(pair for c in self._circuits for pair in (_numbers(c), _numbers(c)[::-1]))
            lit = self._plane.circuits()
            self._plane.disconnect([port for port in lit if wanted.get(port) != lit[port]])
            self._plane.connect(
                [_numbers(c) for c in sorted(self._circuits) if lit.get(_numbers(c)[0]) != _numbers(c)[1]]
            )
        self._verified.add(switch.dpid)

    def _last_decided(self) -> frozenset[Circuit]:
        """The initial circuits, and all changes since."""
        circuits = checked(self._topology.ocs.circuits, self._topology.optical_ports)
        for event in self._history:
            removed, added = (
                frozenset(circuit(*pair) for pair in event[key]) for key in ("removed", "added")
            )
            circuits = circuits - removed | added
        return circuits

    def _decide(self, circuits: frozenset[Circuit]) -> None:
        self._circuits = circuits
        self._tor_flows = policy.tor_flows(self._topology, circuits)

    def _settle(self, units: Iterable[int]) -> None:
        """Brings these units' ToRs, where they are connected, to the flows that the circuits ask for, and the
        fast path after it.

        All of them, whatever happens with one; then raises what happened first.
        """
        failures = []
        for unit in units:
            try:
                self._settle_one(unit, self._tor_flows[unit])
            except TestbedError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _settle_one(self, unit: int, flows: frozenset[policy.Flow]) -> None:
        self._verified.discard(addresses.tor_dpid(unit))
        if unit not in self._programmed:
            switch = self._switches.get(addresses.tor_dpid(unit))
            if switch is None:
                return
            switch.set(flows)
        elif self._plane is None:
            return
        if self._plane:
            self._plane.set_routes(unit, policy.routes_of(unit, flows))
        self._verified.add(addresses.tor_dpid(unit))

    # ---- requests ----

    def ready(self) -> bool:
        """Whether every switch is connected, if it speaks OpenFlow, and holds, read back, what it should."""
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
        members = list(members)
        for unit in (root, *members):
            if unit not in self._ports:
                raise self._no_unit(unit)
        return tree(self._current(), self._ports, root, members)

    def routes(self) -> dict[str, dict[str, str]]:
        """By unit: the device by which its ToR sends to each address or network."""
        return {
            addresses.unit_name(unit): {
                f"{ip}/{prefix}": device
                for (ip, prefix), (device, _) in sorted(policy.routes_of(unit, flows).items())
            }
            for unit, flows in self._tor_flows.items()
        }

    def request(self, demands: Iterable[Pair]) -> dict[str, Any] | None:
        """Plans and applies. The event, or None when nothing had to change."""
        with self._changing:
            return self._apply(plan(self._current(), demands, self._ports).target)

    def apply(self, pairs: Iterable[Sequence[str]]) -> dict[str, Any] | None:
        """Has exactly these circuits. The event, or None when nothing had to change."""
        target = checked(pairs, self._topology.optical_ports)
        with self._changing:
            return self._apply(target)

    def _no_unit(self, unit: int) -> RequestError:
        return RequestError(f"{addresses.unit_name(unit)}: no such unit; there are u1 to u{max(self._ports)}")

    def _current(self) -> frozenset[Circuit]:
        if self._circuits is None:
            raise TestbedError("circuits: the optical switch has not connected yet")
        return self._circuits

    def _apply(self, target: frozenset[Circuit]) -> dict[str, Any] | None:
        current = self._current()
        oxc = self._switches.get(addresses.OXC_DPID)
        if oxc is not None and oxc.dpid not in self._verified:
            self._take_over(oxc)  # a change before this one failed half-way
        removed, added = current - target, target - current
        if not removed and not added:
            return None
        if oxc is None:
            raise TestbedError("change circuits: the optical switch is not connected")
        affected = ports_of(removed | added)
        dark = draw(self._topology.ocs, self._random)
        began_unix, began_ns = time.time(), time.monotonic_ns()
        self._dark = affected
        unsettled: TestbedError | None = None
        try:
            if self._plane:
                numbers = [_number(port) for port in affected]
                self._plane.darken(numbers, began_ns + dark.total_ns)
                self._plane.disconnect([_number(port) for port in ports_of(removed)])
            oxc.change(policy.oxc_flows(removed), ())
            if self._plane is None:
                _sleep_until(began_ns + dark.total_ns)
            oxc.set(policy.oxc_flows(target))
            self._decide(target)
            if self._plane:
                self._plane.connect([_numbers(c) for c in sorted(added)])
            with ThreadPoolExecutor(
                1
            ) as watcher:  # beside the ToRs' flows, which may take longer than the dark time
                watched = watcher.submit(self._watch, added, began_ns, began_ns + dark.total_ns)
                try:
                    self._settle(self._tor_flows)
                except TestbedError as error:  # the ToR's failure: the circuits have changed
                    unsettled = error
                settled_ns = time.monotonic_ns()
                lit_ns, resolution_ns = watched.result()
        except TestbedError:
            self._verified.discard(oxc.dpid)
            raise
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
        self._keep(event)
        if unsettled:
            raise unsettled
        return event

    def _keep(self, event: dict[str, Any]) -> None:
        """Writes an event to the file that a controller which starts again reads. What does not get there,
        for the disk is full, is written with the next.
        """
        self._unwritten += json.dumps(event).encode() + b"\n"
        try:
            with self._history_file.open("ab", buffering=0) as file:
                while self._unwritten:
                    del self._unwritten[: file.write(self._unwritten)]
        except OSError as error:
            LOG.warning("event %d is not in %s yet: %s", event["id"], self._history_file.name, error.strerror)

    def _watch(self, added: Iterable[Circuit], began_ns: int, due_ns: int) -> tuple[int, int]:
        """Polls the gate until all new circuits are lit: when the first poll found them so, and how long
        before it the last one did not.
        """
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
                    f"light optical ports {waiting}: dark {(now - due_ns) / 1e6:.0f} ms after they should be "
                    f"lit"
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
    text = path.read_text()
    for line in text.splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:  # a process that was killed while it wrote
            LOG.warning("%s: a line that is no JSON is left out", path.name)
    if text and not text.endswith("\n"):  # the next event must not go onto the half line
        with path.open("a") as file:
            file.write("\n")
    return events
