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

from workloads.luwu.intervals import Interval, Log, Passes, common, length, passes, union
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
    spent = passes(
        [(second, 3 * second), (5 * second, 9 * second)],
        [(second, 3 * second), (8 * second, 10 * second)],
        [0, 4 * second, 10 * second, 11 * second],
    )
    assert spent == Passes(
        forward_s=4,
        forward_waited_s=2,
        backward_s=6,
        backward_waited_s=2,
        step_s=1,
        step_waited_s=0,
        iteration_s=11,
        communicated_s=6,
        serialised_s=3,
    )


TAKES_NS = 20_000_000


class Clock:
    """A clock that stands still until somebody waits: of two readings the second is his who waits, and with
    it the transfer goes on, in a thread.
    """

    def __init__(self, transport: Slow) -> None:
        self._transport, self.now_ns, self._readings = transport, 0, 0

    def __call__(self) -> int:
        now_ns, self._readings = self.now_ns, self._readings + 1
        if self._readings == 2:
            threading.Thread(target=self.end).start()
        return now_ns

    def end(self) -> None:
        """Let the transfer take its time, and end."""
        self.now_ns += TAKES_NS
        self._transport.end()


class Slow:
    """A transport whose last request ends when it is told to, or fails."""

    iteration = 0

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self._asked: Future[None] = Future()

    def parameters(self, layer: int) -> torch.Tensor | None:
        return None

    def forget(self, layer: int) -> None:
        """Nothing is kept."""

    def gradients(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements)

    def pull(self, layer: int, parameters: memoryview) -> Future[None]:
        self._asked = Future()
        return self._asked

    def end(self) -> None:
        """End the request."""
        if self.problem is None:
            self._asked.set_result(None)
        else:
            self._asked.set_exception(self.problem)

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


def test_what_is_waited_for_is_what_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    log, slow = Log(), Slow()
    clock, watched = Clock(slow), Watched(slow, log)
    monkeypatch.setattr(time, "monotonic_ns", clock)
    watched.pull(0, memoryview(bytearray(4))).result()
    assert log.taken() == ([(0, TAKES_NS)], [(0, TAKES_NS)])
    hidden = watched.push(0, memoryview(bytearray(4)))
    clock.end()
    hidden.result()
    assert log.taken() == ([(TAKES_NS, 2 * TAKES_NS)], [])
    assert log.taken() == ([], [])


def test_what_goes_wrong_is_heard() -> None:
    slow = Slow(ValueError("lost"))
    asked = Watched(slow, Log()).pull(0, memoryview(bytearray(4)))
    slow.end()
    with pytest.raises(ValueError, match="lost"):
        asked.result()
