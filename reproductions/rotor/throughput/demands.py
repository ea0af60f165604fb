"""The demands of the throughput figure, and the bound of each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reproductions.rotor import bounds
from reproductions.rotor.bounds import Demand

SKEW = 0.5
"""The share of a unit's traffic that goes to one other unit, in the demand `skewed`."""


def _uniform(units: int) -> Demand:
    return {pair: 1 / (units - 1) for pair in _pairs(units)}


def _skewed(units: int) -> Demand:
    rest = (1 - SKEW) / (units - 2)
    return {pair: SKEW if pair[1] == _next(pair[0], units) else rest for pair in _pairs(units)}


def _permutation(units: int) -> Demand:
    return {(unit, _next(unit, units)): 1.0 for unit in range(1, units + 1)}


def _few(units: int) -> Demand:
    return {(unit, unit + units // 2): 1.0 for unit in range(1, units // 4 + 1)}


def _pairs(units: int) -> list[tuple[int, int]]:
    numbers = range(1, units + 1)
    return [(sender, to) for sender in numbers for to in numbers if sender != to]


def _next(unit: int, units: int) -> int:
    return unit % units + 1


DEMANDS: Mapping[str, Callable[[int], Demand]] = {
    "uniform": _uniform,
    "skewed": _skewed,
    "permutation": _permutation,
    "few": _few,
}
"""By name, from the number of units to shares of a port's rate: each unit sends as much to each other; half
of it to one other; all of it to one other; or a quarter of the units sends, each to one other.
"""
ROUTINGS = ("direct", "vlb", "hoho")


def senders(demand: Demand) -> int:
    """Return how many units send."""
    return len({sender for sender, _ in demand})


def wanted(demand: Demand) -> float:
    """Return a sender's mean demand, as a share of a port's rate. A packet switch carries all of it, because
    no unit sends or receives more than its port's rate.
    """
    return sum(demand.values()) / senders(demand)


def bound(demand: Demand, routing: str, units: int, lit: float) -> float:
    """Return the most that a routing carries of a sender's traffic, on average, as a share of a port's rate.
    A circuit is lit for the share `lit` of a slot.
    """
    pair_share = lit / (units - 1)
    if routing == "direct":
        most = bounds.direct(demand, pair_share)
    elif routing == "vlb":
        most = bounds.two_hops(demand, pair_share, units)
    else:
        most = bounds.any_hops(demand, pair_share, units)
    return most / senders(demand)
