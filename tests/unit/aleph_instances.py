"""Instances of ALEPH's clustering for tests: rates as in its simulations, and graphs of which worker can head
which.
"""

from __future__ import annotations

import random
from itertools import combinations

from testbed.systems.aleph.model import Instance, capacities

PAPER = Instance((30.0, 20.0, 20.0, *[10.0] * 5), capacities((30.0, 20.0, 20.0, *[10.0] * 5)), (40.0,))
"""The testbed of section 6.3, in Gb/s."""


def rates(size: int, deviation: float, draws: random.Random) -> tuple[float, ...]:
    """Return rates in Gb/s as in section 6.4: 10 times a normally distributed ratio of mean 0.5, clipped to
    0.1 to 0.9.
    """
    return tuple(10 * min(0.9, max(0.1, draws.gauss(0.5, deviation))) for _ in range(size))


def paired(
    size: int, deviation: float, edges: int, most: int | None = None, server: float = 100.0
) -> Instance:
    """Return a large instance in which `edges` drawn pairs can head each other; `most` as in `instance`."""
    draws = random.Random(f"{size} {deviation} {edges}")
    near: list[set[int]] = [set() for _ in range(size)]
    for _ in range(edges):
        first, other = draws.sample(range(size), 2)
        near[first].add(other)
        near[other].add(first)
    drawn = rates(size, deviation, draws)
    room = capacities(drawn) if most is None else tuple(draws.randint(0, most) for _ in drawn)
    return Instance(drawn, room, (server,), tuple(map(frozenset, near)))


def instance(
    size: int,
    deviation: float,
    seed: int,
    *,
    joined: float | None = None,
    racks: int = 0,
    most: int | None = None,
    server: float = 10.0,
) -> Instance:
    """Return a random instance. `joined`: the probability that two workers can head each other; `racks`: two
    workers can head each other if they are in the same of so many racks; with neither, all can. `most`:
    capacities are drawn up to this number; otherwise they follow from the rates.
    """
    draws = random.Random(f"{size} {deviation} {seed}")
    drawn = rates(size, deviation, draws)
    room = capacities(drawn) if most is None else tuple(draws.randint(0, most) for _ in drawn)
    if joined is None and not racks:
        return Instance(drawn, room, (server,))
    near: list[set[int]] = [set() for _ in drawn]
    rack = [draws.randrange(racks or 1) for _ in drawn]
    for first, other in combinations(range(size), 2):
        if draws.random() < joined if joined is not None else rack[first] == rack[other]:
            near[first].add(other)
            near[other].add(first)
    return Instance(drawn, room, (server,), tuple(map(frozenset, near)))
