"""The compiled endpoint asks its places what is lost, as docs/protocol.md has it ("Questions"), where a job
has the integrity check for its recovery.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from testbed.wire import mapping, spec
from testbed.wire.codec import Header
from testbed.wire.recovery import Found
from tests.unit.endpoint_wire import DONE, GENERATION, JOB, LIMIT, QUIET, Rack, rack
from tests.unit.test_endpoint_protocol import LENGTHS, expected, vectors


@pytest.mark.parametrize(("workers", "loss"), [(1, 0.0), (3, 0.0), (3, 0.05), (2, 0.2)])
def test_sums_are_exact_whatever_is_lost(workers: int, loss: float) -> None:
    given = vectors(workers)
    due = [expected([each[at].copy() for each in given]) for at in range(len(LENGTHS))]
    with rack(workers, loss, asks=True) as network:
        events = network.run(given)
        assert all(network.asked_by(end) for end in network.ends)
    assert network.wrong[:5] == []
    assert [[event for event, _ in each] for each in events] == [[DONE] * len(LENGTHS)] * workers
    for each in given:
        for summed, right in zip(each, due, strict=True):
            assert np.array_equal(summed.view(np.uint32), right.view(np.uint32))


def test_the_end_of_a_vector_is_asked_for() -> None:
    """Nothing is lost, so that nothing is pushed again."""
    given = vectors(2, (40 * spec.LANES,))
    with rack(2, asks=True) as network:
        network.run(given)
        questions = [network.asked_by(end) for end in network.ends]
        times = [end.pushes[number] for end in network.ends for number in range(40)]
    assert network.wrong[:5] == []
    assert times == [1] * 80
    assert all(1 <= max(count for _, count in each) <= LIMIT for each in questions)


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
        questions = network.asked_by(end)
        data = {number: times for number, times in end.pushes.items() if number < mapping.FIRST_VOTE}
    assert network.wrong[:5] == []
    assert data == dict.fromkeys(range(len(data)), 1)
    assert 8 <= len(data) <= LIMIT
    assert questions.count((0, len(data))) >= 3


class Above(Rack):
    """The first sum of a worker's own host is lost on the way up, of fragment 3; it passes no question on."""

    is_lost = False

    def _take(self, payload: bytes) -> None:
        header, (end,) = Header.unpack(payload), self.ends
        if header.op == spec.Op.QUESTION:
            self.answer(payload, lambda fragment: Found.FINAL if fragment in end.had else Found.SUMMED)
        elif header.fragment == 3 and not self.is_lost:
            self.is_lost = True
            end.pushes[3] = 1
        else:
            super()._take(payload)


class Lacking(Rack):
    """A place that has no room for the first worker's fragments."""

    def _take(self, payload: bytes) -> None:
        header = Header.unpack(payload)
        if header.op == spec.Op.QUESTION:
            self.answer(payload, lambda _: Found.LACKS)
        elif header.fragment >= mapping.FIRST_VOTE:
            super()._take(payload)


class Gap(Rack):
    """It loses the first push of fragment 3."""

    def _take(self, payload: bytes) -> None:
        if Header.unpack(payload).fragment == 3 and 3 not in self.ends[0].pushes:
            self.ends[0].pushes[3] = 1
        else:
            super()._take(payload)


class Late(Rack):
    """A place that takes 60 fragments, and answers questions for what was asked 40 fragments ago."""

    def _take(self, payload: bytes) -> None:
        header = Header.unpack(payload)
        if header.op == spec.Op.QUESTION:
            before = replace(header, fragment=header.fragment - 40).pack()
            self.answer(before + payload[len(before) :], lambda _: Found.LACKS)
        elif header.fragment < 60 or header.fragment >= mapping.FIRST_VOTE:
            super()._take(payload)


class Forged(Rack):
    """Questions are answered by whoever can send to a worker's socket."""

    forge: Callable[[Header], Header]
    more = 0

    def _take(self, payload: bytes) -> None:
        if Header.unpack(payload).op == spec.Op.QUESTION:
            self.answer(payload, lambda _: Found.LACKS, self.forge, self.more)
        else:
            super()._take(payload)


def test_a_sum_of_a_workers_own_host_is_pushed_again_though_nobody_else_can_be_asked() -> None:
    with rack(1, asks=True, kind=Above) as network:
        ((event, _),) = network.run([[np.ones(10 * spec.LANES, np.uint32)]], raw=True)[0]
        (end,) = network.ends
    assert (event, end.pushes[3], network.wrong) == (DONE, 2, [])


def test_repetitions_become_seldom_while_a_place_lacks_what_it_is_sent() -> None:
    lanes = np.ones(40 * spec.LANES, np.uint32)
    repeated = {}
    for asks in (False, True):
        with rack(1, asks=asks, kind=Lacking) as network:
            (end,) = network.ends
            network.submit(end, lanes, raw=True)
            ends_s = time.monotonic() + 1
            while time.monotonic() < ends_s:
                network.step(end)
            repeated[asks] = network.counters(end).retransmitted
    assert 0 < repeated[True] < 2 * repeated[False]


def test_a_gap_is_asked_for_before_a_timer() -> None:
    """It is so in one of many runs: the machine may be late in the others."""

    def timeouts() -> int:
        with rack(1, asks=True, kind=Gap) as network:
            network.run([[np.ones(40 * spec.LANES, np.uint32)]], raw=True)
            (end,) = network.ends
            assert (end.pushes[3], network.wrong) == (2, [])
            return int(network.counters(end).timeouts)

    assert any(timeouts() == 0 for _ in range(200))


def test_an_answer_for_what_is_over_has_nothing_pushed() -> None:
    """Its places in the ring are newer fragments' already."""
    with rack(1, asks=True, kind=Late) as network:
        (end,) = network.ends
        network.submit(end, np.ones(80 * spec.LANES, np.uint32), raw=True)
        while end.done[0] < 60:
            network.step(end)
        for _ in range(3):
            assert network.step(end)[0] == QUIET
        counters = network.counters(end)
    assert counters.asked >= 3
    assert counters.retransmitted == 0


FORGED: dict[str, Callable[[Header], Header]] = {
    "as it is": lambda header: header,
    "another job": lambda header: replace(header, job=JOB + 1),
    "another start": lambda header: replace(header, generation=GENERATION + 1),
    "another number": lambda header: replace(header, slot=(header.slot + 5000) % 2**32),
    "a number to come": lambda header: replace(header, slot=(header.slot + 100) % 2**32),
    "a question": lambda header: replace(header, op=spec.Op.QUESTION),
    "another tree": lambda header: replace(header, tree=1),
}


@pytest.mark.parametrize("more", [0, 4])
@pytest.mark.parametrize("what", FORGED)
def test_answers_that_nobody_gave_are_not_heeded(what: str, more: int) -> None:
    lanes = np.ones(40 * spec.LANES, np.uint32)
    with rack(2, absent=[1], asks=True, kind=Forged) as network:
        assert isinstance(network, Forged)
        network.forge, network.more = FORGED[what], more
        network.vote_for(1, lanes, raw=True)
        (end,) = network.ends
        network.submit(end, lanes, raw=True)
        for _ in range(3):
            network.step(end)
        network.wait_for_pushes(end)
        # not the vote, which is pushed again after 16 ms, wherever processors are busy
        repeated = sum(times - 1 for number, times in end.pushes.items() if number < mapping.FIRST_VOTE)
    assert (repeated > 0) == (what == "as it is" and not more)
