"""The circuits that traffic between units takes, and so whom a change of circuits concerns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from testbed.ocs.circuits import Circuit
from testbed.ocs.routes import next_hops
from testbed.topology.addresses import optical_port_name, parse_optical_port
from testbed.topology.units import Unit, UnitPair


def used(
    circuits: Iterable[Circuit], units: Iterable[Unit], pairs: Mapping[int, Iterable[UnitPair]]
) -> dict[int, frozenset[Circuit]]:
    """Return for each job the circuits by which its pairs of units reach each other now, either way, through
    other units too; parallel ones are all used. A pair that no circuits join uses none.
    """
    circuits = frozenset(circuits)
    hops = next_hops(circuits, units)
    by_port = {end: each for each in circuits for end in each.ports}

    def way(here: Unit, goal: Unit) -> set[Circuit]:
        taken: set[Circuit] = set()
        while here != goal and (bundle := hops[here].get(goal)):
            crossed = [by_port[optical_port_name(here, port)] for port in bundle]
            taken.update(crossed)
            here = next(unit for end in crossed[0].ports if (unit := parse_optical_port(end)[0]) != here)
        return taken

    return {
        job: frozenset(each for a, b in of_it for each in way(a, b) | way(b, a))
        for job, of_it in pairs.items()
    }


def losing(
    now: Iterable[Circuit],
    then: Iterable[Circuit],
    units: Iterable[Unit],
    pairs: Mapping[int, Iterable[UnitPair]],
) -> dict[int, tuple[frozenset[Circuit], list[UnitPair]]]:
    """Return the jobs that use circuits now which there are not then: these circuits, and the job's pairs of
    units that are then cut off from each other.
    """
    then, units = frozenset(then), list(units)
    hops = next_hops(then, units)
    lost = {}
    for job, circuits in used(now, units, pairs).items():
        if gone := circuits - then:
            cut = [(a, b) for a, b in pairs[job] if a != b and b not in hops[a]]
            lost[job] = (gone, cut)
    return lost
