"""The fast path as the conductor sees it: circuits and their darkness, and routes where each ToR's programs
keep them. Ports are numbers at the optical switch.
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

if TYPE_CHECKING:
    from testbed.dataplanes.xdp.plane import PinnedPlane
    from testbed.dataplanes.xdp.port_turner import Turner

Peers = Mapping[int, int | None]  # port and the other end of its circuit, None: no circuit


class Plane(Protocol):
    """The fast path, and the ToRs that speak no OpenFlow."""

    def circuits(self) -> dict[int, int]: ...
    def lit(self, port: int) -> bool: ...

    def join(self, peers: Peers) -> None:
        """Turns ports at once, without darkness."""

    def turn(self, peers: Peers, dark_ns: Darkness, watched: int | None) -> Turned:
        """Turns ports together, a little later, dark for so long, and begins to watch one of them, of those
        that are dark longest.
        """

    def seen(self) -> Glimpses:
        """Waits for the end of a darkness that is watched, and says what was seen of it."""

    def set_routes(self, dpid: Dpid, routes: Routes) -> None:
        """Replaces a switch's whole table, and reads it back."""

    def change_routes(self, changes: RouteChanges) -> None:
        """Takes the first of these routes of each switch away, which it has, sets the second, and reads both
        back.
        """

    def keep(
        self,
        table: Timetable,
        peers: Sequence[Mapping[int, int]],
        routes: Sequence[Mapping[Dpid, Routes]],
        start_ns: Callable[[], int],
    ) -> None:
        """Keeps a timetable by each matching's peers and routes, from a time on that is asked for last."""

    def leave(self, peers: Peers, dark_ns: Darkness) -> Turned:
        """Keeps none: ports go dark, a little later, then the timetable ends, and for so long after that they
        are dark.
        """

    def is_kept(self) -> bool: ...
    def kept(self) -> Kept | None:
        """Says what is kept, by whichever process it was begun."""

    def kept_from_ns(self) -> int:
        """Says when what is kept began, by the monotonic clock; 0: nothing is."""

    def crossings(self) -> dict[int, tuple[int, int, int]]:
        """Counts frames by port: those that crossed, were lost in the dark, and where no circuit was."""

    def flows(self) -> dict[tuple[str, str, int, int], int]:
        """Counts the bytes of plain traffic that hosts sent, by flow."""


class FastPath:
    """The XDP programs' circuits and routes; a process of its own turns ports."""

    def __init__(self, pinned: PinnedPlane, turner: Turner) -> None:
        self._pinned, self._turner = pinned, turner
        self.circuits, self.lit = pinned.circuits, pinned.lit
        self.set_routes = pinned.routes.set
        self.turn, self.seen = turner.turn, turner.seen
        self.keep, self.is_kept, self.kept = pinned.keep, pinned.is_kept, pinned.kept
        self.kept_from_ns = pinned.kept_from_ns
        self.crossings, self.flows = pinned.crossings, pinned.flows

    def change_routes(self, changes: RouteChanges) -> None:
        """Sets what changes in switches' tables, and reads it back."""
        self._pinned.routes.change(changes.rerouted())

    def leave(self, peers: Peers, dark_ns: Darkness) -> Turned:
        """Ends the timetable in the dark, and clears what is left of it."""
        turned = self._turner.turn(peers, dark_ns, None, ends_timetable=True)
        self._pinned.leave()
        return turned

    def join(self, peers: Peers) -> None:
        """Turns ports at once, without darkness."""
        self._pinned.turn(peers, 0, 0)


class MixedPlane:
    """`fast_path`, but for the routes of the switches in `routers`."""

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
        """Replaces a switch's whole table, and reads it back."""
        if dpid in self._routers:
            self._routers[dpid](routes)
        else:
            self._fast_path.set_routes(dpid, routes)
