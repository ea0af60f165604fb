"""The conductor's interface to the fast path: circuits, their dark times, and routes, wherever each ToR's
programs keep them. Ports are numbers at the optical switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from controller.flows import RouteChanges, Routes
from controller.steps import Darkness
from testbed.dataplanes.folders import Router
from testbed.ocs.glimpses import Glimpses, Turned
from testbed.ocs.timetable import Kept, Timetable
from testbed.topology.addresses import Dpid
from testbed.wire.places import Frames

if TYPE_CHECKING:
    from testbed.dataplanes.xdp.plane import PinnedPlane
    from testbed.dataplanes.xdp.port_turner import Turner

Peers = Mapping[int, int | None]  # port and the other end of its circuit, None: no circuit


class Plane(Protocol):
    """The fast path, and the ToRs without OpenFlow."""

    def circuits(self) -> dict[int, int]: ...
    def lit(self, port: int) -> bool: ...

    def join(self, peers: Peers) -> None:
        """Switch ports at once, without a dark time."""

    def turn(self, peers: Peers, dark_ns: Darkness, watched: int | None) -> Turned:
        """Switch ports together, slightly later, dark for `dark_ns`, and begin to watch one of those that are
        dark longest.
        """

    def seen(self) -> Glimpses:
        """Wait for the end of the watched dark time; return the times of its probes."""

    def set_routes(self, dpid: Dpid, routes: Routes) -> None:
        """Replace a switch's whole table, and read it back."""

    def change_routes(self, changes: RouteChanges) -> None:
        """Delete the routes that each switch loses, which it must have, set those that it gains, and read
        both back.
        """

    def keep(
        self,
        table: Timetable,
        peers: Sequence[Mapping[int, int]],
        routes: Mapping[Frames, Sequence[Mapping[Dpid, Routes]]],
        start_ns: Callable[[], int],
    ) -> None:
        """Start a timetable with each matching's peers, and its routes for each kind of frames; `start_ns` is
        called last, for its start.
        """

    def leave(self, peers: Peers, dark_ns: Darkness) -> Turned:
        """End the timetable: ports go dark, slightly later, then the timetable ends; the ports stay dark for
        `dark_ns` after that.
        """

    def is_kept(self) -> bool: ...
    def kept(self) -> Kept | None:
        """Return the running timetable, whichever process started it, or None."""

    def kept_from_ns(self) -> int:
        """Return when the running timetable began, by the monotonic clock; 0: none runs."""

    def crossings(self) -> dict[int, tuple[int, int, int]]:
        """Count frames by port: those that crossed, that were lost in the dark, and that found no circuit."""

    def flows(self) -> dict[tuple[str, str, int, int], int]:
        """Count the bytes of plain traffic that hosts sent, by flow."""


class FastPath:
    """The XDP programs' circuits and routes; a process of its own switches ports."""

    def __init__(self, pinned: PinnedPlane, turner: Turner) -> None:
        self._pinned, self._turner = pinned, turner
        self.circuits, self.lit = pinned.circuits, pinned.lit
        self.set_routes = pinned.routes.set
        self.turn, self.seen = turner.turn, turner.seen
        self.keep, self.is_kept, self.kept = pinned.keep, pinned.is_kept, pinned.kept
        self.kept_from_ns = pinned.kept_from_ns
        self.crossings, self.flows = pinned.crossings, pinned.flows

    def change_routes(self, changes: RouteChanges) -> None:
        """Set the changed routes in switches' tables, and read them back."""
        self._pinned.routes.change(changes.rerouted())

    def leave(self, peers: Peers, dark_ns: Darkness) -> Turned:
        """End the timetable in the dark, and remove its entries."""
        turned = self._turner.turn(peers, dark_ns, None, ends_timetable=True)
        self._pinned.leave()
        return turned

    def join(self, peers: Peers) -> None:
        """Switch ports at once, without a dark time."""
        self._pinned.turn(peers, 0, 0)


class MixedPlane:
    """`fast_path`, except for the routes of the switches in `routers`."""

    def __init__(self, fast_path: Plane, routers: Mapping[Dpid, Router]) -> None:
        self._fast_path, self._routers = fast_path, routers
        self.circuits, self.lit, self.join = fast_path.circuits, fast_path.lit, fast_path.join
        self.turn, self.seen = fast_path.turn, fast_path.seen
        self.change_routes = fast_path.change_routes
        self.keep, self.leave = fast_path.keep, fast_path.leave
        self.is_kept, self.kept = fast_path.is_kept, fast_path.kept
        self.kept_from_ns = fast_path.kept_from_ns
        self.crossings, self.flows = fast_path.crossings, fast_path.flows

    def set_routes(self, dpid: Dpid, routes: Routes) -> None:
        """Replace a switch's whole table, and read it back."""
        if dpid in self._routers:
            self._routers[dpid](routes)
        else:
            self._fast_path.set_routes(dpid, routes)
