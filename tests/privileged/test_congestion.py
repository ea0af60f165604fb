"""Queues of links without any fault: next to nothing is lost and sent again, the link is used, and jobs share
it.

The networks are those of tests/bench/congestion.py, which says how fast each is. The figures of a quiet
machine are in docs/studies/performance.md; the bounds here are wider than what must hold (1 % sent again, 95
% of the rate, Jain's index 0.95), because on a busy machine processes are late, timers expire in between, and
links wait.
"""

from __future__ import annotations

import pytest

from tests.bench.congestion import CASES, measure

pytestmark = [
    pytest.mark.alone,
    pytest.mark.needs("namespaces", "xdp", "ovs"),
    pytest.mark.usefixtures("nothing_left"),
]

SENT_AGAIN = 0.02
USED = 0.5
FAIR = 0.9


@pytest.mark.parametrize(
    ("case", "buffer_packets"), [("star3", 256), ("rack4", 32), ("rack4", 16), ("star8", 16)]
)
def test_a_job_sends_next_to_nothing_again_whatever_the_queues_hold(case: str, buffer_packets: int) -> None:
    run = measure(CASES[case], buffer_packets, 2.0)
    assert run["again"] < SENT_AGAIN, run
    assert run["used"] > USED, run
    assert run["marked"] > 0, run


def test_jobs_that_share_a_link_get_the_same_of_it() -> None:
    run = measure(CASES["shared2"], 16, 2.0)
    assert run["jain"] > FAIR, run
    assert run["used"] > USED, run
    assert run["again"] < SENT_AGAIN, run
