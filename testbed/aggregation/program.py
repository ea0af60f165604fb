"""The interface of a data-plane program to the rest of the testbed: its checks of a job's options, the job's
share of places, and the state of its sums. Pure.

The core's own program is `sum` (testbed/aggregation/slots.py). A system with its own program has it in its
folder, and names it in `PROGRAMS` of its package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from testbed.aggregation.counts import ProgramCounts
from testbed.aggregation.forest import Forest, Tree
from testbed.aggregation.packets import Packets
from testbed.aggregation.place_interfaces import SummingPlace
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.topology.dataplanes import HOSTS
from testbed.topology.model import Topology
from testbed.topology.places import Place
from testbed.topology.units import Unit
from testbed.wire.mapping import VOTE_SLOTS
from testbed.wire.records import Record

SUM = "sum"


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """A system's program for one engine: its file, its number in entries, and its `maps`
    (DataPlaneProgram.maps).
    """

    name: str
    number: int
    path: Path
    maps: Mapping[str, Record] = field(default_factory=dict)

    @property
    def is_users(self) -> bool:
        """Return whether a configuration names it."""
        return self.path.is_absolute()


Key = tuple[int, int]  # a job, and the number of one of its trees
At = Callable[[Place], SummingPlace]
"""Returns the object that sums at a place."""
Clock = Callable[[], float]
"""Returns the seconds since a job's attempt began."""
REFERENCE = "reference"
"""The engine under which a program lists its part of the reference model (DataPlaneProgram.parts)."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a testbed's places: each has at least so many `slots`."""

    topology: Topology
    slots: int

    def slowest_mbps(self, forest: Forest) -> float | None:
        """Return the rate of the slowest link of a forest's hosts, which limits all of its sums; None if none
        has a rate.
        """
        rates = (self.topology.emulated_host_mbps(*host) for host in {*forest.workers, *forest.hosts()})
        return min((rate for rate in rates if rate is not None), default=None)


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of one check of a job's places: a line for its user on each source that left or came back,
    and the ranks of all workers that its sums go on without.
    """

    lines: Sequence[str] = ()
    absent: frozenset[int] = frozenset()


@dataclass(slots=True)
class Grant:
    """The share of a program that a job, or a group of its workers, has at each of its places: `size` slots
    for each tree, and as many in workers' rings; the last `vote_slots` are for votes. Methods are called with
    the lock of `Places` held unless noted.
    """

    size: int

    @property
    def vote_slots(self) -> int:
        return VOTE_SLOTS

    @property
    def takes_empties(self) -> bool:
        """Return whether places accept pushes without lanes."""
        return True

    def endpoint(self) -> dict[str, int]:
        """Return the program's settings of a worker's endpoint, by name."""
        return {"window": 0, "vote_window": 0, "spare_bits": 0}

    def terms(self, tree: Tree, place: Place) -> object | None:
        """Return the program's own data on a tree at one of its places (Entry.terms); None if the program
        needs only slots.
        """
        return None

    def counts(self, job: int, forest: Forest, at: At) -> ProgramCounts | None:
        """Return the program's counts of a job's sums; None if it counts none. Called without the lock, so
        that a status request waits for no switch.
        """
        return None

    def failure(self, forest: Forest, at: At) -> str | None:
        """Return why a place does less than it should, although it goes on summing; None if none does. Called
        without the lock.
        """
        return None

    @property
    def looks(self) -> bool:
        """Return whether a job's places are checked periodically while it runs."""
        return False

    def look_every_s(self, forest: Forest) -> float:
        """Return the time between two checks in s."""
        return 1.0

    def look(self, job: int, forest: Forest, at: At, clock: Clock) -> Findings:
        """Check once which sources contribute, and return what changed. Called only if `looks`."""
        return Findings()


class PlacePool(Protocol):
    """The resource of one place that is allocated to trees."""

    def take(self, key: Key, size: int, terms: object | None, is_lent: bool) -> int:
        """Allocate a tree's share and return its first slot; `is_lent`: the tree is a group's. Raises
        NoRoomError, which lists the holders.
        """

    def free(self, key: Key) -> None:
        """Free a tree's share; does nothing if it has none."""

    def jobs(self) -> int:
        """Return how many jobs have shares here."""


class DataPlaneProgram(Protocol):
    """A data-plane program. `shares` names the resource of a place that it allocates: programs with the same
    name use one pool. `sources` has a file for each engine that it supports, in bpf/ or p4/ unless the path
    is absolute. `parts` has the classes of its own parts of places, by engine, as MODULE:CLASS with the
    interface of the engine's folder (PlacePart, SwitchPart); a program without parts uses slots only. `maps`
    has the records of its XDP source's arrays, by the maps' names: the compiled layout of each is compared
    with its record before anything is loaded. A user's class may omit parts and maps.
    """

    name: str
    shares: str
    sources: Mapping[str, Path]
    parts: Mapping[str, str]
    maps: Mapping[str, Record]

    def check(self, layout: Layout, packets: Packets, engines: Mapping[Unit, str]) -> None:
        """Raise RequestError if a job's choices for its packets are not supported. `engines` is by unit."""

    def grant(
        self, job: int, forest: Forest, packets: Packets, capacity: Capacity, size: int | None
    ) -> Grant:
        """Compute a job's share, with `size` slots for each tree if given. Raises RequestError if places can
        never have that.
        """

    def grants_of_groups(self, grant: Grant, trees: int) -> Sequence[Grant]:
        """Return the shares that a group of that job may get for so many trees; the first that fits is
        used.
        """

    def pool(self, capacity: Capacity, slots: int) -> PlacePool:
        """Make the pool of a place that has so many slots."""


def programs_of(forest: Forest, by_engine: Mapping[str, str], engines: Mapping[Unit, str]) -> list[str]:
    """Return the names of the programs at a job's places: by System.programs for their engines, the core's
    for others.
    """
    summing = {engines[place.unit] if place.is_switch else HOSTS for place in forest.places}
    return sorted({by_engine.get(engine, SUM) for engine in summing})


def chosen(
    programs: Mapping[str, DataPlaneProgram],
    forest: Forest,
    by_engine: Mapping[str, str],
    engines: Mapping[Unit, str],
) -> DataPlaneProgram:
    """Return the program that grants a job its share: that of its places, unless all of them run the core's.
    Raises RequestError for an unknown program, and for programs that allocate different resources.
    """
    names = programs_of(forest, by_engine, engines)
    for name in names:
        if name not in programs:
            raise RequestError(f"no program {name!r}; accepted are {', '.join(programs)}")
    shared = {programs[name].shares for name in names}
    if len(shared) > 1:
        raise RequestError(
            f"programs {' and '.join(names)} sum in {' and '.join(sorted(shared))}: no tree has both"
        )
    return programs[next((name for name in names if name != SUM), SUM)]
