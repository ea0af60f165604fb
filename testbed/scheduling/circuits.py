"""Which circuits stay and which are added, from what is lit and what traffic needs. Pure; no decision about jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.scheduling.model import Pair


def kept(lit: Mapping[Pair, int], needed: Mapping[Pair, int], ports: Sequence[int]) -> dict[Pair, int]:
    """At least the circuits `needed`, and of the others that are `lit` as many as `ports` leave room for.

    Idle circuits are torn down only where a unit has too few ports, first those whose two ends both want one, then those between
    the pairs with most idle circuits. `needed` must fit the ports by itself.
    """
    now = {pair: count for pair, count in lit.items() if count}
    over: dict[int, int] = {}
    for pair, count in needed.items():
        if count > now.get(pair, 0):
            now[pair] = count
            over[pair[0]] = over[pair[1]] = 0
    if not over:
        return now
    used = dict.fromkeys(over, 0)
    for (a, b), count in now.items():
        if a in used:
            used[a] += count
        if b in used:
            used[b] += count
    over = {unit: count - ports[unit] for unit, count in used.items() if count > ports[unit]}
    if not over:
        return now
    idle = [
        (needed.get(pair, 0) - count, pair)
        for pair, count in now.items()
        if count > needed.get(pair, 0) and (pair[0] in over or pair[1] in over)
    ]
    idle.sort()
    for ends in (2, 1):
        for surplus, pair in idle:
            wanting = [over[unit] for unit in pair if over.get(unit, 0) > 0]
            if len(wanting) < ends:
                continue
            torn = min(now.get(pair, 0) - needed.get(pair, 0), -surplus, min(wanting))
            if torn <= 0:
                continue
            now[pair] -= torn
            if not now[pair]:
                del now[pair]
            for unit in pair:
                if unit in over:
                    over[unit] -= torn
    return now
