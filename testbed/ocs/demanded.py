"""Choose the demands with which a job requests circuits, beside the jobs that run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from testbed.ocs.circuits import Circuit
from testbed.ocs.plan import PortTable, servable, up
from testbed.ocs.using import used
from testbed.topology.addresses import core_link_name
from testbed.topology.units import UnitPair


def demanded(
    own: Iterable[UnitPair],
    others: Iterable[UnitPair],
    circuits: Collection[Circuit],
    ports: PortTable,
    planes: Mapping[str, str],
    has_core: bool = False,
    down: Collection[str] = (),
) -> list[UnitPair]:
    """Return the pairs of units for which a job requests circuits: its own, and those of the `others`, which
    must not lose what they have.

    With a core, it carries what ports do not suffice for; units whose link to it is down come first. Without
    one, all pairs are demanded, whether there are ports for all or not. If only ports that are `down` are
    lacking, a pair that present circuits join keeps these, also where they lead through other units; another
    job's pair without a way is demanded only if a port is left.
    """
    others, free = [*others], up(ports, down)
    every = [*dict.fromkeys(_sorted(pair) for pair in (*others, *own) if pair[0] != pair[1])]
    if has_core:
        cut_off = [pair for pair in every if any(core_link_name(unit) in down for unit in pair)]
        return servable([*cut_off, *_without(every, cut_off)], free, planes)
    if len(servable(every, free, planes)) == len(every) or len(servable(every, ports, planes)) < len(every):
        return every
    numbered = dict(enumerate(every))
    taken = used(circuits, list(ports), {number: [pair] for number, pair in numbered.items()}, down=down)
    ways = {pair: [*dict.fromkeys(each.units for each in sorted(taken[at]))] for at, pair in numbered.items()}
    theirs = [pair for pair in every if pair in {_sorted(each) for each in others}]
    asked = dict.fromkeys(link for pair in theirs for link in ways[pair])
    for pair in sorted(_without(every, theirs), key=lambda pair: ways[pair] != [pair]):
        if ways[pair] and len(servable([*asked, pair], free, planes)) <= len(asked):
            asked |= dict.fromkeys(ways[pair])
        else:
            asked[pair] = None
    for pair in theirs:
        if not ways[pair] and len(servable([*asked, pair], free, planes)) > len(asked):
            asked[pair] = None
    return [*asked]


def _without(pairs: Iterable[UnitPair], others: Collection[UnitPair]) -> list[UnitPair]:
    return [pair for pair in pairs if pair not in others]


def _sorted(pair: UnitPair) -> UnitPair:
    return (min(pair), max(pair))
