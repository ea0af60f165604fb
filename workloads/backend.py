"""The torch.distributed backend `inc`: sum and average all-reduce of floats by the job's reducer, everything
else by gloo.

A process group of its own kind rather than a torch Backend, because DDP calls it from C++ and needs the
future of the work. The gloo backend is registered inside it, so that what is not overridden here goes there.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from workloads.job_env import JobEnv
from workloads.outcome import Outcome, Record
from workloads.reducers import Reducer, reducer_for
from workloads.timeline import Timeline

c10d: Any = importlib.import_module(
    "torch._C._distributed_c10d"
)  # torch's stubs of it lack what is used here

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_END_TIMEOUT_S = 5.0
MOST_SPANS = 60_000  # as many as a timeline has rows: what a worker leaves is read by the daemon
# the launcher notices an exit within milliseconds, if it has a core; gloo may notice the closed connection
# before
_BOARD_WAIT_S = 5.0


class Statistics:
    """Spans of time in all-reduce, as [start, end, bytes] in seconds since the first one: the first
    MOST_SPANS of them; those after them are only counted.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[float, float, int]] = []
        self._count, self._bytes = 0, 0
        self._later_s, self._until = 0.0, float("-inf")
        self._lock = threading.Lock()

    def add(self, start: float, end: float, size_bytes: int) -> None:
        with self._lock:
            self._count += 1
            self._bytes += size_bytes
            if len(self._spans) < MOST_SPANS:
                self._spans.append((start, end, size_bytes))
            else:  # they come in the order in which they end
                self._later_s += max(0.0, end - max(start, self._until))
            self._until = max(self._until, end)

    def summary(self) -> dict[str, Any]:
        """Count, bytes, and the time in which at least one all-reduce was running."""
        with self._lock:
            spans, count, size_bytes, later_s = sorted(self._spans), self._count, self._bytes, self._later_s
        busy, until = 0.0, float("-inf")
        for start, end, _ in spans:
            busy += max(0.0, end - max(start, until))
            until = max(until, end)
        zero = spans[0][0] if spans else 0.0
        return {
            "count": count,
            "bytes": size_bytes,
            "busy_s": busy + later_s,
            "spans": [[round(start - zero, 6), round(end - zero, 6), size] for start, end, size in spans],
        }


class PendingSum(c10d.Work):  # type: ignore[misc] # a class that torch gives no type to
    """An all-reduce under way. torch's own work around a future would not raise in `wait`."""

    def __init__(self, future: Future[Any], timeline: Timeline, number: int, outcomes: list[Outcome]) -> None:
        super().__init__()
        self._future, self._timeline, self._number = future, timeline, number
        self.outcomes = outcomes  # of each tensor, once the sum is there: who is in it

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until the sum is there; raise what went wrong."""
        self._timeline.wait(self._number)
        self._future.wait()
        self._timeline.resume(self._number)
        return True

    def is_completed(self) -> bool:
        return self._future.done()

    def get_future(self) -> Future[Any]:
        return self._future


class SeenWork(c10d.Work):  # type: ignore[misc] # a class that torch gives no type to
    """A collective of gloo's, whose waiting goes into the timeline."""

    def __init__(self, work: Any, timeline: Timeline, number: int) -> None:
        super().__init__()
        self._work, self._timeline, self._number = work, timeline, number

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait as gloo's work does."""
        self._timeline.wait(self._number)
        done: bool = self._work.wait() if timeout is None else self._work.wait(timeout)
        self._timeline.is_there(self._number)
        self._timeline.resume(self._number)
        return done

    def is_completed(self) -> bool:
        done: bool = self._work.is_completed()
        return done

    def is_success(self) -> bool:
        done: bool = self._work.is_success()
        return done

    def get_future(self) -> Future[Any]:
        future: Future[Any] = self._work.get_future()
        return future

    def result(self) -> Any:
        return self._work.result()


def _by_gloo(name: str, seen: bool) -> Callable[..., Any]:
    def collective(self: IncProcessGroup, *arguments: Any, **options: Any) -> Any:
        if not seen or self._job is None:
            return getattr(self._gloo, name)(*arguments, **options)
        number = self._timeline.ask(_size_bytes(arguments[0] if arguments else None), summed=False)
        return SeenWork(getattr(self._gloo, name)(*arguments, **options), self._timeline, number)

    collective.__name__ = name
    return collective


def _size_bytes(tensors: Any) -> int:
    """Return the bytes of a tensor, or of a list of tensors or of such lists; 0 for anything else."""
    if isinstance(tensors, torch.Tensor):
        return int(tensors.numel() * tensors.element_size())
    return sum(map(_size_bytes, tensors)) if isinstance(tensors, list | tuple) else 0


class IncProcessGroup(c10d.ProcessGroup):  # type: ignore[misc] # a class that torch gives no type to
    """A process group whose float sums go through the job's reducer, in the order in which they are asked
    for.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, job: JobEnv | None) -> None:
        super().__init__(rank, size)  # the form with a store is not for Python subclasses
        self._gloo = c10d.ProcessGroupGloo(c10d.PrefixStore("inc-gloo", store), rank, size, timeout)
        self._register_backend(torch.device("cpu"), c10d.ProcessGroup.BackendType.GLOO, self._gloo)
        self._set_default_backend(c10d.ProcessGroup.BackendType.GLOO)
        self._job = job
        self._reducer: Reducer | None = reducer_for(job, timeout.total_seconds()) if job else None
        self._statistics = Statistics()
        self._timeline = Timeline()
        self.record = Record()  # of who was in this worker's sums
        self._sees_all = True  # what its script asks for and waits for
        self._backward = -1  # the backward pass whose end is awaited for the timeline
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._order = threading.Lock()  # vectors are submitted, and waited for, in one order
        self._thread = threading.Thread(target=self._work, name="inc-allreduce", daemon=True)
        if job:
            self._thread.start()
            atexit.register(self.shutdown)

    def getBackendName(self) -> str:  # torch's name
        return "inc"

    def allreduce(self, tensors: list[torch.Tensor] | torch.Tensor, opts: Any = None) -> Any:
        """Sum or average floats by the reducer; other operations and types go by gloo."""
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        operation = getattr(opts, "reduceOp", opts or dist.ReduceOp.SUM)
        average = operation == dist.ReduceOp.AVG
        ours = (average or operation == dist.ReduceOp.SUM) and all(
            t.dtype in _FLOATS and not t.is_sparse for t in tensors
        )
        if self._job is None or not ours:
            return self._allreduce_by_gloo(tensors, opts, operation)
        pending, outcomes = Future[Any](), list[Outcome]()
        if self._reducer:
            number = self._timeline.ask(4 * sum(tensor.numel() for tensor in tensors), summed=True)
            self._submit(self._reducer, tensors, average, (pending, outcomes), number)
        else:
            start = time.perf_counter()
            number = self._timeline.ask(_size_bytes(tensors), summed=True)
            works = self._start_ring(tensors)
            self._tasks.put(
                lambda: self._settle(
                    pending,
                    lambda: self._finish_ring(works, start, tensors, average, outcomes),
                    tensors,
                    number,
                )
            )
        self._see_backward()
        # a C++ waiter sees an exception only if it was raised inside `then`
        return PendingSum(pending.then(_unwrap), self._timeline, number, outcomes)

    def _allreduce_by_gloo(self, tensors: list[torch.Tensor], opts: Any, operation: Any) -> Any:
        number = self._timeline.ask(_size_bytes(tensors), summed=False) if self._job else -1
        several = len(tensors) > 1
        work = (
            self._gloo.allreduce_coalesced(tensors, opts)
            if several
            else self._gloo.allreduce(tensors, _options(operation))
        )
        return SeenWork(work, self._timeline, number) if self._job else work

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
            self._timeline.wait(self._timeline.last)
            autograd.queue_callback(lambda: self._timeline.resume(self._timeline.last))

        autograd.queue_callback(at_end)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    # ---- the thread of the reducer ----

    @property
    def is_up(self) -> bool:
        """Return whether the reducer's thread still serves it."""
        return self._thread.is_alive()

    def shutdown(self) -> None:
        """Ends the reducer's thread after what was asked of it, and leaves the statistics. Called by torch,
        or at the process's end.
        """
        if self._thread.is_alive():
            self._tasks.put(None)
            self._thread.join(_END_TIMEOUT_S)
            try:
                self._write_statistics()
            except OSError as error:  # the training itself is done
                print(f"the result lacks this worker's statistics: {error.strerror}", file=sys.stderr)
            if self._job:
                self._job.board.leave()

    def _work(self) -> None:
        while task := self._tasks.get():
            task()

    def _settle(
        self, pending: Future[Any], work: Callable[[], None], tensors: list[torch.Tensor], number: int
    ) -> None:
        try:
            work()
        except Exception as error:  # every failure belongs to the one who waits
            pending.set_result(error)
        else:
            self._timeline.is_there(number)
            pending.set_result(tensors)

    @torch.no_grad()
    def _submit(
        self,
        reducer: Reducer,
        tensors: list[torch.Tensor],
        average: bool,
        promise: tuple[Future[Any], list[Outcome]],
        number: int,
    ) -> None:
        """Submit here and not on the thread, so that vectors follow each other without a pause. Each gets a
        task of its own, which may make room for the next.
        """
        start, failures = time.perf_counter(), list[Exception]()
        pending, outcomes = promise

        def finish(tensor: torch.Tensor, flat: torch.Tensor) -> None:
            try:
                outcomes.append(self._finish(reducer, tensor, flat, average))
            except Exception as error:  # told when all tensors are settled
                failures.append(error)

        with self._order:
            for tensor in tensors:
                in_place = tensor.dtype == torch.float32 and tensor.is_contiguous()
                flat = (tensor if in_place else tensor.to(torch.float32).contiguous()).view(-1)
                reducer.submit(flat.numpy())
                self._tasks.put(functools.partial(finish, tensor, flat))
            self._tasks.put(
                lambda: self._settle(
                    pending, lambda: self._sums_are_there(start, tensors, failures), tensors, number
                )
            )

    @torch.no_grad()
    def _finish(self, reducer: Reducer, tensor: torch.Tensor, flat: torch.Tensor, average: bool) -> Outcome:
        outcome = reducer.finish() or Outcome.whole(self.size())  # a user's own may say nothing
        self.record.add(outcome)
        if average:  # a sum that lacks workers is as large as that of all
            flat.div_(self.size())
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))
        return outcome

    def _sums_are_there(self, start: float, tensors: list[torch.Tensor], failures: list[Exception]) -> None:
        if failures:
            raise failures[0]
        self._count(start, tensors)

    def _count(self, start: float, tensors: list[torch.Tensor]) -> None:
        size_bytes = sum(t.numel() * t.element_size() for t in tensors)
        self._statistics.add(start, time.perf_counter(), size_bytes)
        if self._job:
            self._job.board.add_summed(size_bytes)

    # ---- the ring ----

    def _start_ring(self, tensors: list[torch.Tensor]) -> list[Any]:
        """Starts gloo's all-reduce of each tensor, at once and on the caller's thread: gloo pairs them up by
        their order.
        """
        return [self._gloo.allreduce([tensor], _options(c10d.ReduceOp.SUM)) for tensor in tensors]

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
        except RuntimeError as error:
            raise self._explained(error) from error
        for tensor in tensors:
            if average:
                tensor.div_(self.size())
            outcomes.append(Outcome.whole(self.size()))  # gloo has the sum of all, or none
            self.record.add(outcomes[-1])
        self._count(start, tensors)

    def _explained(self, error: Exception) -> Exception:
        if self._job is None:
            return error
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
        if self._job is None:
            return
        counters = self._reducer.counters() if self._reducer else {}
        self._job.write_stats(
            {
                "rank": self._job.rank,
                "transport": self._job.transport,
                "allreduce": self._statistics.summary(),
                "timeline": self._timeline.summary() if self._sees_all else None,
                **self.record.summary(),
                **counters,
            }
        )


# Each overridden, though gloo is registered within: torch calls what a Python subclass does not override
# while it holds the interpreter's lock (WORK_OVERRIDE in PyProcessGroup.hpp of torch 2.13), and waits for a
# mutex of gloo whose holder may wait for that lock. Jobs hung so.
for _name in (
    *("broadcast", "reduce", "allgather", "_allgather_base", "allgather_coalesced", "gather", "scatter"),
    *("reduce_scatter", "_reduce_scatter_base", "alltoall", "alltoall_base", "barrier"),
):
    setattr(IncProcessGroup, _name, _by_gloo(_name, seen=True))
for _name in ("send", "recv", "recv_anysource", "monitored_barrier"):
    setattr(IncProcessGroup, _name, _by_gloo(_name, seen=False))


def _options(operation: Any) -> Any:
    options = c10d.AllreduceOptions()
    options.reduceOp = operation
    return options


def _unwrap(pending: Future[Any]) -> Any:
    value = pending.value()
    if isinstance(value, Exception):
        raise value
    return value


_world: IncProcessGroup | None = None


def create(store: Any, rank: int, size: int, timeout: timedelta) -> IncProcessGroup:
    """The process group for `init_process_group("inc")`. Raises NotInJobError outside a job.

    The first group of a process is the job's; groups made later, of some of the workers, use gloo for
    everything.
    """
    global _world
    job = JobEnv.from_environ()
    if size != job.world_size or (_world and _world.is_up):
        if _world:
            _world.stands_beside_another()
        return IncProcessGroup(store, rank, size, timeout, None)
    if _world:
        raise RuntimeError(
            f"job {job.job_id}: its process group was destroyed; aggregators serve one group in the life of "
            f"a worker process"
        )
    _world = IncProcessGroup(store, rank, size, timeout, job)
    return _world
