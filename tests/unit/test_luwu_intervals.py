"""Intervals of communicating and waiting, against a count of every moment; and a transport whose requests are
timed.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workloads.luwu.intervals import Interval, Log, common, length, phases, union
from workloads.luwu.watched import Watched

intervals = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda each: (each[0], sum(each))), max_size=8
)


def moments(several: list[Interval]) -> set[int]:
    return {moment for begin, end in several for moment in range(begin, end)}


@given(intervals, intervals)
def test_lengths_are_those_of_the_moments_covered(these: list[Interval], those: list[Interval]) -> None:
    assert length(these) == len(moments(these))
    assert moments(common(these, those)) == moments(these) & moments(those)
    ends = [end for _, end in union(these)]
    assert all(end < begin for end, (begin, _) in zip(ends, union(these)[1:], strict=False))


def test_phases_share_what_was_waited_and_hidden() -> None:
    """Forward 0 to 4, backward to 10, step to 11 s: a pull from 1 to 3 that is waited for, a push from 5 to
    9 of which only the end is.
    """
    second = 1_000_000_000
    spent = phases(
        [(second, 3 * second), (5 * second, 9 * second)],
        [(second, 3 * second), (8 * second, 10 * second)],
        [0, 4 * second, 10 * second, 11 * second],
    )
    assert spent == {
        "forward_s": 4,
        "forward_waited_s": 2,
        "backward_s": 6,
        "backward_waited_s": 2,
        "step_s": 1,
        "step_waited_s": 0,
        "iteration_s": 11,
        "communicated_s": 6,
        "serialised_s": 3,
    }


class Slow:
    """A transport whose requests take 20 ms each, or fail."""

    iteration = 0

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem

    def parameters(self, layer: int) -> torch.Tensor | None:
        return None

    def forget(self, layer: int) -> None:
        """Nothing is kept."""

    def gradients(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements)

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        future: Future[None] = Future()

        def end() -> None:
            if self.problem is None:
                future.set_result(None)
            else:
                future.set_exception(self.problem)

        threading.Timer(0.02, end).start()
        return future

    def push(self, layer: int, gradients: memoryview) -> Future[None]:
        return self.pull(layer, gradients)

    def clear(self) -> Future[None]:
        return self.pull(0, memoryview(b""))

    def norm(self) -> Future[torch.Tensor]:
        raise NotImplementedError

    def step(self, clip_norm: float | None) -> Future[int]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


def test_what_is_waited_for_is_what_is_not_hidden() -> None:
    log = Log()
    watched = Watched(Slow(), log)
    watched.pull(0, memoryview(bytearray(4))).result()
    communicating, waiting = log.taken()
    assert length(communicating) > 15_000_000
    assert length(common(communicating, waiting)) > 0.8 * length(communicating)
    hidden = watched.push(0, memoryview(bytearray(4)))
    time.sleep(0.1)
    hidden.result()
    communicating, waiting = log.taken()
    assert length(communicating) > 15_000_000
    assert waiting == []
    assert log.taken() == ([], [])


def test_what_goes_wrong_is_heard() -> None:
    watched = Watched(Slow(ValueError("lost")), Log())
    with pytest.raises(ValueError, match="lost"):
        watched.pull(0, memoryview(bytearray(4))).result()
