"""Members by nearness: the heads and the sizes of a clustering as they are, and its members where the whole
way to their heads is shortest. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment

from testbed.systems.aleph.model import Clustering, clustering_of


def nearer(clustering: Clustering, distance: Callable[[int, int], float]) -> Clustering:
    """Return the clustering with its members dealt anew, which changes no node's load. Whoever heads nobody,
    and contributes by itself, still does.
    """
    places = [head for head, members in clustering.clusters.items() for _ in members]
    members = sorted(member for members in clustering.clusters.values() for member in members)
    if not members:
        return clustering
    cost = np.array([[distance(member, head) for head in places] for member in members])
    rows, columns = linear_sum_assignment(cost)
    dealt: dict[int, list[int]] = {}
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        dealt.setdefault(places[column], []).append(members[row])
    return clustering_of(len(clustering.head), dealt)
