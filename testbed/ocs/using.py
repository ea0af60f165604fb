"""Find the circuits that traffic between units uses, and the jobs that a change of circuits affects. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from testbed.ocs.circuits import Circuit, carrying
from testbed.ocs.routes import next_hops
from testbed.topology.addresses import CORE_WAY, optical_port_name, parse_optical_port
from testbed.topology.units import Unit, UnitPair

OVER_CORE = (CORE_WAY,)


def used(
    circuits: Iterable[Circuit],
    units: Iterable[Unit],
    pairs: Mapping[int, Iterable[UnitPair]],
    has_core: bool = False,
    down: Collection[str] = (),
) -> dict[int, frozenset[Circuit]]:
    """Return for each job the circuits on the current paths between its pairs of units, in both directions
    and through other units too; of parallel circuits all count. A pair without a path, or with a path over
    the core alone, uses none. Paths lead round the links that are `down`.
    """
    ways = _Crossed(carrying(circuits, down), units, has_core, down)
    return {
        job: frozenset(each for a, b in of_it for each in ways.circuits(a, b) | ways.circuits(b, a))
        for job, of_it in pairs.items()
    }


def over_core(
    circuits: Iterable[Circuit],
    units: Iterable[Unit],
    pairs: Iterable[UnitPair],
    down: Collection[str] = (),
) -> list[Unit]:
    """Return the units over whose links to the core the pairs' traffic goes, in both directions. Where a
    unit's own link is `down`, that is another unit's, which circuits lead to.
    """
    ways = _Crossed(carrying(circuits, down), units, True, down)
    both = [each for a, b in pairs for each in ((a, b), (b, a))]
    return sorted({unit for a, b in both for unit in ways.core_links(a, b)})


class _Crossed:
    """The circuits and links to the core that packets cross between two units."""

    def __init__(
        self, circuits: frozenset[Circuit], units: Iterable[Unit], has_core: bool, down: Collection[str]
    ) -> None:
        self._hops = next_hops(circuits, units, has_core, down)
        self._by_port = {end: each for each in circuits for end in each.ports}

    def circuits(self, here: Unit, goal: Unit) -> set[Circuit]:
        """Return the circuits on the path from one unit to another."""
        return {each for step in self._steps(here, goal) if not isinstance(step, int) for each in step}

    def core_links(self, here: Unit, goal: Unit) -> set[Unit]:
        """Return the units whose links to the core are on the path."""
        return {step for step in self._steps(here, goal) if isinstance(step, int)}

    def _steps(self, here: Unit, goal: Unit) -> Iterator[list[Circuit] | Unit]:
        """Yield what is crossed, in order: parallel circuits, or a unit whose link to the core is."""
        while here != goal and (bundle := self._hops[here].get(goal)):
            if bundle == OVER_CORE:
                beyond = self._hops.from_core.get(goal, goal)
                yield here
                if beyond is None:
                    return
                yield beyond
                here = beyond
                continue
            crossed = [self._by_port[optical_port_name(here, port)] for port in bundle]
            yield crossed
            here = next(unit for end in crossed[0].ports if (unit := parse_optical_port(end)[0]) != here)


def losing(
    now: Iterable[Circuit],
    then: Iterable[Circuit],
    units: Iterable[Unit],
    pairs: Mapping[int, Iterable[UnitPair]],
    has_core: bool = False,
    down: Collection[str] = (),
) -> dict[int, tuple[frozenset[Circuit], list[UnitPair]]]:
    """Find the jobs that use circuits which a change removes: for each, these circuits, and the job's pairs
    of units that the change disconnects.
    """
    then, units = frozenset(then), list(units)
    hops = next_hops(then, units, has_core, down)
    lost = {}
    for job, circuits in used(now, units, pairs, has_core, down).items():
        if gone := circuits - then:
            cut = [(a, b) for a, b in pairs[job] if a != b and b not in hops[a]]
            lost[job] = (gone, cut)
    return lost
