"""Reassign members to near heads: keep a clustering's heads and cluster sizes, and minimise the total
distance of members to their heads. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linear_sum_assignment

from testbed.systems.aleph.model import Clustering, clustering_of


def nearer(clustering: Clustering, distance: Callable[[int, int], float]) -> Clustering:
    """Reassign the members by a linear assignment; no node's load changes. Contributors that head nobody stay
    contributors.
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
