"""The backend's thread of sums over a reducer that the test writes: which of its errors gloo mends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from testbed.wire import calls
from tests.bench.collectives import carried_sizes, within
from tests.limits import CALL_S
from workloads import sums
from workloads.quantiser import Floats, NotFiniteError, UnheardError


class Reduced:
    """A reducer whose next sum ends as the test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.refused: list[int] = []  # sizes
        self.under_way: list[Floats] = []
        self.limits: list[float] = []

    def submit(self, array: Floats) -> None:
        if array.size in self.refused:
            raise MemoryError("no room")
        self.under_way.append(array)

    def set_timeout(self, timeout_s: float) -> None:
        self.limits.append(timeout_s)

    def finish(self) -> None:
        self.under_way.pop(0)
        if self.error is not None:
            raise self.error

    def counters(self) -> dict[str, float]:
        return {}


class Work:
    """A work of torch's, as far as Python sees it."""

    def __init__(self) -> None:
        self.ended, self.error = threading.Event(), ""
        self.outcomes: list[Any] = []

    def add(self, outcome: Any) -> None:
        self.outcomes.append(outcome)

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

    def _set_default_timeout(self, limit: timedelta) -> None:
        self.limit = limit


class Worker:
    """A worker that sums."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, strict_finite: bool) -> None:
        self.reducer, self.exact = Reduced(), Exact()
        monkeypatch.setattr(sums, "reducer_for", lambda job, timeout_s: self.reducer)
        self.words = np.zeros(2, np.uint64)  # of the board: asked, waits for
        board = SimpleNamespace(
            course_addresses=lambda: (self.words.ctypes.data, self.words.ctypes.data + 8),
            **dict.fromkeys(("join", "leave"), lambda: None),
            summed_address=lambda: 0,
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
    with pytest.raises(RuntimeError, match=r"^the group was destroyed, and sums no more$"):
        worker.sums.start(Work(), [torch.ones(5)], False)
    worker.sums.begin(None, lambda: worker.exact)
    assert worker.sum(None).error == "", "the next one sums"


def test_a_call_of_which_one_tensor_is_refused_leaves_nothing_under_way(worker: Worker) -> None:
    worker.reducer.refused = [4]
    with pytest.raises(MemoryError):
        worker.sums.start(Work(), [torch.ones(3), torch.ones(4), torch.ones(5)], False)
    assert worker.sum(None).error == ""
    assert worker.reducer.under_way == []


def test_a_reducer_hears_of_each_new_limit_and_so_does_gloo(worker: Worker) -> None:
    for limit_s in (1.0, 2.0, 2.0, 1.0, None):
        work = Work()
        worker.sums.start(work, [torch.ones(5)], False, limit_s)
        assert work.ended.wait(CALL_S)
    assert worker.reducer.limits == [2.0, 1.0]
    if not worker.sums._job.strict_finite:
        worker.sum(NotFiniteError("1 of 3 workers have NaN"))
        assert worker.exact.limit == timedelta(seconds=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_is_the_scripts_own_again_after_its_sum(worker: Worker, dtype: torch.dtype) -> None:
    """It may be made longer, and what it had let go of: NumPy has no part in it."""
    for inference in (False, True):
        with torch.inference_mode(inference):
            tensor, work = torch.full((5,), 3.0, dtype=dtype), Work()
        worker.sums.start(work, [tensor], True)
        assert work.ended.wait(CALL_S)
        assert work.error == ""
        assert tensor.tolist() == [1.0] * 5, "a third of what the reducer left as it was"
        with torch.inference_mode(inference):
            tensor.resize_(1000)
        tensor.untyped_storage().resize_(0)


def test_buffers_are_used_again() -> None:
    buffers = sums.native.Buffers()
    first = buffers.take(1000)
    address = first.data_ptr()
    buffers.give(first)
    assert buffers.take(3000).data_ptr() != address, "too small"
    assert buffers.take(400).data_ptr() != address, "much too large"
    part = buffers.take(600)
    assert part.data_ptr() == address
    assert part.numel() == 600
    assert buffers.take(600).data_ptr() != address, "it is taken"
    buffers.give(part)
    assert buffers.take(1000).data_ptr() == address, "whole again"


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
        worker.sums.course.see_backward()

    value.register_hook(sums)
    (2 * value).sum().backward()
    timeline = worker.sums._timeline.summary()
    assert [what for what, *_ in timeline["rows"]] == [
        calls.Deed.ASKED,
        calls.Deed.WAITED,
        calls.Deed.RESUMED,
    ]
    assert list(worker.words) == [1, 0]


def test_collectives_are_carried_where_that_was_measured_to_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of so many workers counts, or of the most that are fewer."""
    measured = {"shaped": {2: [(0, 16), (99, None)], 8: []}, "unshaped": {2: [], 4: [(64, 64)]}}
    monkeypatch.setattr(sums.crossovers, "CARRIED", {"broadcast": measured})
    for is_shaped, due in (
        (True, [[], *[[(0, 16), (99, sys.maxsize)]] * 2, [], []]),
        (False, [[], [], *[[(64, 64)]] * 3]),
    ):
        carried = [sums.carried(workers, is_shaped) for workers in (1, 2, 7, 8, 64)]
        assert [sizes["broadcast"] for sizes in carried] == due


def test_the_bench_finds_the_sizes_at_which_the_network_pays() -> None:
    ratios = {4: 0.3, 64: 1.05, 256: 1.06, 1024: 0.9, 4096: 1.2, 65536: 1.0, 1 << 20: 0.99}
    assert within(ratios, 1.05) == [(4, 64), (65536, None)]
    assert within({4: 2.0, 64: 1.0, 256: 1.0, 1024: 3.0}, 1.05) == [(64, 256)]
    assert within({4: 2.0, 64: 1.0}, 1.05) == within({4: 2.0}, 1.05) == []


def test_the_network_carries_a_size_that_pays_quiet_and_busy_and_at_all_rates() -> None:
    def run(rate_mbps: float, *ratios: float) -> dict[str, Any]:
        sizes = zip((4, 64, 256), ratios, strict=True)
        rows = [{"collective": "broadcast", "bytes": size, "ratio": ratio} for size, ratio in sizes]
        return {"rate_mbps": rate_mbps, "workers": 2, "rows": rows}

    quiet, busy = (
        [run(0, 1, 1, 1), run(200, 1, 1, 1), run(400, 9, 1, 1)],
        [run(0, 1, 1, 9), run(200, 1, 1, 1)],
    )
    expected = {"broadcast": {"shaped": {2: [(64, None)]}, "unshaped": {2: [(4, 64)]}}}
    assert carried_sizes([*quiet, *busy]) == carried_sizes([*busy, *quiet]) == expected
