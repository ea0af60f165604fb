"""The compiled endpoint asks its places what is lost, as docs/protocol.md has it ("Questions"), where a job
has the integrity check for its recovery.
"""

from __future__ import annotations

import numpy as np
import pytest

from testbed.contract import mapping, spec
from tests.unit.endpoint_wire import DONE, LIMIT, QUIET, rack
from tests.unit.test_endpoint_protocol import LENGTHS, expected, vectors

RANGE = LIMIT // 2


@pytest.mark.parametrize(("workers", "loss"), [(1, 0.0), (3, 0.0), (3, 0.05), (2, 0.2)])
def test_sums_are_exact_whatever_is_lost(workers: int, loss: float) -> None:
    given = vectors(workers)
    due = [expected([each[at].copy() for each in given]) for at in range(len(LENGTHS))]
    with rack(workers, loss, asks=True) as network:
        events = network.run(given)
        counters = [network.counters(end) for end in network.ends]
        asked = [len(end.questions) for end in network.ends]
    assert network.wrong[:5] == []
    assert [[event for event, _ in each] for each in events] == [[DONE] * len(LENGTHS)] * workers
    for each in given:
        for summed, right in zip(each, due, strict=True):
            assert np.array_equal(summed.view(np.uint32), right.view(np.uint32))
    assert [each.asked for each in counters] >= asked


def test_a_range_that_is_pushed_is_asked_for() -> None:
    """Nothing is lost, so that nothing is pushed again."""
    given = vectors(2, (40 * spec.LANES,))
    with rack(2, asks=True) as network:
        network.run(given)
        questions = [end.questions for end in network.ends]
        times = [end.pushes[number] for end in network.ends for number in range(40)]
    assert network.wrong[:5] == []
    assert times == [1] * 80
    assert all(1 <= max(count for _, count in each) <= RANGE for each in questions)


def test_what_is_lost_alone_is_pushed_again() -> None:
    """All three workers push again what one of them lost, with the window."""
    given = vectors(3, (400 * spec.LANES,))
    repeated = {}
    for asks in (False, True):
        with rack(3, 0.02, asks=asks) as network:
            network.run([[each[0].copy()] for each in given])
            repeated[asks] = sum(
                times - 1
                for end in network.ends
                for fragment, times in end.pushes.items()
                if fragment < mapping.FIRST_VOTE
            )
    assert network.wrong[:5] == []
    assert 0 < repeated[True] < repeated[False]


def test_a_worker_that_hears_nothing_asks_for_its_first_range() -> None:
    """It pushes none of its fragments again: its place does not lack them."""
    lanes = np.ones(40 * spec.LANES, np.uint32)
    with rack(2, absent=[1], asks=True) as network:
        network.vote_for(1, lanes, raw=True)
        (end,) = network.ends
        network.submit(end, lanes, raw=True)
        for _ in range(3):
            assert network.step(end)[0] == QUIET
        network.wait_for_pushes(end)
        data = {number: times for number, times in end.pushes.items() if number < mapping.FIRST_VOTE}
    assert network.wrong[:5] == []
    assert data == dict.fromkeys(range(len(data)), 1)
    assert 8 <= len(data) <= LIMIT
    assert end.questions.count((0, RANGE)) >= 3
