"""The model of two recoveries: every sum exact whatever the links do, and no storm while somebody is late."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.reference_model.aggregator import Aggregator
from testbed.reference_model.output_ports import Reaction
from testbed.reference_model.slots import Slot
from tests.bench import recovery
from tests.bench.recovery_model import GENERATION, LANES, RECOVERIES, Counts, Setup, State, Tree, state_of

SMALL = Setup(heads=2, members=2, size=16, fragments=61)
WEATHERS = {
    "calm": SMALL,
    "one head, one member": Setup(heads=1, members=1, size=16, fragments=61, loss=0.2),
    "losses": Setup(heads=2, members=3, size=16, fragments=61, loss=0.1),
    "a third lost": Setup(heads=2, members=2, size=16, fragments=17, loss=0.33),
    "repeated": Setup(heads=2, members=2, size=16, fragments=61, loss=0.05, repeat=0.3),
    "overtaken": Setup(heads=3, members=2, size=16, fragments=61, loss=0.05, repeat=0.1, jitter=40.0),
    "short queues": Setup(heads=2, members=4, size=64, fragments=127, loss=0.02, queue=8),
    "fewest slots": Setup(heads=2, members=2, size=4, fragments=13, loss=0.1),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("name", RECOVERIES)
def test_every_sum_is_exact(name: str, weather: str, seed: int) -> None:
    setup = WEATHERS[weather]
    tree = Tree(Setup(**{**{key: getattr(setup, key) for key in setup.__slots__}, "seed": seed}), name)
    tree.run()
    assert all(worker.done == setup.fragments for worker in tree.workers)


class CountsTwice(Aggregator):
    """Breaks the protocol: a repeated contribution is added again."""

    def receive(self, data: bytes, port: int) -> Reaction:
        for slot in self._slots:
            if not slot.complete:
                slot.members &= ~1
        return super().receive(data, port)


@pytest.mark.parametrize("name", RECOVERIES)
def test_a_place_that_adds_twice_is_found(name: str) -> None:
    def make(ip: str) -> Aggregator:
        return CountsTwice(ip, 16, LANES)

    with pytest.raises(AssertionError):
        Tree(Setup(heads=2, members=3, size=16, fragments=61, loss=0.1, repeat=0.2), name, make).run()


def test_without_losses_nothing_is_sent_again() -> None:
    for name in RECOVERIES:
        assert Tree(SMALL, name).run().again == 0, name


def test_nobody_is_asked_more_than_a_few_times_while_a_worker_is_late() -> None:
    """Questions of the three others: two ranges each, at pauses that double up to 64 round trips."""
    on_time = Tree(SMALL, "integrity").run()
    round_trips = 4000
    setup = Setup(heads=2, members=2, size=16, fragments=61, late=round_trips * SMALL.round_trip)
    late = Tree(setup, "integrity").run()
    assert late.questions - on_time.questions <= 3 * 2 * (10 + round_trips / 64)
    assert late.again == 0


def held(**fields: object) -> Slot:
    slot = Slot(GENERATION, 9, lanes=np.zeros(LANES, np.uint32))
    for name, value in fields.items():
        setattr(slot, name, value)
    return slot


@pytest.mark.parametrize(
    ("slot", "state"),
    [
        (Slot(), State.LACKS),
        (held(fragment=1), State.LACKS),
        (held(generation=GENERATION - 1, members=2), State.LACKS),
        (held(members=5), State.LACKS),
        (held(members=2), State.HELD),
        (held(fragment=17), State.HELD),
        (held(members=3, complete=True), State.SUMMED),
        (held(members=3, complete=True, final=True), State.FINAL),
        (held(members=1, complete=True, final=True), State.FINAL),  # a tick completed it
    ],
)
def test_what_a_slot_says_of_fragment_9_to_contributor_1(slot: Slot, state: State) -> None:
    assert state_of(slot, 9, bit=2) is state


def test_a_line_of_the_table() -> None:
    counts = {"window": Counts(200.0, 80, 8, 0, 0, 400), "integrity": Counts(150.0, 80, 4, 6, 0, 300)}
    runs = {name: [{key: getattr(each, key) for key in each.__slots__}] for name, each in counts.items()}
    case = {"loss": 0.01, "round_trip": 8.0, "workers": 8, "fragments": 10, "runs": runs}
    assert recovery.row(case) == [
        *("1.0%, 8 frames", "20.00", "15.00", "0.75 (0.75 to 0.75)", "10.0%", "5.0%", "0.75"),
    ]
