"""Switches and a fast path in memory, for the controller's tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from controller.conductor import Conductor
from controller.flows import Flow, RouteChanges, Routes
from controller.steps import Darkness
from testbed.ocs.glimpses import Glimpses, Turned
from testbed.ocs.timetable import Kept, Timetable
from testbed.topology import addresses


class ModelSwitch:
    """Has flows as a switch does, and logs every change."""

    is_gone = False

    def __init__(self, dpid: int, flows: frozenset[Flow] = frozenset()) -> None:
        self.dpid, self.held, self.log = dpid, flows, list[tuple[frozenset[Flow], frozenset[Flow]]]()

    def flows(self) -> frozenset[Flow]:
        return self.held

    def change(self, remove: object, add: object) -> None:
        gone, come = frozenset(remove), frozenset(add)  # type: ignore[call-overload]
        self.log.append((gone, come))
        self.held = self.held - gone | come


def with_change(held: Routes, gone: Routes, new: Routes) -> Routes:
    """Return routes after a change. Routes that it removes must exist, unless the change was made already."""
    assert all(held.get(key) in (route, new.get(key)) for key, route in gone.items()), "nobody knew"
    return {key: route for key, route in held.items() if key not in gone} | dict(new)


class ModelPlane:
    """A fast path in memory whose ports are lit as soon as they are asked about."""

    def __init__(self) -> None:
        self.peers: dict[int, int] = {}
        self.touched: set[int] = set()
        self.routes: dict[int, Routes] = {}
        self.table: tuple[Timetable, object, object] | None = None
        self.darkness: tuple[dict[int, int | None], int] | None = None

    def join(self, peers: Mapping[int, int | None]) -> None:
        self.touched |= peers.keys()
        for port, peer in peers.items():
            self.peers.pop(port, None)
            if peer is not None:
                self.peers[port] = peer

    def turn(self, peers: Mapping[int, int | None], dark_ns: Darkness, watched: int | None) -> Turned:
        self.join(peers)
        self.asked, self.watched = (dict(peers), dark_ns), watched
        self.turned = Turned(1, 1 + (dark_ns if isinstance(dark_ns, int) else max(dark_ns)))
        return self.turned

    def seen(self) -> Glimpses:
        return Glimpses(0, self.turned.dark_at_ns, self.turned.lit_at_ns - 1, self.turned.lit_at_ns)

    def circuits(self) -> dict[int, int]:
        return dict(self.peers)

    def lit(self, port: int) -> bool:
        return port in self.peers

    def set_routes(self, unit: int, routes: Routes) -> None:
        self.routes[unit] = routes

    def change_routes(self, changes: RouteChanges) -> None:
        for unit, change in changes.items():
            self.routes[unit] = with_change(self.routes[unit], *change)

    def keep(self, table: Timetable, peers: object, routes: object, start_ns: Callable[[], int]) -> None:
        self.table = (table, peers, routes)

    def leave(self, peers: Mapping[int, int | None], dark_ns: Darkness) -> Turned:
        assert isinstance(dark_ns, int)
        self.table, self.darkness = None, (dict(peers), dark_ns)
        now_ns = time.monotonic_ns()
        return Turned(now_ns, now_ns + dark_ns)

    def is_kept(self) -> bool:
        return self.table is not None

    def kept_from_ns(self) -> int:
        return 7 if self.table else 0

    def kept(self) -> Kept | None:
        if self.table is None:
            return None
        table, peers, _ = self.table
        starts_ns = tuple(matching.start_ns for matching in table.matchings)
        return Kept(table.period_ns, table.guard_ns, starts_ns, tuple(peers))  # type: ignore[arg-type]

    def flows(self) -> dict[tuple[str, str, int, int], int]:
        return {("10.0.1.1", "10.0.1.2", 17, 5001): 1500}

    def crossings(self) -> dict[int, tuple[int, int, int]]:
        return {1: (5, 3, 1), 0: (0, 0, 2)}


def circuits(conductor: Conductor) -> list[list[str]]:
    return [list(c.ports) for c in sorted(conductor.state.current)]


def number(port: str) -> int:
    return addresses.oxc_port_number(*addresses.parse_optical_port(port))
