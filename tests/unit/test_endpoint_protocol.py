"""The compiled endpoint keeps docs/protocol.md: what it pushes, when it pushes again, what it makes of
results, notices and votes.
"""

from __future__ import annotations

import numpy as np
import pytest

from testbed.wire import mapping, spec
from testbed.wire.votes import is_carried
from tests.unit.endpoint_wire import DATA_SLOTS, DISAGREE, DONE, LIMIT, NOT_FINITE, rack
from workloads import quantiser

LENGTHS = (5_003, 1, 40 * spec.LANES, 0, 361, 97)  # of 97 and of 1 the vote carries the values


def vectors(workers: int, lengths: tuple[int, ...] = LENGTHS) -> list[list[np.ndarray]]:
    chance = np.random.default_rng(workers)
    return [
        [(chance.standard_normal(length) * 10.0**at).astype(np.float32) for at, length in enumerate(lengths)]
        for _ in range(workers)
    ]


def expected(given: list[np.ndarray]) -> np.ndarray:
    """The sum as the quantiser states it, to the bit."""
    return quantiser.summed(given)[0]


@pytest.mark.parametrize(("workers", "loss"), [(1, 0.0), (3, 0.0), (3, 0.05), (2, 0.2)])
def test_sums_are_exact_and_every_push_is_as_it_must_be(workers: int, loss: float) -> None:
    given = vectors(workers)
    due = [expected([each[at].copy() for each in given]) for at in range(len(LENGTHS))]
    with rack(workers, loss) as network:
        events = network.run(given)
        repeated = sum(times - 1 for end in network.ends for times in end.pushes.values())
        counted = sum(network.counters(end).retransmitted for end in network.ends)
        fragments = {
            fragment for end in network.ends for fragment in end.pushes if fragment < mapping.FIRST_VOTE
        }
    assert network.wrong[:5] == []
    assert [[event for event, _ in each] for each in events] == [[DONE] * len(LENGTHS)] * workers
    for each in given:
        for summed, right in zip(each, due, strict=True):
            assert np.array_equal(summed.view(np.uint32), right.view(np.uint32))
    pushed = [length for length in LENGTHS if not is_carried(length, workers, spec.LANES)]
    assert fragments == set(range(sum(-(-length // spec.LANES) for length in pushed)))
    assert (repeated == counted) if loss == 0 else repeated > 0


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_what_is_small_is_summed_beside_what_is_large(loss: float) -> None:
    """The parts are 1e10 and 1e30 apart. In the fragments that have of two, values become zeros, which are
    counted.
    """
    chance, length = np.random.default_rng(7), 90 * spec.LANES + 77
    magnitudes = np.repeat([1e10, 1.0, 1e-30], 30 * spec.LANES + 26)[:length]
    given = [[(chance.standard_normal(length) * magnitudes).astype(np.float32)] for _ in range(3)]
    due, _, zeroed = quantiser.summed([each[0].copy() for each in given])
    exact = np.sum([each[0].astype(np.float64) for each in given], axis=0)
    with rack(3, loss) as network:
        assert network.run(given) == [[(DONE, 0)]] * 3
        counters = [network.counters(end) for end in network.ends]
    assert network.wrong[:5] == []
    assert all(np.array_equal(summed, due) for (summed,) in given)
    assert [each.zeroed for each in counters] == zeroed
    assert [each.scaled for each in counters] == [length] * 3
    away = np.abs(due - exact) > 1e-5 * magnitudes
    assert np.count_nonzero(away) < 2 * spec.LANES
    assert zeroed > [spec.LANES / 2] * 3


@pytest.mark.parametrize("workers", [1, 3])
def test_a_zero_is_sent_as_the_bias(workers: int) -> None:
    with rack(workers) as network:
        network.run([[np.zeros(400, np.float32)] for _ in range(workers)])
        pushed = [end.lanes[0] for end in network.ends]
    assert network.wrong == []
    assert all((lanes == spec.bias(workers)).all() for lanes in pushed)


def test_raw_lanes_are_summed_as_they_are() -> None:
    lanes = [
        np.random.default_rng(at).integers(0, 2**30, 2 * spec.LANES + 7, dtype=np.uint32) for at in range(3)
    ]
    total = np.sum(lanes, axis=0, dtype=np.uint64).astype(np.uint32)
    with rack(3) as network:
        network.run([[each.view(np.float32)] for each in lanes], raw=True)
    assert network.wrong == []
    assert all(np.array_equal(each, total) for each in lanes)


def test_a_worker_that_hears_nothing_pushes_its_vote_again() -> None:
    with rack(2, absent=[1]) as network:
        network.run([[np.ones(spec.LANES * 3 * DATA_SLOTS, np.float32)]], raw=True, quiet=1)
        pushes = network.ends[0].pushes
    assert network.wrong == []
    assert set(pushes) == {mapping.FIRST_VOTE}, "no fragment before its vote"
    assert pushes[mapping.FIRST_VOTE] > 1


def test_a_vote_that_has_its_result_is_not_pushed_again() -> None:
    """An earlier one's is lost."""
    with rack(2, absent=[1]) as network:
        network.result_for(0, tree=0, fragment=mapping.FIRST_VOTE + 1)
        network.run([[np.ones(spec.LANES, np.float32) for _ in range(2)]], quiet=3)
        pushes = network.ends[0].pushes
    assert network.wrong == []
    assert set(pushes) == {mapping.FIRST_VOTE, mapping.FIRST_VOTE + 1}
    assert pushes[mapping.FIRST_VOTE] > 1
    assert pushes[mapping.FIRST_VOTE + 1] == 1


def test_the_window_is_half_a_segment() -> None:
    """Nobody sums here: the votes' results are given, so that data flow until the window is full."""
    with rack(2, absent=[1]) as network:
        network.vote_for(1, np.ones(spec.LANES * 3 * DATA_SLOTS, np.float32))
        network.run([[np.ones(spec.LANES * 3 * DATA_SLOTS, np.float32)]], quiet=4)
        pushed = {fragment for fragment in network.ends[0].pushes if fragment < mapping.FIRST_VOTE}
    assert network.wrong == []
    assert 8 <= len(pushed) <= LIMIT


@pytest.mark.parametrize("queue_packets", [2, 5])
def test_votes_and_fragments_have_one_window(queue_packets: int) -> None:
    """Votes are further ahead than any window, and then one goes for each 44 fragments."""
    given = [[np.ones(100 * spec.LANES, np.float32) for _ in range(24)] for _ in range(2)]
    with rack(2, queue_packets=queue_packets) as network:
        assert network.run(given) == [[(DONE, 0)] * 24] * 2
        crowds = [end.crowd for end in network.ends]
    assert network.wrong == []
    assert all((vector == 2).all() for each in given for vector in each)
    assert max(crowds) <= queue_packets


def test_a_worker_that_hears_nothing_pushes_its_last_fragment_again_first() -> None:
    """A later result than one that is missing tells of a gap; so the timer is for the last one."""
    with rack(2, absent=[1]) as network:
        network.vote_for(1, np.ones(spec.LANES * 3 * DATA_SLOTS, np.float32))
        network.run([[np.ones(spec.LANES * 3 * DATA_SLOTS, np.float32)]], quiet=5)
        pushes = {at: times for at, times in network.ends[0].pushes.items() if at < mapping.FIRST_VOTE}
    assert network.wrong == []
    assert pushes[max(pushes)] > pushes[0] >= 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("length", [50, 5_000])
def test_a_value_that_is_not_finite_is_told_to_all(bad: float, length: int) -> None:
    given = [[np.ones(length, np.float32)] for _ in range(3)]
    given[1][0][length - 1] = bad
    with rack(3) as network:
        events = network.run(given)
    assert events == [[(NOT_FINITE, 1)]] * 3


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_nan_far_behind_is_told_before_anything_is_pushed_and_the_next_vector_is_summed(
    loss: float,
) -> None:
    """The NaN is where the third vote is on. All votes go by nevertheless, so that later ones have their
    numbers.
    """
    given = [[np.ones(length, np.float32) for length in (100 * spec.LANES, 700)] for _ in range(3)]
    given[1][0][95 * spec.LANES] = np.nan
    with rack(3, loss) as network:
        events = network.run(given)
        pushed = [set(end.pushes) for end in network.ends]
    assert network.wrong[:5] == []
    assert events == [[(NOT_FINITE, 1), (DONE, 0)]] * 3
    assert pushed == [{0, 1, *(mapping.FIRST_VOTE + vote for vote in range(4))}] * 3
    assert all((second == 3.0).all() for _, second in given)
    assert all(np.count_nonzero(first == 1.0) >= first.size - 1 for first, _ in given), "gloo will sum it"


@pytest.mark.parametrize("lengths", [(500, 501, 500), (1000, 999, 1001)])
def test_other_lengths_are_told(lengths: tuple[int, ...]) -> None:
    with rack(3) as network:
        outcomes = network.run([[np.ones(length, np.float32)] for length in lengths])
    assert [events[0][0] for events in outcomes].count(DISAGREE) >= 2


def test_a_notice_halves_the_window() -> None:
    with rack(1) as network:
        network.run([[np.ones(400 * spec.LANES, np.float32)]])
        before = network.counters(network.ends[0])
        network.notify(0)
        network.run([[np.ones(2 * spec.LANES, np.float32)]])
        after = network.counters(network.ends[0])
    assert (after.notices, after.reductions) == (1, 1)
    assert before.window == LIMIT, "all that half a segment holds"
    assert after.window <= LIMIT / 2 + 2
