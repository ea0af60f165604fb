"""Sums that do not wait for all, of any magnitudes, with workers that are late or stop at any phase: each is
the mean of just those whom it names, within the stated bound, or an error. Slots and block records, lost
packets repaired by windows and by questions.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.systems.trio.terms import BlockTerms
from testbed.topology.addresses import CONTROL_PORT
from testbed.wire import mapping, spec
from testbed.wire.codec import Header
from testbed.wire.frame import Frame
from testbed.wire.votes import SPARE_BITS
from tests.unit.endpoint_wire import (
    DATA_SLOTS,
    DONE,
    GENERATION,
    JOB,
    NOT_FINITE,
    OVERTAKEN,
    QUIET,
    TOR_IP,
    End,
    Rack,
    rack,
)
from workloads import quantiser

WORKERS, WIDTH = 3, 64
TICK_S, LATE_S, END_S = 0.01, 0.05, 20.0
LARGEST, LEAST = 60, -60  # exponents of two
KEPT, VOTES = DATA_SLOTS, mapping.VOTE_SLOTS


class Ticked(Rack):
    """A rack whose sums are sent without those who are missing for TICK_S."""

    expected = Rack.expected | {"late", "stale", "mismatch", "capped"}
    ticks = True

    def __init__(self, *arguments: Any) -> None:
        self._since: dict[tuple[int, int], tuple[float, int]] = {}  # of a slot and a fragment: when, how many
        super().__init__(*arguments)

    def came(self, header: Header, verdict: str) -> None:
        key = (header.slot, header.fragment)
        if verdict == "aggregated":
            self._since[key] = (time.monotonic(), self._since.get(key, (0.0, 0))[1] + 1)
        elif verdict in ("completed", "resent", "late"):
            self._since.pop(key, None)

    def passes(self) -> None:
        now = time.monotonic()
        if not self.ticks:
            return
        for (slot, fragment), (since, sources) in list(self._since.items()):
            if now - since < TICK_S:
                continue
            header = Header(
                spec.Op.TICK, JOB, 0, sources if self.entry_fields else 0, GENERATION, slot, fragment, 0,
                lanes=self.width,
            )  # fmt: skip
            lanes = np.zeros(self.width, np.uint32)
            verdict, emissions = self._model.receive(
                Frame(header, lanes, TOR_IP, TOR_IP).pack(), CONTROL_PORT
            )
            if verdict in ("ticked", "tick_late"):
                del self._since[slot, fragment]
            self.emit(emissions)

    @property
    def waiting(self) -> int:
        """Return how many sums are begun and not complete."""
        return len(self._since)


class Blocks(Ticked):
    """The same by block records, as Trio-ML's jobs are summed."""

    base = 0
    entry_fields: ClassVar[Mapping[str, Any]] = {
        "program": "blocks",
        "terms": BlockTerms(
            cap=KEPT, window=(KEPT // 4, VOTES // 4), kept=(KEPT, VOTES), ahead=(KEPT, VOTES)
        ),
    }
    settings_fields: ClassVar[Mapping[str, Any]] = {
        "window": KEPT // 4,
        "vote_window": VOTES // 4,
        "spare_bits": SPARE_BITS,
    }


def phases() -> list[np.ndarray]:
    """Return vectors of three blocks: the scale of the first worker has room in the first for nobody else, in
    the second for the second worker, in the third for all.
    """
    chance = np.random.default_rng(7)
    given_ = chance.uniform(0.5, 1.0, (WORKERS, 3 * spec.LANES)).astype(np.float32)
    room = [(1, 1e6, 1e6), (1, 1, 1e6), (1, 1, 1)]
    for block, factors in enumerate(room):
        given_[:, block * spec.LANES : (block + 1) * spec.LANES] *= np.array(factors, np.float32)[:, None]
    return list(given_)


def require_phases(given_: list[np.ndarray], summed: np.ndarray, named: np.ndarray) -> None:
    """Check a sum that the first worker is not in: its first block is nobody's, and the others are of those
    for whom the scale has room, and who came in time.
    """
    assert named[0] == 0
    assert named[1] <= 1
    assert 1 <= named[2] <= 2
    for block, count in enumerate(named.tolist()):
        at = slice(block * spec.LANES, (block + 1) * spec.LANES)
        rooms = given_[1 : 1 + block]
        means = [np.mean(those, 0)[at] for those in itertools.combinations(rooms, count)] if count else [0]
        assert any(np.allclose(summed[at], WORKERS * mean, rtol=1e-5, atol=0) for mean in means)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + END_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def summed_by(network: Rack, ends: list[End], given_: list[np.ndarray]) -> list[np.ndarray]:
    """Have workers sum their vectors at once, which comes to its end; the sums."""
    summed = [given_[end.number].copy() for end in ends]
    events: dict[int, list[int]] = {}

    def run(end: End, vector: np.ndarray) -> None:
        events[end.number] = work(network, end, [vector], [0.0])

    threads = [threading.Thread(target=run, args=pair) for pair in zip(ends, summed, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert events == {end.number: [DONE] for end in ends}
    return summed


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("kind", [Ticked, Blocks])
def test_a_worker_that_stops_between_its_vote_and_its_fragments_stops_no_sum(
    kind: type[Ticked], leaves: bool
) -> None:
    """The others voted too late, and leave out values that its scale has no room for."""
    if leaves and kind is Ticked:
        return  # slots wait for all, or are ticked
    given_ = phases()
    with rack(WORKERS, absent=[0], kind=kind) as network:
        assert isinstance(network, Ticked)
        network.vote_for(0, given_[0])
        wait_until(lambda: network.waiting == 0)
        if leaves:
            network.leave(0)
        sums = summed_by(network, network.ends, given_)
        named = [end.contributors[0] for end in network.ends]
        left_out = [network.counters(end).left_out for end in network.ends]
    assert network.wrong == []
    assert left_out == [spec.LANES, 2 * spec.LANES]
    assert sums[0].tobytes() == sums[1].tobytes()
    for each in named:
        require_phases(given_, sums[0], each)


@pytest.mark.parametrize("kind", [Ticked, Blocks])
def test_a_worker_that_comes_back_between_its_vote_and_its_fragments_has_what_the_others_have(
    kind: type[Ticked],
) -> None:
    given_ = phases()
    with rack(WORKERS, kind=kind) as network:
        assert isinstance(network, Ticked)
        first, *late = network.ends
        slept = given_[0].copy()
        network.ticks = False
        network.submit(first, slept)
        assert network.step(first)[0] == QUIET, "it stops behind its vote"
        network.ticks = True
        wait_until(lambda: bool(first.pushes) and not first.voted)
        sums = summed_by(network, late, given_)
        wait_until(lambda: network.step(first)[0] == DONE)
        named = [end.contributors[0] for end in network.ends]
    assert network.wrong == []
    assert {each.tobytes() for each in (slept, *sums)} == {slept.tobytes()}
    for each in named:
        require_phases(given_, slept, each)


@st.composite
def vectors(draw: st.DrawFn) -> np.ndarray:
    """Vectors of a worker's, whose magnitudes are log-uniform, block by block, or zeros, or infinite."""
    size = draw(st.integers(70, 6 * WIDTH))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    given_ = np.zeros((WORKERS, size), np.float32)
    for worker, start in itertools.product(range(WORKERS), range(0, size, WIDTH)):
        part = given_[worker, start : start + WIDTH]
        if random.random() < 0.8:
            magnitude = 2.0 ** random.uniform(LEAST, LARGEST)
            part[:] = random.uniform(-magnitude, magnitude, part.size)
    if draw(st.integers(0, 9)) == 0:
        given_[draw(st.integers(0, WORKERS - 1)), draw(st.integers(0, size - 1))] = np.inf
    return given_


def work(network: Rack, end: End, given_: list[np.ndarray], late: list[float]) -> list[int]:
    """Sum vectors in place, each after its delay; return the events. Ends with the first error."""
    events: list[int] = []
    deadline = time.monotonic() + END_S
    for vector, delay_s in zip(given_, late, strict=True):
        time.sleep(delay_s)
        network.submit(end, vector)
        event = QUIET
        while event == QUIET and time.monotonic() < deadline:
            event, _ = network.step(end)
        events.append(event)
        if event != DONE:
            break
    return events


def nearest(given_: np.ndarray, summed: np.ndarray, count: int) -> float:
    """Return how far a sum is, at its worst element, from the mean of some `count` workers times all; of
    nobody's values, from zeros.
    """
    if not count:
        return float(np.abs(summed).max())
    exact = given_.astype(np.float64)
    return min(
        float(np.abs(exact[list(those)].mean(0) * WORKERS - summed).max())
        for those in itertools.combinations(range(WORKERS), count)
    )


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", [Ticked, Blocks])
@pytest.mark.parametrize("asks", [False, True], ids=["window", "integrity"])
@settings(max_examples=20)
@given(
    arrays=st.lists(vectors(), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.02]),
)
def test_a_sum_is_of_those_whose_values_are_in_it(
    kind: type[Ticked], asks: bool, arrays: list[np.ndarray], seed: int, loss: float
) -> None:
    if kind is Blocks and asks:
        return  # places that sum by block records are not asked
    random = np.random.default_rng(seed)
    late = random.choice([0.0, 0.0, TICK_S, LATE_S], (WORKERS, len(arrays))).tolist()
    summed = [[vectors_[worker].copy() for vectors_ in arrays] for worker in range(WORKERS)]
    events: list[list[int]] = [[] for _ in range(WORKERS)]
    with rack(WORKERS, loss, seed % 1000 + 1, lanes=WIDTH, asks=asks, kind=kind) as network:

        def run(at: int) -> None:
            events[at] = work(network, network.ends[at], summed[at], late[at])

        threads = [threading.Thread(target=run, args=(at,)) for at in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        named = [[each.tolist() for each in end.contributors] for end in network.ends]
    assert network.wrong == []
    spare, elements = SPARE_BITS if kind is Blocks else 0, network.ballot.block_elements
    for worker, said in enumerate(events):
        assert set(said) <= {DONE, NOT_FINITE, OVERTAKEN, QUIET}, said
        assert QUIET not in said or {NOT_FINITE, OVERTAKEN} & set(itertools.chain(*events)), (
            "it waits for nobody"
        )
        for number, event in enumerate(said):
            if event != DONE:
                continue
            whole = arrays[number]
            for block, start in enumerate(range(0, whole.shape[1], WIDTH)):
                part = slice(start, start + WIDTH)
                count, got = named[worker][number][block], summed[worker][number][part].astype(np.float64)
                finite = np.where(np.isfinite(whole[:, part]), whole[:, part], 0)
                scaled = whole[:, start // elements * elements :][:, :elements]  # what has one scale
                largest = float(np.abs(np.where(np.isfinite(scaled), scaled, 0)).max())
                stated = quantiser.largest_error(largest, WORKERS, spare)
                stated += float(np.abs(got).max()) * 2.0**-24 + 2.0**-149
                off = nearest(finite, got, count)
                assert 0 <= count <= WORKERS
                assert off <= stated, f"worker {worker}, vector {number}, block {block} of {count}: {off}"
