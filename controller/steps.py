"""The words between deciding and carrying out: events go in, tasks of steps come out. Pure data.

A task is a list of steps about one switch, in their order; the first that fails ends it. The answer of a
task is its last step's, or `Failed`. Tasks that are out at the same time do not depend on each other. Ports
are numbers at the optical switch, times are CLOCK_MONOTONIC nanoseconds.
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

LIGHT: Final = Dpid(0)  # what a task that waits for new circuits to carry light is about; no switch has it
MODEL: Final = Dpid(-1)  # what a task that asks the optical model is about; no switch has it


# ---- what may happen ----


@dataclass(frozen=True, slots=True)
class Began:
    """The controller runs, and no switch has connected."""


@dataclass(frozen=True, slots=True)
class Came:
    """A switch has connected, or several, none of which is the optical one; what they hold is not known."""

    dpid: Dpid
    others: tuple[Dpid, ...] = ()


@dataclass(frozen=True, slots=True)
class Gone:
    """A switch's connection has ended; what it forwards it goes on forwarding."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class Restarted:
    """A switch of a unit was started again, and has no routes."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class Overdue:
    """Switches do not hold what they should although nothing is going on: what was told them failed."""


@dataclass(frozen=True, slots=True)
class Demanded:
    """These pairs of units want a circuit each."""

    pairs: tuple[UnitPair, ...]


@dataclass(frozen=True, slots=True)
class Ordered:
    """Exactly these circuits are to be."""

    circuits: frozenset[Circuit]


# ---- what is answered to a task ----


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
    """The answer to `Read`: the flows of ours that a switch holds."""

    dpid: Dpid
    flows: frozenset[Flow]


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to `ReadLight`: port -> peer in the fast path."""

    peers: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Lit:
    """The answer to `Watch`: when the darkness began (None: when the change did), when it had ended, how much
    shorter than that it may have been, and when the routes were set that its task had before it, if any.
    """

    began_ns: int | None
    at_ns: int
    resolution_ns: int
    routed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to a task whose last step only does something."""

    about: Dpid


@dataclass(frozen=True, slots=True)
class Failed:
    """A step of the task was not carried out, and none after it."""

    about: Dpid
    error: Exception


Event = (
    Began
    | Came
    | Gone
    | Restarted
    | Overdue
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


# ---- what is to be done ----


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the optical model how long a change will be dark, at the time at which it is asked."""

    turn: CircuitTurn


@dataclass(frozen=True, slots=True)
class TellTime:
    """Ask what time it is, when all that takes long to compute is computed."""


@dataclass(frozen=True, slots=True)
class Read:
    """Ask a switch for its flows."""

    dpid: Dpid


@dataclass(frozen=True, slots=True)
class Modify:
    """Take flows of a switch away and add others, up to its barrier."""

    dpid: Dpid
    remove: frozenset[Flow]
    add: frozenset[Flow]


@dataclass(frozen=True, slots=True)
class SetRoutes:
    """Replace a switch's whole table, in the fast path or where its programs keep it, and read it back."""

    dpid: Dpid
    routes: Routes


@dataclass(frozen=True, slots=True)
class ChangeRoutes:
    """Take the first of these routes of each switch away, which it is known to have, and set the second, in
    the fast path, and read both back.
    """

    changes: RouteChanges


@dataclass(frozen=True, slots=True)
class ReadLight:
    """Ask the fast path for its circuits."""


Darkness = int | tuple[int, ...]  # nanoseconds: of all ports, or of each in their order
Peers = tuple[tuple[int, int | None], ...]  # port and the other end of its circuit, None: no circuit


@dataclass(frozen=True, slots=True)
class Join:
    """Turn ports of the fast path to these peers at once."""

    peers: Peers


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn ports of the fast path to these peers, all dark from one time on, and for so long; one number for
    all of them, or one for each.
    """

    peers: Peers
    dark_ns: Darkness


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Do nothing before a time."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch the darkness of the turn before it until these ports carry light, beside the tasks of other
    switches.
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
    """Steps about one switch (its datapath number) or about `LIGHT`."""

    about: Dpid
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class End:
    """The end of what was begun: the reconfiguration to write to the history, if circuits changed, and what
    went wrong.
    """

    record: ChangeRecord | None = None
    failure: Exception | None = None
