"""The order of a group's calls, by the compiled backend: who asks for something else than its neighbours is
found, whoever calls first, and nobody else is.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial

import numpy as np
import pytest

from testbed.wire import calls
from testbed.wire.calls import CollectiveKind, Operation, Tables, what
from tests.limits import CALL_S
from workloads import waiting
from workloads.sums import native

GROUP, FLOAT32 = (1 << 62) - 3, 6


class Group:
    """The orders of a group's workers, over one memory."""

    def __init__(self, workers: int, memory: np.ndarray | None = None, group: int = GROUP) -> None:
        size_bytes = workers * calls.TABLE.dtype().itemsize
        self.memory = np.zeros(size_bytes, np.uint8) if memory is None else memory
        self.tables = Tables(self.memory)
        why = partial(waiting.explained, self.tables, range(workers))
        self.orders = [
            native.Order(self.memory.ctypes.data, list(range(workers)), member, group, why)
            for member in range(workers)
        ]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ALL_ASK_S", 0.0)


def all_reduce(elements: int = 8, operation: int = Operation.SUM, type_: int = FLOAT32) -> tuple[int, int]:
    return what(CollectiveKind.ALL_REDUCE, operation, type_), elements


DIFFERENT = {
    "length": (all_reduce(8), all_reduce(9)),
    "type": (all_reduce(), all_reduce(type_=15)),
    "operation": (all_reduce(), all_reduce(operation=Operation.AVG)),
    "kind": (all_reduce(), (what(CollectiveKind.BROADCAST, 0, FLOAT32, 0), 8)),
    "root": (
        (what(CollectiveKind.BROADCAST, 0, FLOAT32, 0), 8),
        (what(CollectiveKind.BROADCAST, 0, FLOAT32, 1), 8),
    ),
    "barrier": (all_reduce(), (what(CollectiveKind.BARRIER), 0)),
}


@pytest.mark.parametrize("sides", DIFFERENT.values(), ids=DIFFERENT)
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_who_asks_for_something_else_is_found_wherever_it_is_and_all_are_told(
    sides: tuple[tuple[int, int], tuple[int, int]], workers: int
) -> None:
    chance = random.Random(f"{sides}{workers}")
    for odd in range(workers):
        group, raised = Group(workers), dict[int, str]()
        for order in group.orders:
            assert order.ask(*all_reduce()) == 1
        for member in chance.sample(range(workers), workers):
            try:
                group.orders[member].ask(*sides[member == odd])
            except RuntimeError as error:
                raised[member] = str(error)
        assert raised, "the last of a pair that differs sees it"
        for order in group.orders:  # whoever waits looks at all
            with pytest.raises(RuntimeError, match=r"^DisagreementError: .*they do not ask for the same$"):
                order.check()
        for order in group.orders:  # and the group has ended
            with pytest.raises(RuntimeError, match="collective 2"):
                order.ask(*all_reduce())
        text = waiting.explained(group.tables, range(workers), GROUP, 2)
        assert f"worker {odd} " in text


def test_workers_that_ask_for_the_same_are_left_alone_however_far_they_are_apart() -> None:
    chance = random.Random(5)
    script = [
        all_reduce(chance.randrange(1, 9), chance.randrange(1, 10), chance.choice([6, 15]))
        for _ in range(400)
    ]
    group = Group(5)

    def run(member: int) -> None:
        for call in script:
            group.orders[member].ask(*call)
            if not chance.randrange(20):
                time.sleep(0.001 * chance.random())

    threads = [threading.Thread(target=run, args=(member,)) for member in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CALL_S)
    assert group.tables.doubt() is None
    assert [group.tables.last(rank).number for rank in range(5)] == [400] * 5  # type: ignore[union-attr]
    for order in group.orders:
        order.check()


def test_calls_at_once_cannot_miss_each_other() -> None:
    """Each writes before it looks: of two that call in one moment at least one sees the other."""
    for turn in range(300):
        group, start, seen = Group(2), threading.Barrier(2), list[str]()

        def run(
            member: int, group: Group = group, start: threading.Barrier = start, seen: list[str] = seen
        ) -> None:
            start.wait(CALL_S)
            try:
                group.orders[member].ask(*all_reduce(1 + member))
            except RuntimeError as error:
                seen.append(str(error))

        threads = [threading.Thread(target=run, args=(member,)) for member in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CALL_S)
        assert seen, turn


def test_groups_have_orders_of_their_own() -> None:
    first = Group(3)
    second = Group(3, first.memory, GROUP + 1)
    chance = random.Random(9)
    todo = [(group, member) for group in (first, second) for member in range(3) for _ in range(30)]
    chance.shuffle(todo)
    for group, member in todo:
        group.orders[member].ask(*all_reduce(8 if group is first else 9))
    assert first.tables.doubt() is None
    second.orders[0].ask(*all_reduce(1))
    with pytest.raises(RuntimeError):
        second.orders[1].ask(*all_reduce(2))
    first.orders[0].check()
    assert first.orders[0].ask(*all_reduce()) == 31
