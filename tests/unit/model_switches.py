"""Switches and a fast path in memory, for the controller's tests."""

from __future__ import annotations

from controller.conductor import Conductor
from controller.flows import Flow, Routes
from testbed.topology import addresses


class ModelSwitch:
    """Holds flows as a switch does, and writes down every change."""

    is_gone = False

    def __init__(self, dpid: int, flows: frozenset[Flow] = frozenset()) -> None:
        self.dpid, self.held, self.log = dpid, flows, list[tuple[frozenset[Flow], frozenset[Flow]]]()

    def flows(self) -> frozenset[Flow]:
        return self.held

    def change(self, remove: object, add: object) -> None:
        gone, come = frozenset(remove), frozenset(add)  # type: ignore[call-overload]
        self.log.append((gone, come))
        self.held = self.held - gone | come


class ModelPlane:
    """The fast path on a clock of its own: ports light as soon as they are asked about."""

    def __init__(self) -> None:
        self.peers: dict[int, int] = {}
        self.touched: set[int] = set()
        self.routes: dict[int, Routes] = {}

    def darken(self, ports: object, until_ns: int) -> None:
        self.touched |= set(ports)  # type: ignore[call-overload]

    def connect(self, pairs: object) -> None:
        for a, b in pairs:  # type: ignore[attr-defined]
            self.peers[a], self.peers[b] = b, a
            self.touched |= {a, b}

    def disconnect(self, ports: object) -> None:
        for port in ports:  # type: ignore[attr-defined]
            del self.peers[port]

    def circuits(self) -> dict[int, int]:
        return dict(self.peers)

    def lit(self, port: int) -> bool:
        return port in self.peers

    def set_routes(self, unit: int, routes: Routes) -> None:
        self.routes[unit] = routes


def circuits(conductor: Conductor) -> list[list[str]]:
    return [list(c.ports) for c in sorted(conductor.state.current)]


def number(port: str) -> int:
    return addresses.oxc_port_number(*addresses.parse_optical_port(port))
