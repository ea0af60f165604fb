"""A data-plane program as the rest of the testbed sees it: what a job must say to be summed by it, what a job
then has of places, and what there is to be known of its sums. Pure.

The core's own is `sum` (testbed/aggregation/slots.py). A system with a program of its own has it in its
folder, and names it in `PROGRAMS` of its package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

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
    """A system's program as one engine has it: its file, the number by which entries name it, and its `maps`
    (DataPlaneProgram.maps).
    """

    name: str
    number: int
    path: Path
    maps: Mapping[str, Record] = field(default_factory=dict)

    @property
    def is_users(self) -> bool:
        """Say whether a configuration names it."""
        return self.path.is_absolute()


Key = tuple[int, int]  # a job, and the number of one of its trees
At = Callable[[Place], SummingPlace]
"""Finds what sums at a place."""
Clock = Callable[[], float]
"""Returns the seconds since a job's attempt began."""
REFERENCE = "reference"
"""The engine by which a program names its part of the reference model (DataPlaneProgram.parts)."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The room that the places of a testbed have for its jobs: each at least so many `slots`."""

    topology: Topology
    slots: int

    def slowest_mbps(self, forest: Forest) -> float | None:
        """Return the rate of the slowest link of a forest's hosts, at which all of its sums come; None where
        none has a rate.
        """
        rates = (self.topology.emulated_host_mbps(*host) for host in {*forest.workers, *forest.hosts()})
        return min((rate for rate in rates if rate is not None), default=None)


@dataclass(frozen=True, slots=True)
class JobBlocks:
    """The blocks of a job at all of its places: how many the tops of its trees made, how many are `active`
    anywhere, how many went `without` a worker (by its rank, as text) or a place, and who `left` until when
    (AbsenceStatus, as JSON).
    """

    made: int
    active: int
    without: Mapping[str, int]
    left: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a look at a job's places: a line for its user on each source that left or came back,
    and the ranks of all workers that its sums go on without.
    """

    lines: Sequence[str] = ()
    absent: frozenset[int] = frozenset()


@dataclass(slots=True)
class Grant:
    """The share of a program that a job has at each of its places, or a group of its workers: `size` slots
    for each tree, and of workers' rings, of which the last `vote_slots` are the votes'. Whatever it does is
    done under the lock of `Places`, unless it says otherwise.
    """

    size: int

    @property
    def vote_slots(self) -> int:
        return VOTE_SLOTS

    @property
    def takes_empties(self) -> bool:
        """Say whether places take pushes without lanes."""
        return True

    def endpoint(self) -> dict[str, int]:
        """Return what a worker's endpoint must know of it, by the names of its settings."""
        return {"window": 0, "vote_window": 0, "spare_bits": 0}

    def terms(self, tree: Tree, place: Place) -> object | None:
        """Return what the program says of a tree at a place that sums it (Entry.terms); None where slots are
        all.
        """
        return None

    def counts(self, job: int, forest: Forest, at: At) -> JobBlocks | None:
        """Count a job's blocks; None where it is not summed by any. Without the lock: who asks for a status
        waits for no switch.
        """
        return None

    def failure(self, forest: Forest, at: At) -> str | None:
        """Return why a place does less than it is to, though it sums on; None where none does. Without the
        lock.
        """
        return None

    @property
    def looks(self) -> bool:
        """Say whether a job's places are looked at while it runs."""
        return False

    def look_every_s(self, forest: Forest) -> float:
        """Return the time between two looks."""
        return 1.0

    def look(self, job: int, forest: Forest, at: At, clock: Clock) -> Findings:
        """Look once at who contributes, and return what is new. Called where it `looks`."""
        return Findings()


class PlacePool(Protocol):
    """The part of one place that is shared out among trees."""

    def take(self, key: Key, size: int, terms: object | None, is_lent: bool) -> int:
        """Give a tree its share, `is_lent` one of a group, and return its first slot. NoRoomError says who
        has what.
        """

    def free(self, key: Key) -> None:
        """Take the share of a tree back; nothing if it has none."""

    def jobs(self) -> int:
        """Return how many jobs have shares here."""


class DataPlaneProgram(Protocol):
    """A data-plane program. What it `shares` out of a place has that name: programs that share out the same
    do so from one pool. `sources` has a file by each engine that it is written for, of bpf/ or p4/ unless the
    path is absolute. `parts` has the classes of its own parts of places, by engine, MODULE:CLASS: what an
    engine's folder says in its `parts` (PlacePart, SwitchPart). A program without any has slots alone. `maps`
    has the records of the arrays that its XDP source has, by the maps' names: what the compiler makes of each
    is compared with that before anything is loaded. A user's class may leave both unsaid.
    """

    name: str
    shares: str
    sources: Mapping[str, Path]
    parts: Mapping[str, str]
    maps: Mapping[str, Record]

    def check(self, layout: Layout, packets: Packets, engines: Mapping[Unit, str]) -> None:
        """Raise RequestError where a job says of its packets what this program does not do. `engines` is by
        unit.
        """

    def grant(
        self, job: int, forest: Forest, packets: Packets, capacity: Capacity, size: int | None
    ) -> Grant:
        """Return what a job is to have, of `size` slots for each tree where somebody says so. RequestError
        where places can never have that.
        """

    def grants_of_groups(self, grant: Grant, trees: int) -> Sequence[Grant]:
        """Return what a group of that job may have for so many trees: the first for which there is room."""

    def pool(self, capacity: Capacity, slots: int) -> PlacePool:
        """Return what a place that has so many slots shares out."""


def programs_of(forest: Forest, by_engine: Mapping[str, str], engines: Mapping[Unit, str]) -> list[str]:
    """Return the names of the programs of the places that sum for a job: what System.programs has for their
    engines, and the core's for others.
    """
    summing = {engines[place.unit] if place.is_switch else HOSTS for place in forest.places}
    return sorted({by_engine.get(engine, SUM) for engine in summing})


def chosen(
    programs: Mapping[str, DataPlaneProgram],
    forest: Forest,
    by_engine: Mapping[str, str],
    engines: Mapping[Unit, str],
) -> DataPlaneProgram:
    """Return the program that grants a job what it has: that of its places, where one is not the core's.
    RequestError for one that there is not, and for some that do not share out the same.
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
