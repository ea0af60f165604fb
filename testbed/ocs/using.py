"""Find the circuits that traffic between units uses, and the jobs that a change of circuits affects. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from testbed.ocs.circuits import Circuit, carrying
from testbed.ocs.routes import next_hops
from testbed.topology.addresses import CORE_WAY, core_link_name, optical_port_name, parse_optical_port
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
    the core, uses none. Paths lead round the links that are `down`.
    """
    circuits = carrying(circuits, down)
    hops = next_hops(circuits, units, has_core, down)
    by_port = {end: each for each in circuits for end in each.ports}

    def way(here: Unit, goal: Unit) -> set[Circuit]:
        taken: set[Circuit] = set()
        while here != goal and (bundle := hops[here].get(goal)) and bundle != OVER_CORE:
            crossed = [by_port[optical_port_name(here, port)] for port in bundle]
            taken.update(crossed)
            here = next(unit for end in crossed[0].ports if (unit := parse_optical_port(end)[0]) != here)
        return taken

    return {
        job: frozenset(each for a, b in of_it for each in way(a, b) | way(b, a))
        for job, of_it in pairs.items()
    }


def over_core(
    circuits: Iterable[Circuit], pairs: Iterable[UnitPair], down: Collection[str] = ()
) -> list[Unit]:
    """Return the units of the pairs that no circuit joins directly: where there is a core, these use it.
    Those whose own links to it are `down` use other units' links.
    """
    direct = {each.units for each in carrying(circuits, down)}
    apart = {unit for a, b in pairs if a != b and (min(a, b), max(a, b)) not in direct for unit in (a, b)}
    return sorted(unit for unit in apart if core_link_name(unit) not in down)


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
