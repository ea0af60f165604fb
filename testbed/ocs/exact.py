"""Choose exactly the number of circuits that is asked for between each two units, with as few changes as
possible. Pure and deterministic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from testbed.errors import RequestError
from testbed.ocs.circuits import Circuit, circuit, ports_of
from testbed.ocs.plan import PortTable
from testbed.topology.addresses import parse_optical_port, unit_name
from testbed.topology.units import Unit, UnitPair


def counted(circuits: Iterable[Circuit]) -> dict[UnitPair, int]:
    """Count the circuits between each two units, by (smaller, larger); circuits from a unit to itself are not
    counted.
    """
    return dict(Counter(c.units for c in circuits if c.units[0] != c.units[1]))


def exact(
    current: frozenset[Circuit],
    counts: Mapping[UnitPair, int],
    ports: PortTable,
    down: Collection[str] = (),
) -> frozenset[Circuit]:
    """Choose circuits so that each two units have as many as `counts` says, and no others. Circuits that
    exist are kept where possible; no new one has a port that is `down`.

    RequestError when a unit has fewer ports than it needs.
    """
    target, lacking = nearest(current, counts, ports, down)
    for pair, unit in lacking.items():
        names = ", ".join(sorted(down, key=parse_optical_port))
        raise RequestError(
            f"a circuit between {unit_name(pair[0])} and {unit_name(pair[1])} needs an optical port of "
            f"{unit_name(unit)}; none is free, and {names} {'is' if len(down) == 1 else 'are'} down"
        )
    return target


def nearest(
    current: frozenset[Circuit],
    counts: Mapping[UnitPair, int],
    ports: PortTable,
    down: Collection[str] = (),
) -> tuple[frozenset[Circuit], dict[UnitPair, Unit]]:
    """Choose circuits as `exact` does, but fewer where only ports that are `down` are left. Return also the
    pairs of units that lack circuits, each with a unit that has no free port.

    RequestError when a unit has fewer ports than it needs, those that are down included.
    """
    need: Counter[Unit] = Counter()
    for pair, count in counts.items():
        for unit in pair:
            need[unit] += count
    for unit, count in sorted(need.items()):
        if count > len(ports.get(unit, ())):
            raise RequestError(
                f"circuits need {count} optical ports of {unit_name(unit)}; it has {len(ports.get(unit, ()))}"
            )
    target: set[Circuit] = set()
    for (a, b), count in counts.items():
        target.update(sorted(c for c in current if c.units == (min(a, b), max(a, b)))[:count])
    used = {*ports_of(target), *down}
    free = {unit: sorted(set(names) - used, key=parse_optical_port) for unit, names in ports.items()}
    have = counted(target)
    lacking: dict[UnitPair, Unit] = {}
    for a, b in sorted(counts):
        for _ in range(counts[a, b] - have.get((min(a, b), max(a, b)), 0)):
            full = [unit for unit in (a, b) if not free[unit]]
            if full:
                lacking[a, b] = full[0]
                break
            target.add(circuit(free[a].pop(0), free[b].pop(0)))
    return frozenset(target), lacking
