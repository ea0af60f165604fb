"""Results in which a worker is missing, live: those who came have what they summed, and know how many they
were.
"""

from __future__ import annotations

import pytest

from tests.privileged.degraded_scenario import described
from tests.privileged.inside import findings

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]
BOTH, FIRST, SECOND = 1 << 8 | 1, 1, 1 << 8


@pytest.mark.parametrize("engine", ["xdp", pytest.param("bmv2", marks=pytest.mark.needs("bmv2"))])
def test_workers_know_who_is_in_a_sum_that_was_ticked(engine: str) -> None:
    seen = findings("degraded_scenario:without_the_last", described(engine))
    assert len(seen) == 2
    assert seen[0] == seen[1], "all have the same results"
    (worker, _) = seen
    assert set(worker["sums"]) <= {BOTH, FIRST, SECOND}, "nobody is in a sum twice"
    assert worker["as the outcome says"]
    assert worker["degraded"] == worker["fragments"], "every fragment lacks a worker"
    assert worker["values"] == [9.0], "the mean of those who contributed, times three"
    assert worker["counted"] == sum(worker["fragments"]) + 2, "and both votes"
