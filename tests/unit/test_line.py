"""Sums that go through the compiled endpoint without Python, over an endpoint that the test writes: what is
done in which order, and what becomes of those that the network has no sum of.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from testbed.wire.endpoint import Event
from tests.limits import CALL_S
from tests.unit.made_settings import endpoint
from workloads import sums
from workloads.collectives import c10d
from workloads.quantiser import DisagreementError, NotFiniteError, PartMissingError, UnheardError
from workloads.reducers import InNetwork

WORKERS, LANES, LIMIT_S = 3, 4, 5.0
CALL = timedelta(seconds=CALL_S)

SUBMIT = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64),
    *(ctypes.c_void_p, ctypes.c_void_p),
)
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *map(ctypes.POINTER, (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int64)),
)


class Written(InNetwork):
    """An endpoint whose sums are three times what each worker has, and end as the test says."""

    def __init__(self) -> None:
        self.events: list[tuple[Event, Exception | None]] = []  # of the next vectors; then all are summed
        self.missing: list[int] = []  # fragments that lack a worker
        self.refuses = self.is_over = self.is_idle = False
        self.is_held = threading.Event()  # cleared: no vector ends
        self.is_held.set()
        self.vectors: list[tuple[int, int, int, int]] = []  # elements, address, contributors, lost
        self.taken = 0
        self._submit, self._run = SUBMIT(self._submitted), RUN(self._ran)
        self.set_check = lambda check: None  # type: ignore[method-assign]

    def endpoint(self) -> tuple[int, int, int, int]:
        addresses = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in (self._submit, self._run))
        return 1, *addresses, LANES  # type: ignore[return-value]

    def _submitted(self, *given: Any) -> int:
        _, address, elements, _, _, _, contributors, lost = given
        if self.refuses:
            return -1
        self.vectors.append((elements, address, contributors, lost or 0))
        return len(self.vectors) - 1

    def _ran(self, _handle: Any, number: Any, detail: Any, silent_ns: Any) -> int:
        if self.is_idle or not self.is_held.wait(CALL_S):
            return int(Event.IDLE)
        event, self.error = self.events.pop(0) if self.events else (Event.DONE, None)
        detail[0], silent_ns[0], number[0] = 1, 10**9, self.taken
        if event == Event.QUIET:
            return int(event)
        elements, address, contributors, lost = self.vectors[self.taken]
        self.taken += 1
        heard = np.ctypeslib.as_array(
            (ctypes.c_uint32 * max(1, -(-elements // LANES))).from_address(contributors)
        )
        heard[:] = WORKERS
        heard[self.missing] -= 1
        if event == Event.DONE and elements:
            values = np.ctypeslib.as_array((ctypes.c_float * elements).from_address(address))
            values *= WORKERS
            if lost:
                np.ctypeslib.as_array((ctypes.c_float * elements).from_address(lost))[:] = 0.5
        return int(event)

    def failure_of(self, vector: Any) -> Exception | None:  # type: ignore[override]
        assert vector.event in (Event.QUIET, Event.NOT_FINITE, Event.LACKING, Event.DISAGREE)
        assert (vector.limit_s, vector.detail, vector.silent_s) == (LIMIT_S, 1, 1.0)
        if vector.event == Event.QUIET and self.error:
            raise self.error
        return self.error

    def is_broken(self) -> bool:  # type: ignore[override]
        return self.is_over

    def counters(self) -> dict[str, float]:
        return {}


def gloo_alone(limit_s: float) -> Any:
    """Gloo of one worker, which adds nothing."""
    return c10d.ProcessGroupGloo(torch.distributed.HashStore(), 0, 1, timedelta(seconds=limit_s))


class Worker:
    """A worker's backend over such an endpoint."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, strict_finite: bool = False) -> None:
        self.endpoint, self.exact = Written(), gloo_alone(CALL_S)
        monkeypatch.setattr(sums, "reducer_for", lambda job, timeout_s: self.endpoint)
        monkeypatch.setattr(sums, "InNetwork", Written)
        self.words = np.zeros(3, np.uint64)  # of the board: asked, waits for, bytes summed
        at = self.words.ctypes.data
        board = SimpleNamespace(
            course_addresses=lambda: (at, at + 8),
            summed_address=lambda: at + 16,
            **dict.fromkeys(("join", "leave"), lambda: None),
        )
        self.left: dict[str, Any] = {}
        job: Any = SimpleNamespace(
            board=board,
            transport="packets",
            world_size=WORKERS,
            rank=0,
            strict_finite=strict_finite,
            write_stats=self.left.update,
            endpoint=endpoint(rate_mbps=None),
        )
        self.sums = sums.Sums(job, LIMIT_S)
        self.begin()

    def begin(self) -> None:
        gloo = gloo_alone(LIMIT_S)
        self.sums.begin(gloo, lambda: self.exact)
        self.group = sums.native.IncBackend(gloo, self.sums)

    def ask(self, *tensors: torch.Tensor, operation: Any = c10d.ReduceOp.SUM) -> Any:
        options = c10d.AllreduceOptions()
        options.reduceOp = operation
        return self.group.allreduce(list(tensors), options)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    made = Worker(monkeypatch)
    yield made
    made.endpoint.is_held.set()
    made.sums.shutdown()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5, 3)])
@pytest.mark.parametrize("is_whole", [True, False])
def test_tensors_are_replaced_by_their_sums(
    worker: Worker, dtype: torch.dtype, shape: tuple[int, ...], is_whole: bool
) -> None:
    for operation, factor in ((c10d.ReduceOp.SUM, WORKERS), (c10d.ReduceOp.AVG, 1)):
        first, second = torch.full(shape, 2.0, dtype=dtype), torch.full((9,), 1.0, dtype=dtype)
        given = (first, second) if is_whole else (torch.full((*shape, 2), 2.0, dtype=dtype)[..., 0], second)
        work = worker.ask(*given, operation=operation)
        work.wait(CALL)
        assert [torch.unique(each).tolist() for each in given] == [
            [2.0 * factor] * (0 not in shape),
            [factor],
        ]
        sizes = [each.numel() for each in given]
        heard = [each.by_element(size).tolist() for each, size in zip(work.outcomes, sizes, strict=True)]
        assert heard == [[WORKERS] * size for size in sizes]


def test_who_is_missing_is_in_outcome_and_record(worker: Worker) -> None:
    worker.endpoint.missing = [1]
    work = worker.ask(torch.ones(9))
    work.wait(CALL)
    (outcome,) = work.outcomes
    assert outcome.by_element(9).tolist() == [3, 3, 3, 3, 2, 2, 2, 2, 3]
    worker.endpoint.missing = []
    worker.ask(torch.ones(9)).wait(CALL)
    record = worker.sums.record
    assert (record.sums, record.degraded, record.fewest, record.last.degraded) == (2, 1, 2, 0)


def test_it_counts_and_tells_the_board(worker: Worker) -> None:
    by_gloo = sums.native.by_gloo_bytes()  # of all groups of this process
    worker.ask(torch.ones(9), torch.ones(2)).wait(CALL)
    worker.endpoint.events = [(Event.NOT_FINITE, NotFiniteError("1 of 3"))]
    worker.ask(torch.ones(6, dtype=torch.float16)).wait(CALL)
    assert worker.words.tolist() == [2, 0, 56]
    assert worker.sums.summed() == {"packets": 44, "gloo": 24}
    worker.sums.shutdown()
    assert (worker.left["allreduce"]["count"], worker.left["allreduce"]["bytes"]) == (2, 56)
    assert worker.left["bytes_by"] == {"packets": 44, "gloo": 24 + by_gloo}


@pytest.mark.parametrize(
    ("event", "error"),
    [(Event.NOT_FINITE, NotFiniteError("1 of 3")), (Event.LACKING, PartMissingError("2 of 3"))],
)
def test_gloo_sums_what_the_network_does_not(worker: Worker, event: Event, error: Exception) -> None:
    worker.endpoint.events = [(Event.QUIET, None), (event, error)]
    first, second = torch.ones(3), torch.ones(3)
    works = [worker.ask(first), worker.ask(second)]
    for work in works:
        work.wait(CALL)
    assert worker.exact.options._timeout == timedelta(seconds=LIMIT_S)
    assert (first.tolist(), second.tolist()) == ([1.0] * 3, [3.0] * 3)
    assert worker.sums.summed() == {"packets": 12, "gloo": 12}


@pytest.mark.parametrize("error", [NotFiniteError("1 of 3"), UnheardError("1 of 3")])
def test_what_is_not_finite_is_an_error_where_it_is_to_be_one(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    worker = Worker(monkeypatch, strict_finite=True)
    worker.endpoint.events = [(Event.NOT_FINITE, error)]
    with pytest.raises(RuntimeError, match=f"^{type(error).__name__}: 1 of 3$"):
        worker.ask(torch.ones(3), torch.ones(2)).wait(CALL)
    assert worker.sums.summed()["gloo"] == 0
    worker.ask(torch.ones(3)).wait(CALL)
    worker.sums.shutdown()
    assert worker.sums.summed() == {"packets": 20}, "the other tensor's sum and the next one"


@pytest.mark.parametrize("event", [Event.QUIET, Event.DISAGREE])
def test_after_the_end_all_that_is_under_way_fails_and_nothing_more_is_submitted(
    worker: Worker, event: Event
) -> None:
    worker.endpoint.is_held.clear()
    worker.endpoint.events = [(Event.DONE, None), (event, DisagreementError("lengths"))]
    worker.endpoint.is_over = True
    works = [worker.ask(torch.ones(3)) for _ in range(4)]
    worker.endpoint.is_held.set()
    works[0].wait(CALL)
    for work in works[1:]:
        with pytest.raises(RuntimeError, match=r"^DisagreementError: lengths$"):
            work.wait(CALL)
    with pytest.raises(RuntimeError, match=r"^DisagreementError: lengths$"):
        worker.ask(torch.ones(3)).wait(CALL)
    assert len(worker.endpoint.vectors) == 4


def test_pythons_tasks_come_in_turn(worker: Worker) -> None:
    seen: list[str] = []
    worker.endpoint.is_held.clear()
    for number in range(3):
        work = worker.ask(torch.ones(1))
        work.get_future().then(lambda _, number=number: seen.append(f"sum {number}"))
        with worker.sums.line:
            worker.sums.line.put(lambda number=number: seen.append(f"task {number} {worker.endpoint.taken}"))
    assert seen == []
    worker.endpoint.is_held.set()
    worker.sums.shutdown()
    assert [each for each in seen if "task" in each] == ["task 0 1", "task 1 2", "task 2 3"]
    assert sorted(each for each in seen if "sum" in each) == ["sum 0", "sum 1", "sum 2"]


def test_many_threads_ask_and_no_more_are_under_way_than_there_is_room_for(worker: Worker) -> None:
    worker.endpoint.is_held.clear()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(lambda: [worker.ask(torch.ones(2)) for _ in range(100)]) for _ in range(4)]
        most: Callable[[], int] = lambda: len(worker.endpoint.vectors)  # noqa: E731
        before = -1
        while most() != before:
            before = most()
            threading.Event().wait(0.1)
        assert before == 96
        worker.endpoint.is_held.set()
        works = [work for each in asked for work in each.result(CALL_S)]
        for work in works:
            work.wait(CALL)
    assert worker.sums.record.sums == 400


def test_what_is_refused_leaves_nothing_under_way(worker: Worker) -> None:
    worker.endpoint.refuses = True
    with pytest.raises(RuntimeError, match="takes no more vectors"):
        worker.ask(torch.ones(3))
    worker.endpoint.refuses = False
    worker.ask(torch.ones(3)).wait(CALL)


def test_a_group_that_was_destroyed_sums_no_more_and_the_next_does(worker: Worker) -> None:
    worker.endpoint.is_held.clear()
    work = worker.ask(torch.ones(3))
    threading.Timer(0.2, worker.endpoint.is_held.set).start()
    worker.sums.shutdown()
    assert work.is_completed(), "what was asked for is summed"
    with pytest.raises(RuntimeError, match=r"^the group was destroyed, and sums no more$"):
        worker.ask(torch.ones(3))
    worker.begin()
    worker.ask(torch.ones(3)).wait(CALL)


def test_what_is_lost_is_of_the_call_that_asks_for_it(worker: Worker) -> None:
    lost, other = torch.zeros(3), torch.zeros(3)
    with sums.native.Lost(lost):
        work = worker.ask(torch.ones(3))
        ThreadPoolExecutor(1).submit(lambda: worker.ask(torch.ones(3)).wait(CALL)).result(CALL_S)
    worker.ask(other).wait(CALL)
    work.wait(CALL)
    assert lost.tolist() == [0.5] * 3
    assert [bool(vector[3]) for vector in worker.endpoint.vectors] == [True, False, False]


def test_a_backward_pass_waits_at_its_end_for_the_board(worker: Worker) -> None:
    value = torch.ones(3, requires_grad=True)
    value.register_hook(lambda gradient: worker.ask(gradient.clone()) and None)
    (2 * value).sum().backward()
    rows = worker.sums._timeline.summary()["rows"]
    assert [what for what, *_ in rows] == [0, 1, 2]
    assert worker.words[:2].tolist() == [1, 0]


def test_an_endpoint_out_of_step_is_an_error_and_no_hang(worker: Worker) -> None:
    worker.endpoint.is_idle = True
    with pytest.raises(RuntimeError, match="out of step"):
        worker.ask(torch.ones(3)).wait(CALL)


def test_a_tensor_that_cannot_take_its_sum_fails_alone(worker: Worker) -> None:
    worker.endpoint.is_held.clear()
    tensor = torch.ones(3, dtype=torch.float16)
    work = worker.ask(tensor)
    tensor.resize_(2)
    worker.endpoint.is_held.set()
    with pytest.raises(RuntimeError, match=r"^RuntimeError: [^\n]*$"):
        work.wait(CALL)
    worker.ask(torch.ones(3)).wait(CALL)


def test_what_is_lost_lives_as_long_as_its_vector(worker: Worker) -> None:
    worker.endpoint.is_held.clear()
    with sums.native.Lost(torch.zeros(1 << 20)):
        work = worker.ask(torch.ones(1 << 20))
    others = [torch.full((1 << 20,), 7.0) for _ in range(4)]
    worker.endpoint.is_held.set()
    work.wait(CALL)
    assert all((other == 7).all() for other in others)


def test_a_tensor_may_be_given_other_memory_while_it_is_summed(worker: Worker) -> None:
    worker.endpoint.is_held.clear()
    tensor = torch.ones(6)
    before = tensor.view(-1)
    work = worker.ask(tensor, operation=c10d.ReduceOp.AVG)
    tensor.data = torch.full((2,), 5.0)
    worker.endpoint.is_held.set()
    work.wait(CALL)
    assert (before.tolist(), tensor.tolist()) == ([1.0] * 6, [5.0] * 2)


def test_a_silence_that_cannot_be_told_is_the_end(worker: Worker) -> None:
    """Its vector is under way still, and nothing may be written where it was."""
    worker.endpoint.events = [(Event.QUIET, OSError("no space left"))]
    works = [worker.ask(torch.ones(3)) for _ in range(2)]
    for work in works:
        with pytest.raises(RuntimeError, match=r"^OSError: no space left$"):
            work.wait(CALL)
    assert worker.endpoint.taken == 0


def test_whoever_waits_for_room_is_woken_at_the_end(worker: Worker) -> None:
    worker.endpoint.is_held.clear()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: [worker.ask(torch.ones(2)) for _ in range(97)])
        while len(worker.endpoint.vectors) < 96:
            threading.Event().wait(0.01)
        worker.sums.line.close()
        with pytest.raises(RuntimeError, match="destroyed"):
            asked.result(CALL_S)
    worker.endpoint.is_held.set()
    worker.sums._thread.join(CALL_S)


END = """
import atexit, sys, threading
import pytest, torch
from tests.unit import test_line

worker = test_line.Worker(pytest.MonkeyPatch())
sums = test_line.sums
sums._END_TIMEOUT_S = 0.2
atexit.register(lambda: worker.endpoint.is_held.set() or threading.Event().wait(0.3) or {late})
atexit.unregister(worker.sums._end)
atexit.register(worker.sums._end)
worker.endpoint.is_held.clear()
tensors = [torch.ones(5, dtype=torch.float16) for _ in range(3)]
works = [worker.ask(tensor) for tensor in tensors]
works[0].get_future().then(lambda _: print("called back"))
del tensors, works
print("end", flush=True)
"""


@pytest.mark.parametrize("late", ["worker.sums.shutdown()", "worker.sums.line.require_open()", "None"])
def test_a_process_ends_while_sums_are_under_way(late: str) -> None:
    """They come when nobody waits any more, and somebody asks later still."""
    ended = subprocess.run(
        [sys.executable, "-c", END.format(late=late)], capture_output=True, text=True, timeout=CALL_S
    )
    assert (ended.returncode, ended.stdout) == (0, "end\n"), ended.stderr


def test_who_abandons_the_thread_waits_until_it_is_out_of_the_interpreter(worker: Worker) -> None:
    """The thread stands still for good then: this line is of this test alone."""
    is_in, may_leave, seen = threading.Event(), threading.Event(), []

    def task() -> None:
        is_in.set()
        may_leave.wait(CALL_S)
        seen.append("task")

    worker.sums.line.put(task)
    worker.sums.line.put(lambda: seen.append("next"))
    is_in.wait(CALL_S)
    threading.Timer(0.2, may_leave.set).start()
    worker.sums.line.abandon()
    assert seen == ["task"]
    worker.sums.line.require_open()
    assert seen == ["task"]
    worker.sums._thread = None
