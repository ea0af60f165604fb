"""Compute the room of heads and parameter servers within a time, and distribute members among heads. Pure."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.systems.aleph.model import ROUNDING, Instance


def taken_at(instance: Instance, time: float) -> float:
    """Return how many contributors the parameter servers can take within a time."""
    rate = instance.server_rate
    carried = math.inf if math.isinf(rate) else time * rate * (1 + ROUNDING)
    return min(instance.contributors, carried)


def room_at(instance: Instance, time: float) -> NDArray[np.int64]:
    """Return how many others each worker can head within a time."""
    rates, most = np.array(instance.rates), np.array(instance.capacities, np.int64)
    carried = np.full(instance.size, instance.size + 1.0)
    limited = np.isfinite(rates)
    carried[limited] = np.minimum(time * rates[limited] * (1 + ROUNDING), instance.size + 1.0)
    room = carried.astype(np.int64) - 1
    return np.clip(np.minimum(room, most), 0, None)


def filled(
    heads: Sequence[int], members: Iterable[int], room: NDArray[np.int64], rates: NDArray[np.float64]
) -> dict[int, Sequence[int]]:
    """Distribute members among heads, each of which can head all of them: each next member goes to the head
    that is then the least busy. Members with consecutive numbers stay together.
    """
    sizes = dict.fromkeys(sorted(heads), 0)
    others = list(members)
    waiting = [(2 / float(rates[head]), 2, head) for head in heads if room[head] > 0]
    heapq.heapify(waiting)
    for _ in others:
        _, vectors, head = heapq.heappop(waiting)
        sizes[head] += 1
        if sizes[head] < room[head]:
            heapq.heappush(waiting, ((vectors + 1) / float(rates[head]), vectors + 1, head))
    dealt = iter(others)
    return {head: tuple(itertools.islice(dealt, size)) for head, size in sizes.items() if size}
