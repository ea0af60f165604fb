"""The torch.distributed backend `inc`: sums and averages of floats by the job's reducer, large gathered,
broadcast and scattered tensors as well where it is the network's, everything else by gloo.

What torch calls is compiled (workloads/native/backend.cpp; docs/backend.md says why); it hands sums to `Sums`
here, which has a thread of its own for them.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from testbed.contract.transports import GLOO, PACKETS
from workloads import groups
from workloads.collectives import Broadcast, Carrier, Gathered, Scattered, Vector, c10d, sum_options
from workloads.job_env import Board, JobEnv, Part
from workloads.meeting import check_size
from workloads.native import build
from workloads.outcome import Outcome, Record
from workloads.quantiser import NotFiniteError, PartMissingError, UnheardError
from workloads.reducers import InNetwork, Reducer, reducer_for
from workloads.timeline import Timeline

_native: Any = build.load()

_END_TIMEOUT_S = 5.0
LEAST_CARRIED_BYTES = 1 << 16  # docs/backend.md
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


class Sums:
    """The sums of a worker process, in the order in which they are asked for: by the job's reducer, or gloo's
    ring where the job has none.

    It lasts as long as the process; process groups come and go, one at a time (`begin`, `shutdown`). The
    compiled backend calls what is public here.
    """

    def __init__(self, job: JobEnv, timeout_s: float) -> None:
        self._job = job
        self._reducer: Reducer | None = reducer_for(job, timeout_s)
        # bytes on the side of all workers from which other collectives than sums are carried; -1: none is
        self.carried_from = LEAST_CARRIED_BYTES if hasattr(self._reducer, "submit_gathered") else -1
        self._statistics = Statistics()
        self._timeline = Timeline()
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

    def begin(self, gloo: Any, exact: Callable[[], Any]) -> None:
        """A process group of all workers begins: what it has by gloo, and what makes another gloo backend for
        the thread of sums.
        """
        self._gloo, self._new_exact = gloo, functools.cache(exact)
        self._is_open = True
        self._thread = threading.Thread(target=self._work, name="inc-allreduce", daemon=True)
        self._thread.start()
        self._job.board.join()

    def start(self, work: Any, tensors: list[torch.Tensor], average: bool) -> int:
        """Begin a sum, and return its number in the timeline. `work.done()` or `work.fail(text)` follows;
        `work.outcomes` says of each tensor, once the sum is there, who is in it.
        """
        self._check_open()
        work.outcomes = outcomes = list[Outcome]()
        self._job.board.asks()
        if self._reducer:
            number = self._timeline.ask(4 * sum(tensor.numel() for tensor in tensors), summed=True)
            self._submit(self._reducer, tensors, average, (work, outcomes), number)
        else:
            start = time.perf_counter()
            number = self._timeline.ask(_size_bytes(tensors), summed=True)
            works = self._start_ring(tensors)
            self._then(
                lambda: self._settle(
                    work, lambda: self._finish_ring(works, start, tensors, average, outcomes), number
                )
            )
        self._see_backward()
        return number

    # ---- the timeline ----

    def ask(self, size_bytes: int) -> int:
        """Return the number of a collective of gloo's."""
        self._job.board.asks()
        return self._timeline.ask(size_bytes, summed=False)

    def wait(self, number: int) -> None:
        """The script waits for this collective from now on."""
        self._job.board.waits()
        self._timeline.wait(number)

    def resume(self, number: int, summed: bool) -> None:
        """The script goes on. When a sum was there is known by then."""
        if not summed:
            self._timeline.is_there(number)
        self._timeline.resume(number)
        self._job.board.resumes()

    # ---- other collectives, by a reducer that gathers ----

    def gather(
        self, work: Any, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], rank: int
    ) -> int:
        """Begin to gather each of `inputs` from all workers, into a tensor of each worker or one for all;
        else as `start`.
        """
        workers = self._job.world_size
        return self._carry(
            work, lambda: [Gathered(*pair, rank, workers) for pair in zip(outputs, inputs, strict=True)]
        )

    def broadcast(self, work: Any, tensors: list[torch.Tensor], rank: int, root: int) -> int:
        """Begin to broadcast from the worker `root`; else as `start`."""
        return self._carry(work, lambda: [Broadcast(tensor, rank, root) for tensor in tensors])

    def scatter(
        self,
        work: Any,
        outputs: list[torch.Tensor],
        inputs: list[list[torch.Tensor]],
        rank: int,
        average: bool,
    ) -> int:
        """Begin to sum `inputs`, a tensor for each worker or one for all; each worker gets its part. Else as
        `start`.
        """
        workers = self._job.world_size
        return self._carry(
            work,
            lambda: [Scattered(*pair, rank, workers, average) for pair in zip(outputs, inputs, strict=True)],
        )

    @torch.no_grad()
    def _carry(self, work: Any, made: Callable[[], Sequence[Vector]]) -> int:
        self._check_open()
        carrier: Any = self._reducer
        work.outcomes = outcomes = list[Outcome]()
        failures = list[Exception]()
        vectors = made()
        is_sum = any(vector.floats is not None for vector in vectors)
        self._job.board.asks()
        number = self._timeline.ask(sum(vector.size_bytes for vector in vectors), summed=is_sum)

        def settled() -> None:
            if failures:
                raise failures[0]

        with self._order:
            for vector in vectors:
                vector.submit(carrier)
                self._then(functools.partial(self._take, carrier, vector, outcomes, failures))
            self._then(lambda: self._settle(work, settled, number))
        self._see_backward()
        return number

    @torch.no_grad()
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
            self.wait(self._timeline.last)
            autograd.queue_callback(lambda: self.resume(self._timeline.last, True))

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
        _native.drain(_END_TIMEOUT_S)  # callbacks of the last sums
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

    def _settle(self, work: Any, finish: Callable[[], None], number: int) -> None:
        try:
            finish()
        except Exception as error:  # every failure belongs to the one who waits
            work.fail(f"{type(error).__name__}: {error}")
        else:
            self._timeline.is_there(number)
            work.done()

    @torch.no_grad()
    def _submit(
        self,
        reducer: Reducer,
        tensors: list[torch.Tensor],
        average: bool,
        promise: tuple[Any, list[Outcome]],
        number: int,
    ) -> None:
        """Submit here and not on the thread, so that vectors follow each other without a pause. Each gets a
        task of its own, which may make room for the next.
        """
        start, failures = time.perf_counter(), list[Exception]()
        work, outcomes = promise

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
                self._then(functools.partial(finish, tensor, flat))
            self._then(
                lambda: self._settle(work, lambda: self._sums_are_there(start, tensors, failures), number)
            )

    @torch.no_grad()
    def _finish(self, reducer: Reducer, tensor: torch.Tensor, flat: torch.Tensor, average: bool) -> Outcome:
        way, outcome = self._finished(reducer, lambda gloo: gloo.allreduce([flat], sum_options()))
        self.record.add(outcome)
        self._by_bytes[way] += 4 * flat.numel()
        if average:  # a sum that lacks workers is as large as that of all
            flat.div_(self._job.world_size)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))
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
            by_gloo(self._new_exact()).wait()
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

    def _start_ring(self, tensors: list[torch.Tensor]) -> list[Any]:
        """Starts gloo's all-reduce of each tensor, at once and on the caller's thread: gloo pairs them up by
        their order.
        """
        return [self._gloo.allreduce([tensor], sum_options()) for tensor in tensors]

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
                "bytes_by": self._by_bytes + _ledger.summed() + Counter({GLOO: _native.by_gloo_bytes()}),
                "groups": _ledger.rows(),
                "timeline": self._timeline.summary() if self._sees_all else None,
                **self.record.summary(),
                **_ledger.counted(counters),
            }
        )


class GroupSums(Sums):
    """The sums of a group that the script made beside its first, by trees of the group's own."""

    def __init__(self, membership: groups.Membership, timeout_s: float) -> None:
        assert membership.job is not None
        try:
            super().__init__(membership.job, timeout_s)
        finally:
            for name in ("ring_fd", "wake_fd"):  # they are mapped, and go with that
                os.close(membership.job.endpoint[name])
        self._key = membership.key

    def shutdown(self) -> None:
        """End it, and let go of its places, of which other members may need something still: they are free
        when all have left. Called by torch when the group is destroyed, or at the process's end.
        """
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        super().shutdown()
        if thread.is_alive():  # it waits for others still
            return
        atexit.unregister(self.shutdown)
        if isinstance(self._reducer, InNetwork):
            self._reducer.close()
            assert isinstance(self._job.board, Part)
            self._job.board.close()
            assert self._job.groups is not None
            groups.desk(self._job.groups).leave(self._key)

    @property
    def summed(self) -> Counter[str]:
        """Return the bytes that it summed, by the way that they went; it is counted on."""
        return self._by_bytes

    def _write_statistics(self) -> None:
        """Leave it to the job's own group to tell what it summed."""
        if self._reducer:
            _ledger.count(self._reducer.counters())


def _size_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


_sums: Sums | None = None
_ledger = groups.Ledger()  # of the groups beside it


def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """The backend for `init_process_group("inc")`. Raises NotInJobError outside a job, WorldSizeError for a
    world of another size than the job.

    The first group of all workers is the job's; after its end the next one of all workers takes its place.
    Groups made while any of its workers has it, and those of some of the workers, sum by trees of their own
    where the testbed admits them, else by gloo.
    """
    global _sums
    job = JobEnv.from_environ()
    if _sums:  # the process has one mapping of the board
        job = dataclasses.replace(job, board=_sums.board)
    # a thread of sums has a connection of its own to the store: who waits by one keeps it from all others,
    # and threads of several groups may wait for each other's workers
    apart = store.clone()

    def gloo(name: str) -> Any:
        return c10d.ProcessGroupGloo(c10d.PrefixStore(name, store), rank, size, timeout)

    def exact() -> Any:
        return c10d.ProcessGroupGloo(c10d.PrefixStore("inc-exact", apart), rank, size, timeout)

    if not dist.is_initialized():  # the script's own, of all workers
        check_size(job, size)
    is_up = bool(_sums and _sums.is_up)
    may_be_first = size == job.world_size and not is_up
    if may_be_first:
        job.board.meet()
    try:
        common = gloo("inc-gloo")
        if size != job.world_size or _any(common, is_up):
            if may_be_first:
                job.board.part()
            if _sums:
                _sums.stands_beside_another()
            return _beside(job, common, exact, rank, timeout)
        if _sums is None:
            _sums = Sums(job, timeout.total_seconds())
    except BaseException:
        if may_be_first:
            job.board.part()
        raise
    _sums.begin(common, exact)
    return _native.IncBackend(common, _sums)


def _any(gloo: Any, mine: bool) -> bool:
    """Return whether any worker of the group says yes: each knows of its own groups alone, and all must take
    the same for the first.
    """
    word = torch.tensor([int(mine)])
    gloo.allreduce([word], sum_options()).wait()
    return bool(word)


def _beside(job: JobEnv, common: Any, exact: Callable[[], Any], member: int, timeout: timedelta) -> Any:
    """Return the backend of a group beside the first."""
    tally = _native.Tally()
    if job.transport != PACKETS or common.size() < 2:
        return _native.IncBackend(common, None, tally)
    membership = groups.enter(job, common, member, common.size())
    if membership.job is None:
        _ledger.add(membership.ranks, Counter(), tally)
        return _native.IncBackend(common, None, tally)
    try:
        sums = GroupSums(membership, timeout.total_seconds())
    except BaseException:  # the others are told by this worker's end, and its places are free by then
        assert job.groups is not None
        groups.desk(job.groups).leave(membership.key)
        raise
    _ledger.add(membership.ranks, sums.summed, tally)
    sums.begin(common, exact)
    return _native.IncBackend(common, sums, tally)


def record() -> Record:
    """Return the account of who was in this worker's sums so far."""
    return _sums.record if _sums else Record()


def stands_beside_another() -> None:
    """The script has a process group of another kind: the sums' timeline is no bound's."""
    if _sums:
        _sums.stands_beside_another()
