"""The fast path as the conductor sees it, and one for a testbed whose ToRs are not all alike: circuits are
the fast path's, routes are where each ToR's programs keep them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from controller.flows import Routes
from testbed.dataplanes.folders import Router
from testbed.topology.units import Unit


class Plane(Protocol):
    """The fast path, and the ToRs that speak no OpenFlow. Ports are numbers at the optical switch."""

    def darken(self, ports: Sequence[int], until_ns: int) -> None: ...
    def connect(self, pairs: Sequence[tuple[int, int]]) -> None: ...
    def disconnect(self, ports: Sequence[int]) -> None: ...
    def circuits(self) -> dict[int, int]: ...
    def lit(self, port: int) -> bool: ...

    def set_routes(self, unit: Unit, routes: Routes) -> None:
        """Replaces a ToR's whole table, and reads it back."""


class MixedPlane:
    """`fast_path`, but for the routes of the units in `routers`."""

    def __init__(self, fast_path: Plane, routers: Mapping[Unit, Router]) -> None:
        self._fast_path, self._routers = fast_path, routers
        self.darken, self.connect, self.disconnect = fast_path.darken, fast_path.connect, fast_path.disconnect
        self.circuits, self.lit = fast_path.circuits, fast_path.lit

    def set_routes(self, unit: Unit, routes: Routes) -> None:
        if unit in self._routers:
            self._routers[unit](routes)
        else:
            self._fast_path.set_routes(unit, routes)
