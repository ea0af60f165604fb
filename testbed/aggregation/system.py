"""An aggregation system as the testbed knows it: how a job's workers become a forest, what else it needs, and
the policies and figures that it brings. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from testbed.aggregation.clusterer import Clusterer
from testbed.aggregation.figure import Figure
from testbed.aggregation.forest import Forest, joined_by
from testbed.aggregation.site import Site
from testbed.scheduling.model import Policy
from testbed.topology.places import Host
from testbed.topology.units import Unit, UnitPair

PolicyFactory = Callable[[int], Policy]
"""Makes a policy from the seed of its draws."""


@dataclass(frozen=True, slots=True)
class Service:
    """A process that serves a job's workers from a host of its own: the module that it runs, and how it is
    called.
    """

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The way that a job's gradients are summed: its system by name, its workers' hosts by rank, how these
    speak (one of testbed/wire/transports.py), the host of its server process or top place (None: it has
    none), the forest (None: nothing is summed in the network), and the pairs of units that its traffic joins:
    given by whatever pairs of units send to one another, kept each once, without those of one unit.
    `service` is the process on that host; None: there is none.
    """

    system: str
    workers: tuple[Host, ...]
    transport: str
    server: Host | None = None
    forest: Forest | None = None
    demands: tuple[UnitPair, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict, hash=False)  # as System.programs
    age_out_ms: float = 0.0  # as System.age_out_ms
    service: Service | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "demands", joined_by(self.demands))

    @property
    def units(self) -> list[Unit]:
        """Those with workers."""
        return sorted({unit for unit, _ in self.workers})

    def hosts(self) -> set[Host]:
        """All hosts that the job holds."""
        held = {*self.workers, *([self.server] if self.server else [])}
        return held | (self.forest.hosts() if self.forest else set())


NO_SERVER, SERVER_ACROSS, SERVER_ALWAYS = "no host", "a host of its own across units", "a host of its own"
"""What a system says of the host for its server process or top place."""


@dataclass(frozen=True, slots=True)
class Policies:
    """A system's policies for the queue, and the two systems between which they choose for a job: `with_inc`
    lays it out where a switch is to sum for it, `without_inc` where none is. `usual` is the policy that is
    taken where none is named; at most one system says one.
    """

    factories: Mapping[str, PolicyFactory]
    with_inc: str
    without_inc: str
    usual: str | None = None


@dataclass(frozen=True, slots=True)
class Showing:
    """The words by which `testbed demo` and its report show a system, and whether across two units too."""

    title: str
    across: bool = False


class System(Protocol):
    """An aggregation system. A registered one is a subclass, for what it leaves unsaid; a user's class says
    what it wants of this.

    `programs` names, by engine, the data-plane program that its places run ("sum" is the core's own); those
    of an engine that it does not name cannot sum for it. `instead` names the system that a job is summed by
    where the places have no room, None where the job is then refused; `server` is one of the above. `paper`
    is the name of its paper on the command line, `figures` are those of it that the system brings itself
    (packages bring others: testbed/plugins/papers.py); `clusterer` is what `testbed cluster` asks, where
    workers head others. `chooses_heads` says that it chooses among the workers who sums: a job that starts
    again is laid out anew, for a site that spares those that failed. `age_out_ms` is how long a place that
    sums by blocks waits for a source, if the job does not say; 0: as long as it takes.
    """

    name: str
    summary: str
    programs: Mapping[str, str] = MappingProxyType({})
    instead: str | None = None
    server: str = NO_SERVER
    policies: Policies | None = None
    paper: str | None = None
    figures: tuple[Figure, ...] = ()
    clusterer: Clusterer | None = None
    chooses_heads: bool = False
    showing: Showing | None = None
    age_out_ms: float = 0.0

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """The layout of a job with these workers. RequestError where there is none."""
        ...


def completed(layout: Layout, system: System) -> Layout:
    """Return a layout with what its system says of all of its layouts, where it says nothing of this one."""
    programs = dict(layout.programs or getattr(system, "programs", {}))
    age_out_ms = float(layout.age_out_ms or getattr(system, "age_out_ms", 0.0))
    return replace(layout, programs=programs, age_out_ms=age_out_ms)
