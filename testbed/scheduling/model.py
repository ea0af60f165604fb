"""Jobs, limits, decisions and schedules in the notation of P4INC-AOI, section IV, as frozen data. Owns no
decision.

Units are indices from 0. Time is in slots (TS) of `Limits.slot_s`; rates are Gb/s, volumes Gb, both per
worker unless said otherwise: all workers of a job send at one rate (section IV-B, B_j^i).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType, Protocol, cast

UnitIndex = NewType("UnitIndex", int)
"""A unit's place in `Limits.ports`, from 0. The testbed's units count from 1, and are another type."""
Pair = tuple[UnitIndex, UnitIndex]
"""Two units, the smaller number first: circuits are duplex (equation 6)."""


def pair(a: UnitIndex, b: UnitIndex) -> Pair:
    return (a, b) if a < b else (b, a)


@dataclass(frozen=True, slots=True)
class Limits:
    """The means that jobs share: the units, what joins them, and the slots in which it is given out.

    `ports[v]` is P_oxc,v; `inc[v]` is N_INC,v, in jobs; `switch_gbps[v]` is B_PDP,v, up- and downlink
    together; `port_gbps` is B_port; `slot_s` is the length of a TS; `reconfiguration_s` is epsilon;
    `step_gbps` is delta B, per worker.

    The paper bounds no rate by a server's interface. `host_gbps` does, for a worker; `ps_gbps` does, for all
    streams into a parameter server together; a job's own say the same of its hosts alone. Infinite, they
    leave the paper's model. `partial_inc` allows
    equation (2) as it is printed, with INC for the workers of one unit of a job that has workers elsewhere
    too; without it, only jobs with all workers in one unit use INC, as section VI-A has it. The circuits
    between two units add up, as in equation (6).

    Where the testbed's optical ports are unequal, which the paper's are not, `unit_port_gbps` has the rate of
    each unit's slowest port, and `port_gbps` is the least of them: a policy that knows of nothing else asks
    no circuit for more than it carries.

    `core_gbps` is the rate of each unit's link to the electrical core beside the optical switch, the slowest
    one's; 0: there is none. Two units that a decision gives no circuit reach each other over it, and what all
    of its jobs send so from and to a unit is at most that. The paper has no core, and its policies leave it
    unused.
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
        """All units alike. `others` are further fields."""
        return cls((ports,) * units, (inc,) * units, (switch_gbps,) * units, port_gbps, **others)  # type: ignore[arg-type]

    def circuit_gbps(self, between: Pair) -> float:
        """Return the rate of a circuit between two units: that of the slower end."""
        if not self.unit_port_gbps:
            return self.port_gbps
        return min(self.unit_port_gbps[between[0]], self.unit_port_gbps[between[1]])

    def optical_gbps(self, unit: UnitIndex) -> float:
        """Return the rate that all circuits of a unit together do not exceed."""
        each = self.unit_port_gbps[unit] if self.unit_port_gbps else self.port_gbps
        return self.ports[unit] * each

    def port_weight(self, unit: UnitIndex, between: Pair) -> float:
        """Return how much of a unit's optical capacity (`optical_gbps`) each Gb/s of a circuit takes there:
        more than 1 where the other end is slower, since the circuit holds a whole port.
        """
        if not self.unit_port_gbps:
            return 1.0
        return self.unit_port_gbps[unit] / self.circuit_gbps(between)

    def host_gbps_of(self, job: Job) -> float:
        """Return the rate that no worker of a job exceeds."""
        return min(self.host_gbps, job.host_gbps)

    def ps_gbps_of(self, job: Job) -> float:
        """Return the rate that all streams into a job's parameter server do not exceed together."""
        return min(self.ps_gbps, job.ps_gbps)

    def full_mesh(self) -> dict[Pair, int]:
        """The uniform connectivity of section VII-C: as many circuits between each two units, as all have
        ports for.
        """
        each = min(self.ports) // max(1, len(self.ports) - 1)
        return {(a, b): each for a in self.units for b in self.units if a < b and each}


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it comes: its placement is given (section IV-A).

    `workers` are (unit, W_v^j), units ascending; `ps` is the unit of its parameter server; `gigabits` is the
    volume of each worker; `update_s` is a_j, the time of the parameter update unless switches do it;
    `arrival` is its first slot.

    `meeting` is above 0 for a job that is summed in a way of its own, whatever a policy decides, which the
    paper does not have: how many of its streams meet in one queue. INC is then not offered to it, and `ps` is
    the unit where its circuits meet.

    `host_gbps` is the rate of the slowest link of its workers, `ps_gbps` that of its server's link: hosts
    may differ, and bound this job's rates as those of `Limits` bound all.
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
        """Return the units where it may use INC: by equation (2), and section VI-A but for `partial_inc`."""
        if self.meeting or (not self.is_local and not limits.partial_inc):
            return ()
        return tuple(unit for unit, _ in self.workers if limits.inc[unit] > 0)


@dataclass(frozen=True, slots=True)
class Load:
    """The capacity that a job takes for each Gb/s of its rate, once its mode (INC in a unit, or none) is
    chosen.

    `links` are Gb/s between two units, `switches` Gb/s of B_PDP; `inc` is the unit whose switch it takes a
    place of. `update_s` follows its last byte; `limit_gbps` is the largest rate that it could have, alone in
    the network; `ends_gbps` is that of its hosts and switches, whatever circuits there are at once.
    """

    links: tuple[tuple[Pair, int], ...]
    switches: tuple[tuple[UnitIndex, int], ...]
    inc: UnitIndex | None
    update_s: float
    limit_gbps: float
    ends_gbps: float


def load(limits: Limits, job: Job, inc: UnitIndex | None) -> Load:
    """Equations (4) and (5) for one job and mode, with what docs/p4inc-aoi.md says of their misprints."""
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


def possible_gbps(limits: Limits, its: Load) -> float:
    """Return the largest rate that a job could have alone, over the core too, where all of its links meet at
    the server's unit.
    """
    if not limits.core_gbps or not its.links:
        return its.limit_gbps
    return max(its.limit_gbps, min(its.ends_gbps, limits.core_gbps / sum(count for _, count in its.links)))


def _optical_limit(limits: Limits, ps: UnitIndex, links: Sequence[tuple[Pair, int]]) -> float:
    """The largest rate at which every link has whole ports enough, with no other job beside it."""
    if not links:
        return math.inf
    room = {pair_: limits.ports[pair_[0] if pair_[1] == ps else pair_[1]] for pair_, _ in links}
    given = dict.fromkeys(room, 0)
    weight = dict(links)
    # one port after the other to the link that limits
    for _ in range(limits.ports[ps]):
        least = min(given, key=lambda p: (given[p] * limits.circuit_gbps(p) / weight[p], p))
        if given[least] == room[least]:
            break
        given[least] += 1
    return min(given[p] * limits.circuit_gbps(p) / weight[p] for p in given)


@dataclass(slots=True)
class Progress:
    """A job that has arrived and is not finished. Policies read it; who runs the jobs writes it.

    `started` is its first slot with a rate; from then on its mode `inc` stays, and its rate stays above 0
    (the set of durations in section IV-B: a transfer runs continuously until it is finished).
    """

    job: Job
    remaining_gigabits: float
    started: int | None = None
    inc: UnitIndex | None = None
    rate_gbps: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """All that a policy knows at the beginning of a slot: `jobs` in the order of arrival, `ports` the
    circuits lit between two units.
    """

    limits: Limits
    slot: int
    jobs: Sequence[Progress]
    ports: Mapping[Pair, int]


@dataclass(frozen=True, slots=True)
class RotationTurn:
    """Circuits between two units that a rotation lights for so long, its guard time included."""

    ports: Mapping[Pair, int]
    lasts_ms: float


@dataclass(frozen=True, slots=True)
class Rotation:
    """Turns that follow each other by the data plane's clock, again and again; each is dark for `guard_ms`
    first. The paper has none.
    """

    turns: tuple[RotationTurn, ...]
    guard_ms: float = 0.0

    @property
    def period_ms(self) -> float:
        return math.fsum(turn.lasts_ms for turn in self.turns)

    def circuits(self) -> dict[Pair, int]:
        """Return the circuits that two units have while they have any, in the turn with the fewest."""
        least: dict[Pair, int] = {}
        for turn in self.turns:
            for link, count in turn.ports.items():
                if count:
                    least[link] = min(count, least.get(link, count))
        return least

    def share(self, links: Sequence[Pair]) -> float:
        """Return the share of time in which the pair of these that is lit least has circuits."""
        of_each = (
            math.fsum(turn.lasts_ms - self.guard_ms for turn in self.turns if turn.ports.get(link))
            for link in links
        )
        return min(of_each, default=self.period_ms) / self.period_ms


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's answer for a slot.

    `rates` has the Gb/s of each job that runs; a job that is not in it waits. `inc` has the unit for each of
    them that uses INC. `ports` are the circuits between two units during the slot (P_v,u), those without
    traffic included.

    With a `rotation` its turns are the circuits, and `ports` is empty; a rate over circuits is then that
    of the time in which they are lit.
    """

    rates: Mapping[int, float] = field(default_factory=dict)
    inc: Mapping[int, UnitIndex] = field(default_factory=dict)
    ports: Mapping[Pair, int] = field(default_factory=dict)
    rotation: Rotation | None = None

    @property
    def circuits(self) -> Mapping[Pair, int]:
        """Return the circuits over which rates are given."""
        return self.ports if self.rotation is None else self.rotation.circuits()


ALL, NEEDED = "all", "needed"
STEPS = (ALL, NEEDED)
"""How many steps of delta B a job gets, where a policy gives out steps: all that fit, as algorithm 2 is
printed (lines 19 to 31), or those alone that it needs to end within the slot: more would hold ports that it
cannot use."""


class Policy(Protocol):
    """Decides slot by slot. Its answer depends on its settings, its seed and the states that it was shown, on
    nothing else.
    """

    @property
    def name(self) -> str: ...

    def decide(self, state: State) -> Decision: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """A whole run: jobs, the circuits lit before it, and what was done in each slot from 0."""

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
    """Return the Gb that a worker could not send in a slot because circuits were being set up: the last term
    of equation (10).

    A rate that grows over a pair of units whose circuits grow comes into force epsilon late.
    """
    grown = rate_now - rate_before
    if grown <= 0 or not any(now.get(p, 0) > before.get(p, 0) for p, _ in links):
        return 0.0
    return grown * limits.reconfiguration_s


def set_up(before: Mapping[Pair, int], now: Mapping[Pair, int]) -> int:
    """Return how many circuits a reconfiguration sets up: the reconfigured connections that section VII
    counts.
    """
    return sum(max(0, count - before.get(p, 0)) for p, count in now.items())
