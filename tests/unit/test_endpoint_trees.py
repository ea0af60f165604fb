"""The compiled endpoint with several trees, with few lanes, and with results in which workers are missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from testbed.wire import mapping, spec
from testbed.wire.frame import Frame
from testbed.wire.votes import LENGTH_LANES, Ballot, is_carried
from tests.unit.endpoint_wire import DONE, IMPOSSIBLE, LATE_S, NOT_FINITE, Group, Rack, in_tree, rack
from workloads import quantiser

LENGTHS = (5_003, 1, 40 * spec.LANES, 0, 361, 97, 30_011)
SILENCE_S = 0.001  # as docs/protocol.md says, where a round trip is known


def vectors(workers: int, lengths: tuple[int, ...] = LENGTHS) -> list[list[np.ndarray]]:
    chance = np.random.default_rng(workers)
    return [[chance.standard_normal(length).astype(np.float32) for length in lengths] for _ in range(workers)]


def expected(given: list[np.ndarray], lanes: int) -> np.ndarray:
    """The sum as the quantiser states it, to the bit."""
    return quantiser.summed(given, lanes)[0]


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize(
    ("shares", "lanes"),
    [
        ((1, 1), spec.LANES),
        ((1 / 3, 2 / 3), spec.LANES),
        ((0.7, 0.05, 0.25), 101),
        ((1,), 64),
        ((1,), 101),
        ((2, 1), 64),
    ],
)
def test_sums_are_exact_and_every_push_is_as_it_must_be(
    shares: tuple[float, ...], lanes: int, loss: float
) -> None:
    given = vectors(3)
    due = [expected([each[at].copy() for each in given], lanes) for at in range(len(LENGTHS))]
    with rack(3, loss, shares=shares, lanes=lanes) as network:
        events = network.run(given)
        pushed = [
            {key for key in end.pushes if key % in_tree(1, 0) < mapping.FIRST_VOTE} for end in network.ends
        ]
        progress = [int(end.progress[0]) for end in network.ends]
        votes = [
            {key for key in end.pushes if key >= mapping.FIRST_VOTE} - by
            for end, by in zip(network.ends, pushed, strict=True)
        ]
    assert network.wrong[:5] == []
    assert [[event for event, _ in each] for each in events] == [[DONE] * len(LENGTHS)] * 3
    for each in given:
        for summed, right in zip(each, due, strict=True):
            assert np.array_equal(summed.view(np.uint32), right.view(np.uint32))
    fragments = sum(-(-n // lanes) for n in LENGTHS if not is_carried(n, 3, lanes))
    pattern = np.resize(mapping.pattern(shares), fragments)
    by_tree = np.bincount(pattern, minlength=len(shares))
    assert pushed == [{in_tree(tree, at) for tree, count in enumerate(by_tree) for at in range(count)}] * 3
    assert progress == [2 * fragments] * 3, "and nothing under way"
    pages = sum(1 if is_carried(n, 3, lanes) else Ballot.of(3, lanes).pages(n) for n in LENGTHS)
    assert votes == [{mapping.FIRST_VOTE + page for page in range(pages)}] * 3


@pytest.mark.parametrize("shares", [(1,), (1, 2)])
def test_workers_of_a_group_send_by_their_ranks_in_its_own_trees(shares: tuple[float, ...]) -> None:
    """Small vectors are told apart by the number in the group, whatever the rank."""
    given = vectors(3)
    due = [expected([each[at].copy() for each in given], spec.LANES) for at in range(len(LENGTHS))]
    with rack(3, 0.05, shares=shares, group=Group((2, 5, 63), 250)) as network:
        events = network.run(given)
    assert network.wrong[:5] == []
    assert [[event for event, _ in each] for each in events] == [[DONE] * len(LENGTHS)] * 3
    for each in given:
        for summed, right in zip(each, due, strict=True):
            assert np.array_equal(summed.view(np.uint32), right.view(np.uint32))


def test_a_tree_without_results_holds_up_no_other() -> None:
    """Nobody else comes; the vote is given. Each tree fills its own window, and its own timer expires."""
    with rack(2, absent=[1], shares=(1, 1)) as network:
        network.vote_for(1, np.ones(spec.LANES * 200, np.float32))
        network.run([[np.ones(spec.LANES * 200, np.float32)]], quiet=4)
        pushes = network.ends[0].pushes
    assert network.wrong == []
    assert in_tree(0, 7) in pushes
    assert in_tree(1, 7) in pushes
    assert max(times for key, times in pushes.items() if key >= in_tree(1, 0)) > 1


def test_a_tree_that_lost_a_result_is_repaired_while_another_has_one_too_early() -> None:
    """Others, whose sums were ticked, are ahead by the second tree: its next fragment's result came before
    this worker has anything to push for it. That is no reason not to look at the first tree's timer.
    """
    with rack(2, absent=[1], shares=(1, 1)) as network:
        network.vote_for(1, np.ones(2 * spec.LANES, np.float32))
        network.result_for(0, tree=1, fragment=0)
        network.result_for(0, tree=1, fragment=1)
        rescue = threading.Timer(LATE_S / 3, network.result_for, (0, 0, 0))
        rescue.start()
        events = network.run([[np.ones(2 * spec.LANES, np.float32)]], quiet=3)
        rescue.cancel()
        pushes, timeouts = network.ends[0].pushes, network.counters(network.ends[0]).timeouts
    assert network.wrong == []
    assert events == [[]], "it was told of the silences instead of waiting for ever"
    assert timeouts >= 3
    assert pushes[in_tree(0, 0)] > 1
    assert pushes[in_tree(1, 0)] == 1


def stepped(network: Rack, key: int, times: int) -> float:
    """Have the first worker work until it has pushed something so often; the seconds that it took."""
    (end, *_), began = network.ends, time.monotonic()
    while True:
        network.step(end)
        took_s = time.monotonic() - began
        network.wait_for_pushes(end)
        if end.pushes.get(key, 0) >= times:
            return took_s
        assert took_s < LATE_S, f"{key}: {end.pushes}"


def test_the_silence_of_a_tree_that_was_idle_begins_with_its_next_vote() -> None:
    """The first tree has all its results, the second one none. A vote that goes by the first tree after a
    while is not a late one.
    """
    with rack(2, absent=[1], shares=(1, 1)) as network:
        network.vote_for(1, np.ones(2 * spec.LANES, np.float32))
        network.result_for(0, tree=0, fragment=0)
        network.submit(network.ends[0], np.ones(2 * spec.LANES, np.float32))
        idle_s = stepped(network, in_tree(1, 0), 4)
        network.submit(network.ends[0], np.ones(2 * spec.LANES, np.float32))
        waited_s = stepped(network, mapping.FIRST_VOTE + 1, 2)
    assert network.wrong == []
    assert idle_s > SILENCE_S
    assert waited_s >= SILENCE_S


def test_the_silence_of_a_tree_that_was_idle_begins_with_its_next_fragment() -> None:
    """The second tree has all its results, the first one lacks one."""
    with rack(2, absent=[1], shares=(1, 1)) as network:
        for number, fragments in enumerate((3, 1)):
            network.vote_for(1, np.ones(fragments * spec.LANES, np.float32), number)
        network.result_for(0, tree=0, fragment=0)
        network.result_for(0, tree=1, fragment=0)
        network.submit(network.ends[0], np.ones(3 * spec.LANES, np.float32))
        idle_s = stepped(network, in_tree(0, 1), 4)
        network.submit(network.ends[0], np.ones(spec.LANES, np.float32))
        waited_s = stepped(network, in_tree(1, 1), 2)
    assert network.wrong == []
    assert idle_s > SILENCE_S
    assert waited_s >= SILENCE_S


def without_one(fragments: set[int], lacking: dict[int, np.ndarray] | None = None) -> object:
    """A change of results: worker 2's lanes, `lacking` by fragment, come off those of these fragments."""

    def change(packet: Frame) -> Frame:
        header = packet.header
        if header.fragment not in fragments:
            return packet
        lanes = packet.lanes - lacking[header.fragment] if lacking else packet.lanes
        flags = header.flags | spec.Flag.DEGRADED
        return replace(
            packet, header=replace(header, contributors=header.contributors - 1, flags=flags), lanes=lanes
        )

    return change


def test_a_degraded_fragment_is_the_mean_of_those_who_contributed_times_the_workers() -> None:
    length, scale = 3 * spec.LANES, quantiser.scale_of(127, 3)
    given = [[np.full(length, value, np.float32)] for value in (1.0, 1.25, 0.75)]
    lanes = np.empty(spec.LANES, ">u4")
    quantiser.encode(given[2][0][: spec.LANES], scale, 3, lanes)
    with rack(3, change=without_one({1}, {1: lanes.astype(np.uint32)})) as network:
        events = network.run(given)
        contributors = [end.contributors[0].tolist() for end in network.ends]
        degraded = [network.counters(end).degraded for end in network.ends]
    assert network.wrong == []
    assert events == [[(DONE, 0)]] * 3
    assert contributors == [[3, 2, 3]] * 3
    assert degraded == [1, 1, 1]
    for (summed,) in given:
        assert (summed[: spec.LANES] == 3.0).all()
        assert (summed[spec.LANES : 2 * spec.LANES] == 2.25 / 2 * 3).all()
        assert (summed[2 * spec.LANES :] == 3.0).all()


def test_raw_lanes_of_a_degraded_fragment_are_as_they_came() -> None:
    given = [[np.full(2 * spec.LANES, value, np.uint32).view(np.float32)] for value in (1, 10, 100)]
    off = {0: np.full(spec.LANES, 100, np.uint32)}
    with rack(3, change=without_one({0}, off)) as network:
        network.run(given, raw=True)
        contributors = [end.contributors[0].tolist() for end in network.ends]
    assert contributors == [[2, 3]] * 3
    for (summed,) in given:
        assert summed.view(np.uint32).tolist() == [11] * spec.LANES + [111] * spec.LANES


def lacking_vote(vector: np.ndarray) -> dict[int, np.ndarray]:
    vote = quantiser.pages(vector, Ballot.of(3, spec.LANES))[0]
    return {mapping.FIRST_VOTE: vote}


def test_a_worker_whose_vote_is_missing_leaves_out_what_the_scale_has_no_room_for() -> None:
    given = [[np.full(1000, value, np.float32)] for value in (1.0, 1.0, 1e6)]
    change = without_one({mapping.FIRST_VOTE}, lacking_vote(given[2][0]))
    with rack(3, change=change) as network:
        events = network.run(given)
        left_out = [network.counters(end).left_out for end in network.ends]
        contributors = [end.contributors[0].tolist() for end in network.ends]
    assert network.wrong == []
    assert [[event for event, _ in each] for each in events] == [[DONE]] * 3
    assert left_out == [0, 0, 1000]
    assert contributors == [[2, 2, 2]] * 3
    assert all((summed == 3.0).all() for (summed,) in given), "the mean of two ones, times three"


def test_a_worker_whose_later_vote_is_missing_leaves_out_what_that_vote_was_on() -> None:
    """It was in the first one."""
    ballot, blocks = Ballot.of(3, spec.LANES), 60
    given = [[np.full(blocks * spec.LANES, value, np.float32)] for value in (1.0, 1.0, 1e6)]
    second = mapping.FIRST_VOTE + 1
    change = without_one({second}, {second: quantiser.pages(given[2][0], ballot)[1]})
    with rack(3, change=change) as network:
        events = network.run(given)
        left_out = [network.counters(end).left_out for end in network.ends]
    assert network.wrong == []
    assert [[event for event, _ in each] for each in events] == [[DONE]] * 3
    assert left_out == [0, 0, (blocks - ballot.page_blocks) * spec.LANES]
    for (summed,) in given:
        assert np.allclose(summed[: ballot.page_blocks * spec.LANES], 1e6 + 2, rtol=1e-6)
        assert (summed[ballot.page_blocks * spec.LANES :] == 3.0).all()


def test_a_worker_whose_vote_is_missing_tells_of_its_own_nan() -> None:
    given = [[np.full(1000, value, np.float32)] for value in (1.0, 1.0, np.nan)]
    change = without_one({mapping.FIRST_VOTE}, lacking_vote(given[2][0]))
    with rack(3, change=change) as network:
        events = network.run(given, quiet=3)
    assert events[2] == [(NOT_FINITE, 1)]
    assert events[:2] == [[], []], "the others wait for it, or for a tick"


def carried_by_the_last_of_three(vector: np.ndarray) -> dict[int, np.ndarray]:
    vote = np.zeros(spec.LANES, np.uint32)
    vote[:2] = vector.size, quantiser.length_check(vector.size)
    first = LENGTH_LANES + 2 * vector.size
    vote[first : first + vector.size] = vector.view(np.uint32)
    return {mapping.FIRST_VOTE: vote}


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_worker_whose_small_vector_is_missing_tells_of_its_own_nan(bad: float) -> None:
    """The others have what they carried to each other."""
    given = [[np.array(values, np.float32)] for values in ((1.0, 2.0), (3.0, 4.0), (5.0, bad))]
    change = without_one({mapping.FIRST_VOTE}, carried_by_the_last_of_three(given[2][0]))
    with rack(3, change=change) as network:
        assert network.run(given) == [[(DONE, 0)], [(DONE, 0)], [(NOT_FINITE, 1)]]
    assert [summed.tolist() for (summed,) in given[:2]] == [[6.0, 9.0]] * 2


def test_values_that_a_degraded_vote_carries_are_the_mean_of_those_who_voted() -> None:
    given = [[np.array([value, -value], np.float32)] for value in (1.0, 2.0, 3.0)]
    change = without_one({mapping.FIRST_VOTE}, carried_by_the_last_of_three(given[2][0]))
    with rack(3, change=change) as network:
        network.run(given)
        contributors = [end.contributors[0].tolist() for end in network.ends]
    assert contributors == [[2]] * 3
    assert [summed.tolist() for (summed,) in given] == [[4.5, -4.5]] * 3


@pytest.mark.parametrize("contributors", [0, 4, 65535])
@pytest.mark.parametrize("fragment", [1, mapping.FIRST_VOTE])
def test_contributors_that_cannot_be_are_told(contributors: int, fragment: int) -> None:
    def change(packet: Frame) -> Frame:
        if packet.header.fragment != fragment:
            return packet
        return replace(packet, header=replace(packet.header, contributors=contributors))

    given = [[np.ones(1000, np.float32)] for _ in range(3)]
    with rack(3, change=change) as network:
        assert network.run(given) == [[(IMPOSSIBLE, contributors)]] * 3


def nobodys(fragment: int) -> Callable[[Frame], Frame]:
    """Return what makes of a result of this number one with nobody's values, whatever its lanes are."""

    def change(packet: Frame) -> Frame:
        if packet.header.fragment != fragment:
            return packet
        flags = packet.header.flags | spec.Flag.DEGRADED
        return replace(packet, header=replace(packet.header, contributors=0, flags=flags))

    return change


@pytest.mark.parametrize("kept", [None, slice(400, 3200)], ids=["whole", "its part"])
def test_a_fragment_with_nobodys_values_is_zeros(kept: slice | None) -> None:
    given = [[np.full(1000, worker + 1, np.float32)] for worker in range(3)]
    with rack(3, change=nobodys(1)) as network:
        assert network.run(given, kept=kept) == [[(DONE, 0)]] * 3
        contributors = [end.contributors[0].tolist() for end in network.ends]
        degraded = [network.counters(end).degraded for end in network.ends]
    assert contributors == [[3, 0, 3]] * 3
    assert degraded == [1] * 3
    for ((summed,),) in zip(given, strict=True):
        assert set(summed[spec.LANES : 2 * spec.LANES].tolist()) == {0.0}
        assert set(summed[2 * spec.LANES : 800].tolist()) == {6.0}


def test_a_vote_that_nobody_cast_is_impossible() -> None:
    given = [[np.ones(1000, np.float32)] for _ in range(3)]
    with rack(3, change=nobodys(mapping.FIRST_VOTE)) as network:
        assert network.run(given) == [[(IMPOSSIBLE, 0)]] * 3


def test_raw_lanes_that_nobody_pushed_are_impossible() -> None:
    """Nobody leaves those out: there is no scale that has no room for them."""
    given = [[np.ones(1000, np.uint32)] for _ in range(3)]
    with rack(3, change=nobodys(1)) as network:
        assert network.run(given, raw=True) == [[(IMPOSSIBLE, 0)]] * 3
