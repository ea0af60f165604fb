"""The plane of a fabric whose ToRs are not all alike: circuits are the fast path's, routes are where each
ToR's engine keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller import policy
from controller.fabric import Plane
from testbed.dataplanes.folders import Router


class MixedPlane:
    """`fast_path`, but for the routes of the units in `routers`."""

    def __init__(self, fast_path: Plane, routers: Mapping[int, Router]) -> None:
        self._fast_path, self._routers = fast_path, routers
        self.darken, self.connect, self.disconnect = fast_path.darken, fast_path.connect, fast_path.disconnect
        self.circuits, self.lit = fast_path.circuits, fast_path.lit

    def set_routes(self, unit: int, routes: policy.Routes) -> None:
        if unit in self._routers:
            self._routers[unit](routes)
        else:
            self._fast_path.set_routes(unit, routes)
