"""The backend's thread of sums over a reducer that the test writes: which of its errors gloo mends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from testbed.contract import calls
from tests.limits import CALL_S
from workloads import sums
from workloads.quantiser import Floats, NotFiniteError, UnheardError


class Reduced:
    """A reducer whose next sum ends as the test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def submit(self, array: Floats) -> None:
        pass

    def finish(self) -> None:
        if self.error is not None:
            raise self.error

    def counters(self) -> dict[str, float]:
        return {}


class Work:
    """A work of torch's, as far as Python sees it."""

    def __init__(self) -> None:
        self.ended, self.error = threading.Event(), ""
        self.outcomes: list[Any] = []

    def done(self) -> None:
        self.ended.set()

    def fail(self, text: str) -> None:
        self.error = text
        self.ended.set()


class Exact:
    """Gloo's backend of the thread of sums: counts what comes to it."""

    def __init__(self) -> None:
        self.calls = 0

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        self.calls += 1
        return SimpleNamespace(wait=lambda: None)


class Worker:
    """A worker that sums."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, strict_finite: bool) -> None:
        self.reducer, self.exact = Reduced(), Exact()
        monkeypatch.setattr(sums, "reducer_for", lambda job, timeout_s: self.reducer)
        self.words = np.zeros(2, np.uint64)  # of the board: asked, waits for
        board = SimpleNamespace(
            course_addresses=lambda: (self.words.ctypes.data, self.words.ctypes.data + 8),
            **dict.fromkeys(("join", "leave"), lambda: None),
            add_summed=lambda size_bytes: None,
        )
        job: Any = SimpleNamespace(
            board=board,
            transport="packets",
            world_size=3,
            rank=0,
            strict_finite=strict_finite,
            write_stats=lambda stats: None,
        )
        self.sums = sums.Sums(job, 1.0)
        self.sums.begin(None, lambda: self.exact)

    def sum(self, error: Exception | None) -> Work:
        work, self.reducer.error = Work(), error
        self.sums.start(work, [torch.ones(5)], False)
        assert work.ended.wait(CALL_S)
        return work


@pytest.fixture(params=[False, True], ids=["gloo mends", "strict"])
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    made = Worker(monkeypatch, request.param)
    yield made
    made.sums.shutdown()


def test_what_is_not_finite_is_gloos_unless_it_is_to_be_an_error(worker: Worker) -> None:
    strict = worker.sums._job.strict_finite
    work = worker.sum(NotFiniteError("1 of 3 workers have NaN"))
    assert (work.error, worker.exact.calls) == (
        ("NotFiniteError: 1 of 3 workers have NaN", 0) if strict else ("", 1)
    )
    assert worker.sum(None).error == "", "the group survives it"


def test_what_is_asked_of_a_group_that_was_destroyed_fails_by_name(worker: Worker) -> None:
    """Behind the last task of its thread nobody would ever do it."""
    worker.sums.shutdown()
    for ask in (
        lambda: worker.sums.start(Work(), [torch.ones(5)], False),
        lambda: worker.sums.broadcast(Work(), [torch.ones(5)], 0, 0),
    ):
        with pytest.raises(RuntimeError, match=r"^the group was destroyed, and sums no more$"):
            ask()
    worker.sums.begin(None, lambda: worker.exact)
    assert worker.sum(None).error == "", "the next one sums"


def test_gloo_is_not_asked_where_the_others_may_not_come(worker: Worker) -> None:
    """A vote that lacks workers told only some of them: gloo would wait for the others for ever."""
    work = worker.sum(UnheardError("1 of 3 workers have NaN"))
    assert work.error == "UnheardError: 1 of 3 workers have NaN"
    assert worker.exact.calls == 0


def test_the_board_hears_what_the_script_asks_for_and_waits_for(worker: Worker) -> None:
    course = worker.sums.course
    assert list(worker.words) == [0, 0]
    course.wait(course.ask(4, calls.Course.SUMMED))
    assert list(worker.words) == [1, 1]
    course.resume(0)
    assert list(worker.words) == [1, 0]
    course.wait(course.ask(40, calls.Course.BESIDE))
    assert list(worker.words) == [2, 2]


def test_it_hears_that_a_backward_pass_waits_at_its_end(worker: Worker) -> None:
    value = torch.ones(3, requires_grad=True)

    def sums(gradient: torch.Tensor) -> None:
        worker.sums.course.ask(
            12, calls.Course.SUMMED
        )  # as the compiled backend does, before it asks for one
        worker.sum(None)

    value.register_hook(sums)
    (2 * value).sum().backward()
    timeline = worker.sums._timeline.summary()
    assert [what for what, *_ in timeline["rows"]] == [
        calls.Deed.ASKED,
        calls.Deed.WAITED,
        calls.Deed.RESUMED,
    ]
    assert list(worker.words) == [1, 0]
