"""Circuits that jobs asked for while they run: which worker holds which, and the circuits that a further
demand gets beside these. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit, carrying, ports_of
from testbed.ocs.plan import PortTable, plan_planes, servable, up
from testbed.topology.addresses import unit_name
from testbed.topology.units import UnitPair


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A worker's request for circuits: its job, its rank, and the request's name within the job."""

    job: int
    rank: int
    key: str


class Claims:
    """The circuits of each holder. Holders of one job may hold the same circuit: it is claimed until the last
    of them releases it.
    """

    def __init__(self) -> None:
        self._held: dict[Holder, frozenset[Circuit]] = {}

    def hold(self, holder: Holder, circuits: Iterable[Circuit]) -> None:
        """Let a holder hold these circuits, besides those that it has."""
        self._held[holder] = self._held.get(holder, frozenset()) | frozenset(circuits)

    def release(self, job: int, rank: int | None = None, key: str | None = None) -> frozenset[Circuit]:
        """Release the circuits of a job: of one worker or of all, of one request or of all. Return those that
        nobody holds any more.
        """
        ended = [
            each
            for each in self._held
            if each.job == job and rank in (None, each.rank) and key in (None, each.key)
        ]
        released = frozenset(circuit for each in ended for circuit in self._held.pop(each))
        return released - frozenset(circuit for held in self._held.values() for circuit in held)

    def holders(self, job: int, circuit: Circuit) -> list[Holder]:
        """Return the holders of a circuit in a job, by rank."""
        return sorted(each for each, held in self._held.items() if each.job == job and circuit in held)

    def by_job(self) -> dict[int, frozenset[Circuit]]:
        """Return the circuits that each job holds; jobs that hold none are left out."""
        jobs: dict[int, frozenset[Circuit]] = {}
        for holder, circuits in self._held.items():
            jobs[holder.job] = jobs.get(holder.job, frozenset()) | circuits
        return {job: circuits for job, circuits in jobs.items() if circuits}


@dataclass(frozen=True, slots=True)
class CircuitDemand:
    """A demand for circuits: one between two units for each time that their pair occurs, and circuits between
    named ports.
    """

    pairs: tuple[UnitPair, ...] = ()
    circuits: frozenset[Circuit] = frozenset()


@dataclass(frozen=True, slots=True)
class Optics:
    """The optical network as a demand meets it: the circuits that are set, the ports by unit and their
    planes, whether there is a core, and the links that are down.
    """

    lit: frozenset[Circuit]
    ports: PortTable
    planes: Mapping[str, str]
    has_core: bool = False
    down: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Granted:
    """The circuits that a demand gets, and all circuits that are set then."""

    circuits: frozenset[Circuit]
    target: frozenset[Circuit]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The circuits that would have to go for a demand, by the job that has them."""

    in_the_way: Mapping[int, frozenset[Circuit]]


def grant(
    job: int,
    demand: CircuitDemand,
    claimed: Mapping[int, frozenset[Circuit]],
    used: Mapping[int, frozenset[Circuit]],
    optics: Optics,
) -> Granted | Obstacle:
    """Plan the circuits for a job's demand, with few changes. Circuits that the job holds already serve its
    pairs, too. No circuit goes that a job holds (`claimed`), or that another job's traffic uses (`used`): if
    one is in the way, return which. RequestError if the demand cannot be served even alone.
    """
    own = carrying(claimed.get(job, frozenset()), optics.down)
    others = {
        other: used.get(other, frozenset()) | claimed.get(other, frozenset()) for other in {*used, *claimed}
    }
    others.pop(job, None)
    shared, missing = _reused(demand, own)
    held = own.union(*others.values())
    try:
        target = planned(held, demand.circuits, missing, optics)
    except RequestError:
        had = {job: own, **others}
        rest = replace(optics, lit=optics.lit.difference(*had.values()))
        alone = planned(frozenset(), demand.circuits, demand.pairs, rest)
        needed = ports_of({*demand.circuits, *_serving(demand.pairs, alone - demand.circuits)})
        in_the_way = {
            other: taken
            for other, circuits in had.items()
            if (taken := frozenset(each for each in circuits if not {*each.ports}.isdisjoint(needed)))
        }
        if not in_the_way:
            raise
        return Obstacle(in_the_way)
    free = carrying(target - held, optics.down) - demand.circuits
    return Granted(frozenset({*demand.circuits, *shared, *_serving(missing, free)}), target)


def _serving(pairs: Iterable[UnitPair], circuits: Iterable[Circuit]) -> set[Circuit]:
    """Choose a circuit for each of the pairs; there is one for each."""
    free, serving = sorted(circuits), set[Circuit]()
    for a, b in pairs:
        first = next(each for each in free if each.units == (min(a, b), max(a, b)))
        free.remove(first)
        serving.add(first)
    return serving


def beside(held: frozenset[Circuit], demands: Iterable[UnitPair], optics: Optics) -> frozenset[Circuit]:
    """Plan all circuits for demands beside circuits that are held. A core carries the demands for which there
    are no ports left. RequestError if there is none.
    """
    pairs = list(demands)
    if optics.has_core:
        fixed = [each.units for each in sorted(carrying(held, optics.down))]
        ports = up(optics.ports, optics.down)
        pairs = servable([*fixed, *pairs], ports, optics.planes)[len(fixed) :]
    return planned(held, frozenset(), pairs, optics)


def planned(
    held: frozenset[Circuit],
    named: frozenset[Circuit],
    pairs: Iterable[UnitPair],
    optics: Optics,
) -> frozenset[Circuit]:
    """Plan all circuits so that those that are `held` or `named` are among them, and one more for each of
    `pairs`. RequestError if that is impossible.
    """
    held = carrying(held, optics.down)
    if dead := [port for port in ports_of(named) if port in optics.down]:
        raise RequestError(f"the link of {dead[0]} is down; ports whose links are up are accepted")
    fixed = held | named
    counts = Counter(port for each in fixed for port in each.ports)
    if twice := sorted(port for port, count in counts.items() if count > 1):
        raise RequestError(f"{twice[0]} is in another circuit that is in use")
    current = fixed | {each for each in optics.lit if counts.keys().isdisjoint(each.ports)}
    demands = [*(each.units for each in sorted(fixed)), *pairs]
    return plan_planes(
        frozenset(current), demands, optics.ports, optics.planes, optics.has_core, optics.down, fixed
    ).target


def in_words(circuits: Iterable[Circuit]) -> str:
    """Name circuits by their ports."""
    return ", ".join(f"{each.a}-{each.b}" for each in sorted(circuits)) or "none"


def pair_in_words(pair: UnitPair) -> str:
    """Name a pair of units."""
    return f"{unit_name(pair[0])}-{unit_name(pair[1])}"


def _reused(demand: CircuitDemand, own: frozenset[Circuit]) -> tuple[set[Circuit], list[UnitPair]]:
    """Return the circuits that a job holds already for the pairs of a demand, and the pairs without one."""
    shared, missing = set[Circuit](), list[UnitPair]()
    for pair, count in sorted(Counter((min(pair), max(pair)) for pair in demand.pairs).items()):
        mine = sorted(each for each in own - demand.circuits if each.units == pair)[:count]
        shared.update(mine)
        missing += [pair] * (count - len(mine))
    return shared, missing
