"""The data between deciding and carrying out: events go in, tasks of steps come out. Pure data.

A task is a list of steps about one switch, in order; the first failure ends it. A task's answer is its last
step's, or `Failed`. Tasks that are out at the same time do not depend on each other. Ports are numbers at the
optical switch, times are CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controller.flows import Flow, RouteChanges, Routes
from controller.records import ChangeRecord
from testbed.ocs.circuits import Circuit
from testbed.optics.model import CircuitTurn, DarkTimes
from testbed.topology.addresses import Dpid
from testbed.topology.units import UnitPair

LIGHT: Final = Dpid(0)  # the subject of a task that waits for new circuits to be lit; no switch's number
MODEL: Final = Dpid(-1)  # the subject of a task that queries the optical model; no switch's number
ROUTES: Final = Dpid(-2)  # the subject of a task that leads routes round links; no switch's number


# ---- events ----


@dataclass(frozen=True, slots=True)
class Began:
    """The controller started; no switch has connected."""


@dataclass(frozen=True, slots=True)
class Came:
    """One or several switches connected; the optical switch only by itself. Their contents are unknown."""

    dpid: Dpid
    others: tuple[Dpid, ...] = ()


@dataclass(frozen=True, slots=True)
class Gone:
    """A switch disconnected; it keeps forwarding."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class Restarted:
    """A unit's switch was restarted, and has no routes."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class Overdue:
    """Switches do not hold what they should, although no errand runs: setting them failed."""


@dataclass(frozen=True, slots=True)
class Linked:
    """Links went down or came back: the names of all optical ports and core links that are down now."""

    down: frozenset[str]


@dataclass(frozen=True, slots=True)
class Demanded:
    """A request for a circuit between each of these pairs of units."""

    pairs: tuple[UnitPair, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """A request for exactly these circuits."""

    circuits: frozenset[Circuit]


# ---- answers to tasks ----


@dataclass(frozen=True, slots=True)
class Drawn:
    """The answer to `AskModel`: how long the change will be dark."""

    times: DarkTimes


@dataclass(frozen=True, slots=True)
class Timed:
    """The answer to `TellTime`: seconds of the wall clock, for people."""

    unix_s: float


@dataclass(frozen=True, slots=True)
class Held:
    """The answer to `Read`: the controller's flows in a switch."""

    dpid: Dpid
    flows: frozenset[Flow]


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to `ReadLight`: port -> peer in the fast path."""

    peers: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Lit:
    """The answer to `Watch`: when the dark time began (None: when the change did); when it had ended; by how
    much it may have been shorter; and when the routes were set, if the task included them.
    """

    began_ns: int | None
    at_ns: int
    resolution_ns: int
    routed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to a task whose last step has no answer of its own."""

    about: Dpid


@dataclass(frozen=True, slots=True)
class Failed:
    """A step of the task failed; no later step was carried out."""

    about: Dpid
    error: Exception


Event = (
    Began
    | Came
    | Gone
    | Restarted
    | Overdue
    | Linked
    | Demanded
    | Ordered
    | Drawn
    | Timed
    | Held
    | Joined
    | Lit
    | Done
    | Failed
)


# ---- steps ----


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the optical model how long a change will be dark, at the time of asking."""

    turn: CircuitTurn


@dataclass(frozen=True, slots=True)
class TellTime:
    """Ask for the time, after everything that takes long to compute."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read a switch's flows."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class Modify:
    """Delete and add flows of a switch, up to its barrier."""

    dpid: Dpid
    remove: frozenset[Flow]
    add: frozenset[Flow]


@dataclass(frozen=True, slots=True)
class SetRoutes:
    """Replace a switch's whole table, in the fast path or wherever its programs keep it, and read it back."""

    dpid: Dpid
    routes: Routes


@dataclass(frozen=True, slots=True)
class ChangeRoutes:
    """Delete the routes that each switch loses, which it is known to have, and set those that it gains, in
    the fast path; read both back.
    """

    changes: RouteChanges


@dataclass(frozen=True, slots=True)
class ReadLight:
    """Read the fast path's circuits."""


Darkness = int | tuple[int, ...]  # nanoseconds: of all ports, or of each in their order
Peers = tuple[tuple[int, int | None], ...]  # port and the other end of its circuit, None: no circuit


@dataclass(frozen=True, slots=True)
class Join:
    """Switch ports of the fast path to these peers at once."""

    peers: Peers


@dataclass(frozen=True, slots=True)
class Turn:
    """Switch ports of the fast path to these peers. All go dark at the same time, for one time for all or one
    for each.
    """

    peers: Peers
    dark_ns: Darkness


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Wait until a time."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch the dark time of the preceding turn until these ports are lit, in parallel with other switches'
    tasks.
    """

    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Complain:
    """Write an error to the log."""

    text: str


Step = (
    AskModel
    | TellTime
    | Read
    | Modify
    | SetRoutes
    | ChangeRoutes
    | ReadLight
    | Join
    | Turn
    | WaitUntil
    | Watch
    | Complain
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """Steps about one switch (its datapath id), `LIGHT`, `MODEL` or `ROUTES`."""

    about: Dpid
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class End:
    """The end of an errand: the reconfiguration to write to the history, if circuits changed, and the
    failure, if any.
    """

    record: ChangeRecord | None = None
    failure: Exception | None = None
