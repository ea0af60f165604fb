"""The sums of a worker process, and the other collectives that the network carries: in the order in which
they are asked for, on a thread of their own.

What torch calls is compiled and hands them over (workloads/native/backend.cpp); workloads/backend.py makes
one for each process group that has any.
"""

from __future__ import annotations

import atexit
import functools
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from testbed.contract.transports import GLOO
from workloads import groups, stragglers
from workloads.collectives import (
    Broadcast,
    Buffers,
    Carrier,
    Gathered,
    Scattered,
    Vector,
    floats_of,
    sum_options,
)
from workloads.job_env import Board, JobEnv
from workloads.native import build
from workloads.outcome import Outcome, Record
from workloads.quantiser import NotFiniteError, PartMissingError, UnheardError
from workloads.reducers import InNetwork, Reducer, reducer_for
from workloads.spans import Statistics
from workloads.timeline import Timeline

native: Any = build.load()
ledger = groups.Ledger()  # of the groups beside the first

wanted_lost: dict[int, torch.Tensor] = {}
"""Where to write what rounding leaves out of the vector at an address, while its sum is being asked for."""

_END_TIMEOUT_S = 5.0
LEAST_CARRIED_BYTES = 1 << 16  # docs/backend.md
# the launcher notices an exit within milliseconds, if it has a core; gloo may notice the closed connection
# before
_BOARD_WAIT_S = 5.0


def _give(reducer: Reducer, tensor: torch.Tensor, flat: torch.Tensor) -> None:
    """Submit the values of a tensor."""
    lost = wanted_lost.get(tensor.data_ptr())
    if lost is not None and isinstance(reducer, InNetwork):
        reducer.submit(floats_of(flat), lost=floats_of(lost))
    else:
        reducer.submit(floats_of(flat))


class Sums:
    """The sums of a worker process, in the order in which they are asked for: by the job's reducer, or gloo's
    ring where the job has none.

    It lasts as long as the process; process groups come and go, one at a time (`begin`, `shutdown`). The
    compiled backend calls what is public here.
    """

    def __init__(self, job: JobEnv, timeout_s: float, is_whole: bool = True) -> None:
        """`is_whole`: they are the job's own, and not those of a group beside its first."""
        self._job = job
        self._reducer: Reducer | None = reducer_for(job, timeout_s)
        self._limit_s = timeout_s  # of the vector that was submitted last
        self._set_limit = getattr(self._reducer, "set_timeout", None)  # a user's reducer need not have it
        self._buffers = Buffers()
        # bytes on the side of all workers from which other collectives than sums are carried; -1: none is
        self.carried_from = LEAST_CARRIED_BYTES if hasattr(self._reducer, "submit_gathered") else -1
        self.sums_in_lanes = self._reducer is not None
        self.rounds = isinstance(self._reducer, InNetwork)
        self._statistics = Statistics()
        self._timeline = Timeline() if is_whole else None
        self.course = native.Course(*job.board.course_addresses(), self._timeline)
        self.record = Record()  # of who was in this worker's sums
        self._sees_all = True  # what its script asks for and waits for
        self._backward = -1  # the backward pass whose end is awaited for the timeline
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._by_bytes: Counter[str] = Counter()  # what it summed, by the way that it went
        self._order = threading.Lock()  # vectors are submitted, and waited for, in one order
        self._door = threading.Lock()  # of the thread's tasks
        self._is_open = False
        self._thread: threading.Thread | None = None
        self._gloo: Any = None
        self._new_exact: Any = None
        atexit.register(self.shutdown)

    @property
    def board(self) -> Board:
        """Return the board of the job's workers, as this process has mapped it."""
        return self._job.board

    def begin(self, gloo: Any, exact: Callable[[], Any], order: Any = None) -> None:
        """A process group of all workers begins: what it has by gloo, what makes another gloo backend for the
        thread of sums, and the order of its calls (None: nobody compares them).
        """
        if order is not None and isinstance(self._reducer, InNetwork):
            self._reducer.heed(order.check)
        self._gloo, self._new_exact = gloo, functools.cache(exact)
        self._is_open = True
        self._thread = threading.Thread(target=self._work, name="inc-allreduce", daemon=True)
        self._thread.start()
        self._job.board.join()

    def start(
        self, work: Any, tensors: list[torch.Tensor], average: bool, limit_s: float | None = None
    ) -> None:
        """Begin a sum. `work.done()` or `work.fail(text)` follows; `work.outcomes` says of each tensor, once
        the sum is there, who is in it. Without a result for `limit_s` it fails.
        """
        self._check_open()
        stragglers.before_sum()
        work.outcomes = outcomes = list[Outcome]()
        if self._reducer:
            self._submit(self._reducer, tensors, average, (work, outcomes), limit_s)
        else:
            start = time.perf_counter()
            works = self._start_ring(tensors, limit_s)
            self._then(
                lambda: self._settle(
                    work, lambda: self._finish_ring(works, start, tensors, average, outcomes)
                )
            )
        self._see_backward()

    # ---- other collectives, by a reducer that gathers ----

    def gather(
        self,
        work: Any,
        outputs: list[list[torch.Tensor]],
        inputs: list[torch.Tensor],
        rank: int,
        limit_s: float | None = None,
    ) -> None:
        """Begin to gather each of `inputs` from all workers, into a tensor of each worker or one for all;
        else as `start`.
        """
        workers = self._job.world_size
        self._carry(
            work,
            lambda: [Gathered(*pair, rank, workers) for pair in zip(outputs, inputs, strict=True)],
            limit_s,
        )

    def broadcast(
        self, work: Any, tensors: list[torch.Tensor], rank: int, root: int, limit_s: float | None = None
    ) -> None:
        """Begin to broadcast from the worker `root`; else as `start`."""
        self._carry(work, lambda: [Broadcast(tensor, rank, root) for tensor in tensors], limit_s)

    def scatter(
        self,
        work: Any,
        outputs: list[torch.Tensor],
        inputs: list[list[torch.Tensor]],
        rank: int,
        average: bool,
        limit_s: float | None = None,
    ) -> None:
        """Begin to sum `inputs`, a tensor for each worker or one for all; each worker gets its part. Else as
        `start`.
        """
        workers = self._job.world_size
        self._carry(
            work,
            lambda: [
                Scattered(*pair, rank, workers, average, self._buffers)
                for pair in zip(outputs, inputs, strict=True)
            ],
            limit_s,
        )

    @torch.inference_mode()
    def _carry(self, work: Any, made: Callable[[], Sequence[Vector]], limit_s: float | None) -> None:
        self._check_open()
        carrier: Any = self._reducer
        work.outcomes = outcomes = list[Outcome]()
        failures = list[Exception]()
        vectors = made()
        if any(vector.floats is not None for vector in vectors):
            stragglers.before_sum()

        def settled() -> None:
            if failures:
                raise failures[0]

        self._submit_all(
            [
                (
                    functools.partial(vector.submit, carrier),
                    functools.partial(self._take, carrier, vector, outcomes, failures),
                )
                for vector in vectors
            ],
            lambda: self._settle(work, settled),
            limit_s,
        )
        self._see_backward()

    @torch.inference_mode()
    def _take(
        self, carrier: Carrier, vector: Vector, outcomes: list[Outcome], failures: list[Exception]
    ) -> None:
        try:
            way, outcome = self._finished(carrier, vector.by_gloo)
            vector.take()
        except Exception as error:  # told when all vectors are settled
            failures.append(error)
            return
        outcomes.append(outcome)
        self._by_bytes[way] += vector.size_bytes
        if vector.floats is not None:
            self.record.add(outcome)

    def _see_backward(self) -> None:
        """DDP waits in C++, at the end of a backward pass. Callbacks there run in the order in which they
        were asked for: the first of these two before DDP's, which is asked for after the last bucket, and the
        second, asked for by the first, after it.
        """
        now = torch._C._current_graph_task_id()
        if now in (-1, self._backward):
            return
        self._backward = now
        autograd: Any = torch.autograd.Variable._execution_engine

        def at_end() -> None:
            self._backward = -1
            self.course.wait(self.course.last)
            autograd.queue_callback(lambda: self.course.resume(self.course.last))

        autograd.queue_callback(at_end)

    # ---- the thread of the reducer ----

    @property
    def is_up(self) -> bool:
        """Return whether a process group has them now."""
        return self._thread is not None and self._thread.is_alive()

    def shutdown(self) -> None:
        """End the thread after what was asked of it, and leave the statistics. Called by torch when the
        group is destroyed, or at the process's end.
        """
        if self._thread is None or not self._thread.is_alive():
            return
        with self._door:
            self._is_open = False
            self._tasks.put(None)
        self._thread.join(_END_TIMEOUT_S)
        native.drain(_END_TIMEOUT_S)  # callbacks of the last sums
        if not self._thread.is_alive():  # else it may need them still
            self._gloo = self._new_exact = None
        try:
            self._write_statistics()
        except OSError as error:  # the training itself is done
            print(f"the result lacks this worker's statistics: {error.strerror}", file=sys.stderr)
        self._job.board.leave()

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("the group was destroyed, and sums no more")

    def _then(self, task: Callable[[], None]) -> None:
        """Have the thread do this after what it was given before. Raises RuntimeError where it ends: nobody
        would wait for it to the end.
        """
        with self._door:
            self._check_open()
            self._tasks.put(task)

    def _work(self) -> None:
        while task := self._tasks.get():
            task()

    def _settle(self, work: Any, finish: Callable[[], None]) -> None:
        try:
            finish()
        except Exception as error:  # every failure belongs to the one who waits
            work.fail(f"{type(error).__name__}: {error}")
        else:
            work.done()

    def _submit_all(
        self,
        vectors: Sequence[tuple[Callable[[], None], Callable[[], None]]],
        settle: Callable[[], None],
        limit_s: float | None,
    ) -> None:
        """Submit vectors, each given by what submits it and what takes its result. Here and not on the
        thread, so that vectors follow each other without a pause. Each has a task of its own, which may make
        room for the next.

        Where one raises, those before it are taken all the same, so that the next call finds nothing of this
        one under way.
        """
        with self._order:
            self._limit(limit_s)
            for submit, take in vectors:
                self._check_open()
                submit()
                self._then(take)
            self._then(settle)

    def _limit(self, limit_s: float | None) -> None:
        """Have the reducer wait so long for vectors that are submitted from now on."""
        if limit_s is not None and limit_s != self._limit_s:
            self._limit_s = limit_s
            if self._set_limit is not None:
                self._set_limit(limit_s)

    @torch.inference_mode()
    def _submit(
        self,
        reducer: Reducer,
        tensors: list[torch.Tensor],
        average: bool,
        promise: tuple[Any, list[Outcome]],
        limit_s: float | None,
    ) -> None:
        start, failures = time.perf_counter(), list[Exception]()
        work, outcomes = promise

        def finish(tensor: torch.Tensor, flat: torch.Tensor) -> None:
            try:
                outcomes.append(self._finish(reducer, tensor, flat, average))
            except Exception as error:  # told when all tensors are settled
                failures.append(error)

        flats = [self._flat(tensor) for tensor in tensors]
        self._submit_all(
            [
                (
                    functools.partial(_give, reducer, tensor, flat),
                    functools.partial(finish, tensor, flat),
                )
                for tensor, flat in zip(tensors, flats, strict=True)
            ],
            lambda: self._settle(work, lambda: self._sums_are_there(start, tensors, failures)),
            limit_s,
        )

    def _flat(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the values of a tensor as binary32 in one piece: itself, or a buffer."""
        if tensor.dtype == torch.float32 and tensor.is_contiguous() and not tensor.is_neg():
            return tensor.view(-1)
        flat = self._buffers.take(tensor.numel())
        flat.view(tensor.shape).copy_(tensor)
        return flat

    @torch.inference_mode()
    def _finish(self, reducer: Reducer, tensor: torch.Tensor, flat: torch.Tensor, average: bool) -> Outcome:
        way, outcome = self._finished(reducer, lambda gloo: gloo.allreduce([flat], sum_options()))
        self.record.add(outcome)
        self._by_bytes[way] += 4 * flat.numel()
        if average:  # a sum that lacks workers is as large as that of all
            flat.div_(self._job.world_size)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))
            self._buffers.give(flat)
        return outcome

    def _finished(self, reducer: Reducer | Carrier, by_gloo: Callable[[Any], Any]) -> tuple[str, Outcome]:
        """Wait for the next vector, or do `by_gloo` what the network could not; say by which way it went, and
        who is in it.
        """
        workers = self._job.world_size
        try:
            return self._job.transport, reducer.finish() or Outcome.whole(workers)  # a user's may say nothing
        except NotFiniteError as error:
            if self._job.strict_finite or isinstance(error, UnheardError):
                raise  # gloo needs all of them
            self._do_exactly(by_gloo)
        except PartMissingError:
            self._do_exactly(by_gloo)
        return GLOO, Outcome.whole(workers)

    def _do_exactly(self, by_gloo: Callable[[Any], Any]) -> None:
        """Have gloo do what the network has no integers for, or lacks workers of. All workers do, at this
        place of the order: the vote or the result that told one of them told all. The backend is this
        thread's own, so that nothing of the script's comes between.
        """
        try:
            exact = self._new_exact()
            exact._set_default_timeout(timedelta(seconds=self._limit_s))
            by_gloo(exact).wait()
        except RuntimeError as error:
            raise self._explained(error) from error

    def _sums_are_there(self, start: float, tensors: list[torch.Tensor], failures: list[Exception]) -> None:
        if failures:
            raise failures[0]
        self._count(start, tensors)

    def _count(self, start: float, tensors: list[torch.Tensor]) -> None:
        size_bytes = sum(t.numel() * t.element_size() for t in tensors)
        self._statistics.add(start, time.perf_counter(), size_bytes)
        self._job.board.add_summed(size_bytes)

    # ---- the ring ----

    def _start_ring(self, tensors: list[torch.Tensor], limit_s: float | None) -> list[Any]:
        """Starts gloo's all-reduce of each tensor, at once and on the caller's thread: gloo pairs them up by
        their order.
        """
        return [self._gloo.allreduce([tensor], sum_options(limit_s)) for tensor in tensors]

    @torch.inference_mode()
    def _finish_ring(
        self,
        works: list[Any],
        start: float,
        tensors: list[torch.Tensor],
        average: bool,
        outcomes: list[Outcome],
    ) -> None:
        """Wait for them on the reducer's thread. Not by a callback: gloo's threads must not run Python while
        the interpreter ends.
        """
        try:
            for work in works:
                work.wait()
            self._by_bytes[GLOO] += _size_bytes(tensors)
        except RuntimeError as error:
            raise self._explained(error) from error
        for tensor in tensors:
            if average:
                tensor.div_(self._job.world_size)
            outcomes.append(Outcome.whole(self._job.world_size))  # gloo has the sum of all, or none
            self.record.add(outcomes[-1])
        self._count(start, tensors)

    def _explained(self, error: Exception) -> Exception:
        deadline = time.monotonic() + _BOARD_WAIT_S
        missing = self._job.board.missing()
        while not missing and time.monotonic() < deadline:
            time.sleep(0.01)
            missing = self._job.board.missing()
        who = "; ".join(str(peer) for peer in missing) or "nobody has ended"
        return RuntimeError(f"job {self._job.job_id}: {who} ({error})")

    def stands_beside_another(self) -> None:
        """The script has another group, whose traffic and waiting are not seen here: this one's timeline is
        no bound's.
        """
        self._sees_all = False

    def _write_statistics(self) -> None:
        counters = self._reducer.counters() if self._reducer else {}
        self._job.write_stats(
            {
                "rank": self._job.rank,
                "transport": self._job.transport,
                "allreduce": self._statistics.summary(),
                "bytes_by": self._by_bytes + ledger.summed() + Counter({GLOO: native.by_gloo_bytes()}),
                "groups": ledger.rows(),
                "timeline": self._timeline.summary() if self._timeline and self._sees_all else None,
                **({"delays": delays} if (delays := stragglers.summary()) else {}),
                **self.record.summary(),
                **ledger.counted(counters),
            }
        )


def _size_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
