"""Choose the circuits that stay and those that are added, from the lit circuits and the needed ones. Pure;
decides nothing about jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.scheduling.model import Pair


def kept(lit: Mapping[Pair, int], needed: Mapping[Pair, int], ports: Sequence[int]) -> Mapping[Pair, int]:
    """Return the circuits `needed`, plus as many of the other `lit` ones as `ports` have room for.

    Idle circuits are torn down only where a unit has too few ports: first those both of whose ends lack a
    port, then those between the pairs with most idle circuits. `needed` must fit the ports by itself.
    """
    more = {pair: count for pair, count in needed.items() if count > lit.get(pair, 0)}
    if not more:
        return lit
    now = {**lit, **more}
    over = {unit: 0 for pair in more for unit in pair}
    used = dict.fromkeys(over, 0)
    for (a, b), count in now.items():
        if a in used:
            used[a] += count
        if b in used:
            used[b] += count
    over = {unit: count - ports[unit] for unit, count in used.items() if count > ports[unit]}
    if not over:
        return now
    spare = {
        pair: count - needed.get(pair, 0) for pair, count in now.items() if pair[0] in over or pair[1] in over
    }
    idle = sorted((pair for pair, count in spare.items() if count > 0), key=lambda pair: (-spare[pair], pair))
    torn = dict.fromkeys(idle, 0)

    def tear_down(pair: Pair, count: int) -> None:
        torn[pair] += count
        for unit in pair:
            if unit in over:
                over[unit] -= count

    for ends in (2, 1):
        for pair in idle:
            wanting = [over[unit] for unit in pair if over.get(unit, 0) > 0]
            if len(wanting) >= ends:
                tear_down(pair, min([spare[pair] - torn[pair], *wanting]))
    # tearing down for one unit may free ports of another, so an earlier teardown may have become unnecessary
    for pair in idle:
        tear_down(pair, -max(0, min([torn[pair], *(-over[unit] for unit in pair if unit in over)])))
    now.update({pair: now[pair] - count for pair, count in torn.items() if count})
    return {pair: count for pair, count in now.items() if count}
