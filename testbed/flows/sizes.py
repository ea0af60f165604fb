"""Distributions of flow sizes: published ones by name, a fixed size, or a user's own. Pure; sizes are bytes
of the network that a configuration declares, before the scale.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from testbed.errors import RequestError
from testbed.topology.fields import is_number, listed, shown

MOST_BYTES = 10**12
MOST_POINTS = 10_000
_PACKET = 1460


@dataclass(frozen=True, slots=True)
class SizeDistribution:
    """Points of a cumulative distribution, (bytes, probability), between which it is linear. The first point
    has probability 0 unless there are flows of exactly its size.
    """

    points: tuple[tuple[float, float], ...]

    @property
    def mean_bytes(self) -> float:
        """The mean of the sizes that are drawn, but for their rounding to whole bytes."""
        least, share = self.points[0]
        steps = ((b + a) / 2 * (q - p) for (a, p), (b, q) in pairwise(self.points))
        return math.fsum([least * share, *steps])

    def draw(self, random: Random) -> int:
        """Draw a size of at least one byte."""
        wanted = random.random()
        at = bisect_left(self.points, wanted, key=lambda point: point[1])
        size, share = self.points[at]
        if at and share > self.points[at - 1][1]:
            before, below = self.points[at - 1]
            size = before + (size - before) * (wanted - below) / (share - below)
        return max(1, round(size))


def _percents(*points: tuple[float, float]) -> SizeDistribution:
    return SizeDistribution(tuple((size, percent / 100) for size, percent in points))


NAMED: Mapping[str, SizeDistribution] = {
    # Web search: Alizadeh et al., Data Center TCP (DCTCP), SIGCOMM 2010, Figure 4, in the points that HPCC
    # (Li et al., SIGCOMM 2019) used for its evaluation.
    "websearch": _percents(
        (0, 0), (10e3, 15), (20e3, 20), (30e3, 30), (50e3, 40), (80e3, 53), (200e3, 60),
        (1e6, 70), (2e6, 80), (5e6, 90), (10e6, 97), (30e6, 100),
    ),
    # Hadoop: Roy et al., Inside the Social Network's (Datacenter) Network, SIGCOMM 2015, in HPCC's points.
    "hadoop": _percents(
        (0, 0), (100, 1), (200, 2), (300, 5), (350, 15), (400, 20), (500, 30), (600, 40), (700, 50),
        (1000, 60), (2000, 67), (7000, 70), (30e3, 72), (50e3, 82), (80e3, 87), (120e3, 90),
        (300e3, 95), (1e6, 97.5), (2e6, 99), (10e6, 100),
    ),
    # Data mining: Greenberg et al., VL2, SIGCOMM 2009, in the points of pFabric's simulations (Alizadeh et
    # al., SIGCOMM 2013), there in packets.
    "datamining": _percents(
        (1 * _PACKET, 50), (2 * _PACKET, 60), (3 * _PACKET, 70), (7 * _PACKET, 80), (267 * _PACKET, 90),
        (2107 * _PACKET, 95), (66667 * _PACKET, 99), (666667 * _PACKET, 100),
    ),
}  # fmt: skip
_ACCEPTED = f"{listed(NAMED)}, a number of bytes, or [[bytes, cumulative probability], ...] is accepted"


def fixed(size: float) -> SizeDistribution:
    return SizeDistribution(((size, 1.0),))


def read_sizes(raw: Any, at: str) -> SizeDistribution:
    """Read a file's value of `sizes`. Raises RequestError."""
    if isinstance(raw, str) and raw in NAMED:
        return NAMED[raw]
    if is_number(raw) and 1 <= raw <= MOST_BYTES:
        return fixed(raw)
    if isinstance(raw, list) and 1 <= len(raw) <= MOST_POINTS and all(map(_is_point, raw)):
        points = [(float(size), float(share)) for size, share in raw]
        rises = all(a <= c and b <= d for (a, b), (c, d) in pairwise(points))
        if not rises or points[-1][1] != 1 or points[-1][0] < 1:
            raise RequestError(
                f"{at}: {shown(raw)}; points whose bytes and probabilities do not fall, and whose last "
                f"probability is 1, are accepted"
            )
        return SizeDistribution(tuple(points))
    raise RequestError(f"{at}: {shown(raw)}; {_ACCEPTED}")


def _is_point(raw: Any) -> bool:
    return (
        isinstance(raw, list)
        and len(raw) == 2
        and all(map(is_number, raw))
        and 0 <= raw[0] <= MOST_BYTES
        and 0 <= raw[1] <= 1
    )
