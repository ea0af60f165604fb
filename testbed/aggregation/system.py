"""The interface of an aggregation system: how it lays a job's workers out as a forest, what else the job
needs, and its policies and figures. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from testbed.aggregation.clusterer import Clusterer
from testbed.aggregation.figure import Figure
from testbed.aggregation.forest import Forest, joined_by
from testbed.aggregation.selection import Selection
from testbed.aggregation.site import Site
from testbed.scheduling.model import Policy
from testbed.topology.places import Host
from testbed.topology.units import Unit, UnitPair

PolicyFactory = Callable[[int], Policy]
"""Makes a policy from the seed of its draws."""


@dataclass(frozen=True, slots=True)
class Service:
    """A process that serves a job's workers from a host of its own: its module, and its name in words."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The decisions of a system for one job:

    - `system`: the system's name;
    - `workers`: their hosts by rank;
    - `transport`: how the workers send gradients, one of testbed/wire/transports.py;
    - `server`: the host of its server process or top place; None: it has none;
    - `forest`: its trees; None: nothing is summed in the network;
    - `demands`: the pairs of units that its traffic joins. Given as any pairs of units that send to one
      another; kept each once, without pairs of equal units;
    - `service`: the process on the server's host; None: there is none;
    - `automatic`: how `--sync auto` chose the system; None: the job named it.
    """

    system: str
    workers: tuple[Host, ...]
    transport: str
    server: Host | None = None
    forest: Forest | None = None
    demands: tuple[UnitPair, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict, hash=False)  # as System.programs
    usual_options: Mapping[str, float] = field(default_factory=dict, hash=False)  # as System.usual_options
    service: Service | None = None
    automatic: Selection | None = field(default=None, hash=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "demands", joined_by(self.demands))

    @property
    def units(self) -> list[Unit]:
        """The units that have workers."""
        return sorted({unit for unit, _ in self.workers})

    def hosts(self) -> set[Host]:
        """Return all hosts that the job holds."""
        held = {*self.workers, *([self.server] if self.server else [])}
        return held | (self.forest.hosts() if self.forest else set())


NO_SERVER, SERVER_ACROSS, SERVER_ALWAYS = "no host", "a host of its own across units", "a host of its own"
"""A system's need of a host for its server process or top place."""


@dataclass(frozen=True, slots=True)
class Policies:
    """A system's policies for the queue, and the two systems between which they choose for a job: `with_inc`
    lays it out if a switch sums for it, `without_inc` if none does. `usual` is the default policy; at most
    one system names one.
    """

    factories: Mapping[str, PolicyFactory]
    with_inc: str
    without_inc: str
    usual: str | None = None


@dataclass(frozen=True, slots=True)
class Showing:
    """A system's title in `testbed demo` and its report, and whether it is also shown across two units."""

    title: str
    across: bool = False


class System(Protocol):
    """An aggregation system. A registered one is a subclass, which gives it the defaults; a user's class may
    define any of these attributes.

    - `programs`: by engine, the data-plane program of its places ("sum" is the core's own). Places with
      another engine cannot sum for it.
    - `instead`: the system that sums a job if the places have no room; None: the job is refused.
    - `server`: one of the three constants above.
    - `paper`: the name of its paper on the command line.
    - `figures`: the paper's figures that the system itself brings (packages bring others:
      testbed/plugins/papers.py).
    - `clusterer`: for `testbed cluster`, if workers head others.
    - `chooses_heads`: it chooses which workers sum. A restarting job is then laid out again, on a site that
      spares the hosts of failed workers.
    - `usual_options`: the values that options of its programs have for its jobs, by name, unless a job's user
      gives others.
    - `not_automatic`: why `--sync auto` leaves the system out; "": it is a candidate.
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
    usual_options: Mapping[str, float] = MappingProxyType({})
    not_automatic: str = ""

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay out a job with these workers. Raises RequestError if that is impossible."""
        ...


def completed(layout: Layout, system: System) -> Layout:
    """Complete a layout with its system's defaults, where it has no values of its own."""
    programs = dict(layout.programs or getattr(system, "programs", {}))
    usual_options = dict(layout.usual_options or getattr(system, "usual_options", {}))
    return replace(layout, programs=programs, usual_options=usual_options)
