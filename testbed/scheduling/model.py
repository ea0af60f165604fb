"""Jobs, limits, decisions and schedules in the notation of P4INC-AOI, section IV, as frozen data. Makes no
decisions.

Units are indices from 0. Time is in time slots (TS) of `Limits.slot_s`; rates are Gb/s, volumes Gb, both per
worker unless noted: all workers of a job send at one rate (section IV-B, B_j^i).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType, Protocol, cast

UnitIndex = NewType("UnitIndex", int)
"""A unit's index in `Limits.ports`, from 0. The testbed's units count from 1, and have another type."""
Pair = tuple[UnitIndex, UnitIndex]
"""Two units, the smaller number first: circuits are duplex (equation 6)."""


def pair(a: UnitIndex, b: UnitIndex) -> Pair:
    """Return two units as a Pair, the smaller number first."""
    return (a, b) if a < b else (b, a)


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that jobs share: the units, the links between them, and the time slots.

    `ports[v]` is P_oxc,v; `inc[v]` is N_INC,v, in jobs; `switch_gbps[v]` is B_PDP,v, up- and downlink
    together; `port_gbps` is B_port; `slot_s` is the length of a TS; `reconfiguration_s` is epsilon;
    `step_gbps` is delta B, per worker.

    The paper bounds no rate by a server's interface. Here `host_gbps` bounds a worker's rate, and `ps_gbps`
    all streams into a parameter server together; a job's own fields bound those of its hosts alone. If
    infinite, they leave the paper's model. `partial_inc` allows equation (2) as printed: INC for the workers
    of one unit of a job that also has workers elsewhere. Without it, only jobs with all workers in one unit
    use INC, as in section VI-A. The circuits between two units add up, as in equation (6).

    The testbed's optical ports may be unequal, unlike the paper's. Then `unit_port_gbps` has the rate of each
    unit's slowest port, and `port_gbps` is the least of them: a policy that reads only that never asks a
    circuit for more than it carries.

    `core_gbps` is the rate of each unit's link to the electrical core beside the optical switch (the slowest
    one's); 0: there is no core. Two units without a circuit in a decision communicate over the core, and all
    jobs together send at most that rate from and to a unit over it. The paper has no core, and its policies
    do not use it.
    """

    ports: tuple[int, ...]
    inc: tuple[int, ...]
    switch_gbps: tuple[float, ...]
    port_gbps: float
    host_gbps: float = math.inf
    ps_gbps: float = math.inf
    slot_s: float = 1.0
    reconfiguration_s: float = 0.02
    step_gbps: float = 10.0
    partial_inc: bool = False
    unit_port_gbps: tuple[float, ...] = ()
    core_gbps: float = 0.0

    @property
    def units(self) -> Sequence[UnitIndex]:
        return cast("Sequence[UnitIndex]", range(len(self.ports)))

    @classmethod
    def uniform(
        cls,
        units: int,
        ports: int,
        inc: int,
        port_gbps: float,
        switch_gbps: float = math.inf,
        **others: float,
    ) -> Limits:
        """Make limits with equal units. `others` are further fields."""
        return cls((ports,) * units, (inc,) * units, (switch_gbps,) * units, port_gbps, **others)  # type: ignore[arg-type]

    def circuit_gbps(self, between: Pair) -> float:
        """Return the rate of a circuit between two units: that of the slower end."""
        if not self.unit_port_gbps:
            return self.port_gbps
        return min(self.unit_port_gbps[between[0]], self.unit_port_gbps[between[1]])

    def optical_gbps(self, unit: UnitIndex) -> float:
        """Return the largest rate of all circuits of a unit together."""
        port_gbps = self.unit_port_gbps[unit] if self.unit_port_gbps else self.port_gbps
        return self.ports[unit] * port_gbps

    def port_weight(self, unit: UnitIndex, between: Pair) -> float:
        """Return how much of a unit's optical capacity (`optical_gbps`) each Gb/s of a circuit uses: more
        than 1 if the other end is slower, because the circuit occupies a whole port.
        """
        if not self.unit_port_gbps:
            return 1.0
        return self.unit_port_gbps[unit] / self.circuit_gbps(between)

    def host_gbps_of(self, job: Job) -> float:
        """Return the largest rate of a job's worker."""
        return min(self.host_gbps, job.host_gbps)

    def ps_gbps_of(self, job: Job) -> float:
        """Return the largest rate of all streams into a job's parameter server together."""
        return min(self.ps_gbps, job.ps_gbps)

    def full_mesh(self) -> dict[Pair, int]:
        """Make the uniform connectivity of section VII-C: equally many circuits between each two units, as
        many as all units have ports for.
        """
        per_pair = min(self.ports) // max(1, len(self.ports) - 1)
        return {(a, b): per_pair for a in self.units for b in self.units if a < b and per_pair}


@dataclass(frozen=True, slots=True)
class Job:
    """A job at its arrival, with its placement given (section IV-A).

    `workers` are (unit, W_v^j), units ascending; `ps` is the unit of its parameter server; `gigabits` is the
    volume of each worker; `update_s` is a_j, the time of the parameter update unless switches do it;
    `arrival` is its first time slot.

    `meeting` is above 0 for a job with a way of summing of its own, whatever a policy decides (not in the
    paper): the number of its streams that meet in one queue. INC is then not offered to it, and `ps` is the
    unit where its circuits meet.

    `host_gbps` is the rate of the slowest link of its workers, `ps_gbps` that of its server's link: hosts may
    differ. They bound this job's rates as the fields of `Limits` bound all jobs'.
    """

    id: int
    workers: tuple[tuple[UnitIndex, int], ...]
    ps: UnitIndex
    gigabits: float
    update_s: float = 0.0
    arrival: int = 0
    meeting: int = 0
    host_gbps: float = math.inf
    ps_gbps: float = math.inf

    @property
    def is_local(self) -> bool:
        """Return whether all workers are in one unit: E_v^j of that unit."""
        return len(self.workers) == 1

    def inc_units(self, limits: Limits) -> tuple[UnitIndex, ...]:
        """Return the units where it may use INC: by equation (2), and by section VI-A unless `partial_inc` is
        set.
        """
        if self.meeting or (not self.is_local and not limits.partial_inc):
            return ()
        return tuple(unit for unit, _ in self.workers if limits.inc[unit] > 0)


@dataclass(frozen=True, slots=True)
class Load:
    """The capacity that a job uses for each Gb/s of its rate, in a given mode (INC in a unit, or none).

    `links` are Gb/s between two units, `switches` Gb/s of B_PDP; `inc` is the unit in whose switch it
    occupies a place. `update_s` follows its last byte. `limit_gbps` is the largest rate that it could have
    alone in the network; `ends_gbps` is the limit by its hosts and switches alone, without the circuits'.
    """

    links: tuple[tuple[Pair, int], ...]
    switches: tuple[tuple[UnitIndex, int], ...]
    inc: UnitIndex | None
    update_s: float
    limit_gbps: float
    ends_gbps: float


def load(limits: Limits, job: Job, inc: UnitIndex | None) -> Load:
    """Compute a job's load in a mode by equations (4) and (5), with their misprints corrected
    (docs/p4inc-aoi.md).
    """
    if inc is not None and job.is_local:
        ((unit, count),) = job.workers
        limit = min(limits.host_gbps_of(job), limits.switch_gbps[unit] / count)
        return Load((), ((unit, count),), inc, 0.0, limit, limit)
    links = tuple(
        (pair(unit, job.ps), 1 if unit == inc else count) for unit, count in job.workers if unit != job.ps
    )
    here = {unit: count for unit, count in job.workers}
    into_ps = sum(count for _, count in links)
    at_ps = here.get(job.ps, 0) if inc != job.ps else 0
    switches = dict(here)
    switches[job.ps] = switches.get(job.ps, 0) + into_ps + at_ps
    streams = job.meeting or into_ps + at_ps
    limit = min(limits.host_gbps_of(job), limits.ps_gbps_of(job) / streams if streams else math.inf)
    for unit, taken in switches.items():
        limit = min(limit, limits.switch_gbps[unit] / taken)
    lit = min(limit, _optical_limit(limits, job.ps, links))
    return Load(links, tuple(sorted(switches.items())), inc, job.update_s, lit, limit)


def possible_gbps(limits: Limits, job_load: Load) -> float:
    """Return the largest rate that a job could have alone, over the core too, where all of its links meet at
    the server's unit.
    """
    if not limits.core_gbps or not job_load.links:
        return job_load.limit_gbps
    return max(
        job_load.limit_gbps,
        min(job_load.ends_gbps, limits.core_gbps / sum(count for _, count in job_load.links)),
    )


def _optical_limit(limits: Limits, ps: UnitIndex, links: Sequence[tuple[Pair, int]]) -> float:
    """Compute the largest rate at which whole ports suffice for every link, with no other job in the
    network.
    """
    if not links:
        return math.inf
    room = {pair_: limits.ports[pair_[0] if pair_[1] == ps else pair_[1]] for pair_, _ in links}
    given = dict.fromkeys(room, 0)
    weight = dict(links)
    # add one port at a time to the link that limits
    for _ in range(limits.ports[ps]):
        least = min(given, key=lambda p: (given[p] * limits.circuit_gbps(p) / weight[p], p))
        if given[least] == room[least]:
            break
        given[least] += 1
    return min(given[p] * limits.circuit_gbps(p) / weight[p] for p in given)


@dataclass(slots=True)
class Progress:
    """A job that has arrived and is not finished. Policies read it; the scheduler that runs the jobs writes
    it.

    `started` is its first time slot with a rate; from then on its mode `inc` stays, and its rate stays above
    0 (the set of durations in section IV-B: a transfer runs continuously until it is finished).
    """

    job: Job
    remaining_gigabits: float
    started: int | None = None
    inc: UnitIndex | None = None
    rate_gbps: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """All that a policy knows at the start of a time slot: `jobs` in the order of arrival; `ports`, the
    circuits lit between each two units.
    """

    limits: Limits
    slot: int
    jobs: Sequence[Progress]
    ports: Mapping[Pair, int]


@dataclass(frozen=True, slots=True)
class RotationTurn:
    """A turn of a rotation: circuits between units, and how long they last, guard time included."""

    ports: Mapping[Pair, int]
    lasts_ms: float


@dataclass(frozen=True, slots=True)
class Rotation:
    """A sequence of turns that repeats by the data plane's clock; each is dark for `guard_ms` first. Not in
    the paper.
    """

    turns: tuple[RotationTurn, ...]
    guard_ms: float = 0.0

    @property
    def period_ms(self) -> float:
        """The length of one cycle of all turns."""
        return math.fsum(turn.lasts_ms for turn in self.turns)

    def circuits(self) -> dict[Pair, int]:
        """Return the fewest circuits that each two units have in any turn in which they have one."""
        least: dict[Pair, int] = {}
        for turn in self.turns:
            for link, count in turn.ports.items():
                if count:
                    least[link] = min(count, least.get(link, count))
        return least

    def share(self, links: Sequence[Pair]) -> float:
        """Return the share of the period in which the least lit of these pairs has circuits."""
        lit_ms = (
            math.fsum(turn.lasts_ms - self.guard_ms for turn in self.turns if turn.ports.get(link))
            for link in links
        )
        return min(lit_ms, default=self.period_ms) / self.period_ms


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's answer for a time slot.

    `rates` has the Gb/s of each job that runs; a job that is not in it waits. `inc` has the unit of each job
    that uses INC. `ports` are the circuits between each two units during the time slot (P_v,u), those without
    traffic included.

    With a `rotation`, its turns are the circuits, and `ports` is empty; a rate over circuits then counts for
    the time in which they are lit.
    """

    rates: Mapping[int, float] = field(default_factory=dict)
    inc: Mapping[int, UnitIndex] = field(default_factory=dict)
    ports: Mapping[Pair, int] = field(default_factory=dict)
    rotation: Rotation | None = None

    @property
    def circuits(self) -> Mapping[Pair, int]:
        """Return the circuits to which rates refer."""
        return self.ports if self.rotation is None else self.rotation.circuits()


ALL, NEEDED = "all", "needed"
STEPS = (ALL, NEEDED)
"""How many steps of delta B a policy that allocates in steps gives a job: all that fit, as algorithm 2 is
printed (lines 19 to 31), or only those that it needs to end within the time slot: more would occupy ports
that it cannot use."""


class Policy(Protocol):
    """Decides one time slot after the other. Its answer depends only on its settings, its seed and the states
    that it got.
    """

    @property
    def name(self) -> str: ...

    def decide(self, state: State) -> Decision:
        """Decide on rates, INC and circuits of the time slot that begins, within constraints.py's limits."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A whole run: jobs, the circuits lit before it, and the decision of each time slot from 0."""

    limits: Limits
    jobs: tuple[Job, ...]
    decisions: tuple[Decision, ...]
    ports: Mapping[Pair, int] = field(default_factory=dict)


def lost_gigabits(
    limits: Limits,
    links: Sequence[tuple[Pair, int]],
    rate_before: float,
    rate_now: float,
    before: Mapping[Pair, int],
    now: Mapping[Pair, int],
) -> float:
    """Compute the Gb that a worker could not send in a time slot because circuits were being set up: the last
    term of equation (10).

    A rate that grows over a pair of units whose circuits grow takes effect epsilon late.
    """
    grown = rate_now - rate_before
    if grown <= 0 or not any(now.get(p, 0) > before.get(p, 0) for p, _ in links):
        return 0.0
    return grown * limits.reconfiguration_s


def set_up(before: Mapping[Pair, int], now: Mapping[Pair, int]) -> int:
    """Count the circuits that a reconfiguration sets up: the reconfigured connections of section VII."""
    return sum(max(0, count - before.get(p, 0)) for p, count in now.items())
