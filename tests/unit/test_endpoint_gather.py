"""The compiled endpoint with vectors that are gathered or scattered: each worker has a part of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from testbed.wire import mapping, spec
from testbed.wire.frame import Frame
from tests.unit.endpoint_wire import DISAGREE, DONE, IMPOSSIBLE, LACKING, in_tree, rack
from tests.unit.test_endpoint_trees import expected, vectors

WORKERS = 3


def parts(length_bytes: int, bounds: Sequence[int]) -> tuple[list[list[np.ndarray]], list[slice], np.ndarray]:
    """The vectors of all workers, with anything outside their parts; the parts; and what is gathered."""
    chance = np.random.default_rng(length_bytes)
    whole = chance.integers(0, 2**32, length_bytes // 4, dtype=np.uint32)
    own = [slice(first, last) for first, last in zip((0, *bounds), (*bounds, length_bytes), strict=True)]
    given = []
    for part in own:
        vector = chance.integers(0, 2**32, length_bytes // 4, dtype=np.uint32)
        vector.view(np.uint8)[part] = whole.view(np.uint8)[part]
        given.append([vector])
    return given, own, whole


@pytest.mark.parametrize("takes_empties", [True, False])
@pytest.mark.parametrize(
    ("loss", "shares", "lanes"),
    [(0.0, (1,), spec.LANES), (0.1, (1,), 64), (0.0, (0.7, 0.05, 0.25), 101), (0.1, (2, 1), spec.LANES)],
)
@pytest.mark.parametrize("bounds", [(5_003, 20_017), (0, 0), (40_000, 40_000), (10, 10)])
def test_gathered_to_the_bit(
    bounds: tuple[int, ...], loss: float, shares: tuple[float, ...], lanes: int, takes_empties: bool
) -> None:
    given, own, whole = parts(40_000, bounds)
    with rack(WORKERS, loss, shares=shares, lanes=lanes, takes_empties=takes_empties) as network:
        events = network.run(given, own=own)
        data = [
            {
                key
                for key, pushed in end.lanes.items()
                if key % in_tree(1, 0) < mapping.FIRST_VOTE and pushed.size
            }
            for end in network.ends
        ]
    assert network.wrong[:5] == []
    assert [[event for event, _ in each] for each in events] == [[DONE]] * WORKERS
    for (vector,) in given:
        assert np.array_equal(vector, whole)
    for part, sent in zip(own, data, strict=True):
        touched = -(-part.stop // (4 * lanes)) - part.start // (4 * lanes) if part.stop > part.start else 0
        assert len(sent) == (touched if takes_empties else -(-whole.size // lanes))


def test_gathered_beside_sums() -> None:
    """Bursts of both sizes, and votes between them."""
    summed = vectors(WORKERS)
    due = [expected([each[at].copy() for each in summed], spec.LANES) for at in range(len(summed[0]))]
    gathered, own, whole = parts(40_000, (4_000, 8_000))
    with rack(WORKERS, 0.02) as network:
        for end, floats, (lanes,), part in zip(network.ends, summed, gathered, own, strict=True):
            network.submit(end, floats[0])
            network.submit(end, lanes, own=part)
            for vector in floats[1:]:
                network.submit(end, vector)
        events = network.run([[]] * WORKERS, settled=len(summed[0]) + 1)
    assert network.wrong[:5] == []
    assert [[event for event, _ in each] for each in events] == [[DONE] * (len(due) + 1)] * WORKERS
    for (lanes,), floats in zip(gathered, summed, strict=True):
        assert np.array_equal(lanes, whole)
        assert all(np.array_equal(mine, right) for mine, right in zip(floats, due, strict=True))


def without_a_worker(packet: Frame) -> Frame:
    if packet.header.fragment >= mapping.FIRST_VOTE:
        return packet
    flags = packet.header.flags | spec.Flag.DEGRADED
    return replace(packet, header=replace(packet.header, contributors=WORKERS - 1, flags=flags))


def test_a_part_that_is_missing_is_told_of_its_vector_alone() -> None:
    """A result that lacks a worker has zeros where its part would be: nobody takes them for it. All workers
    see it alike, and what they have of their own is as it was.
    """
    given, own, whole = parts(8_000, (4_000, 4_000))
    summed = [np.full(3 * spec.LANES, worker, np.float32) for worker in range(WORKERS)]

    def without_some(packet: Frame) -> Frame:
        is_of_the_first = packet.header.fragment < 8_000 // (4 * spec.LANES)
        return without_a_worker(packet) if is_of_the_first else packet

    with rack(WORKERS, change=without_some) as network:
        for end, (lanes,), part, floats in zip(network.ends, given, own, summed, strict=True):
            network.submit(end, lanes, own=part)
            network.submit(end, floats)
        events = network.run([[]] * WORKERS, settled=2)
    assert [[event for event, _ in each] for each in events] == [[LACKING, DONE]] * WORKERS
    for (lanes,), part in zip(given, own, strict=True):
        assert np.array_equal(lanes.view(np.uint8)[part], whole.view(np.uint8)[part])
    assert all((floats == sum(range(WORKERS))).all() for floats in summed)


def test_a_result_of_more_workers_than_there_are_ends_all() -> None:
    given, own, _ = parts(8_000, (4_000, 4_000))

    def too_many(packet: Frame) -> Frame:
        if packet.header.fragment >= mapping.FIRST_VOTE:
            return packet
        return replace(packet, header=replace(packet.header, contributors=WORKERS + 1))

    with rack(WORKERS, change=too_many) as network:
        events = network.run(given, own=own)
    assert {each[0][0] for each in events} == {IMPOSSIBLE}


def test_gathering_is_no_sum() -> None:
    given, own, _ = parts(8_000, (4_000, 4_000))
    with rack(WORKERS) as network:
        network.submit(network.ends[0], given[0][0].view(np.float32))
        for end, (lanes,), part in zip(network.ends[1:], given[1:], own[1:], strict=True):
            network.submit(end, lanes, own=part)
        events = network.run([[]] * WORKERS, settled=1)
    assert {each[0][0] for each in events} == {DISAGREE}


def test_only_the_part_that_is_kept_is_decoded() -> None:
    given = vectors(WORKERS, (10 * spec.LANES,))
    due = expected([each[0].copy() for each in given], spec.LANES)
    kept = slice(4 * 3 * spec.LANES + 8, 4 * 5 * spec.LANES)
    with rack(WORKERS) as network:
        events = network.run(given, kept=kept)
    assert [each[0][0] for each in events] == [DONE] * WORKERS
    for (summed,) in given:
        part = slice(3 * spec.LANES, 5 * spec.LANES)
        assert np.array_equal(summed[part], due[part])
        assert not np.array_equal(summed[: part.start], due[: part.start])
        assert not np.array_equal(summed[part.stop :], due[part.stop :])
