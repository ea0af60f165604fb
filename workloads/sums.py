"""Sum a worker process's vectors, and run the other collectives that the network carries, in the order of the
script's calls and on one thread per process group.

The compiled backend (workloads/native/backend.cpp) receives torch's calls and passes vectors here.
workloads/backend.py makes one `Sums` for each process group whose gradients the network, a server or the ring
sums.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch

from testbed.wire.endpoint import Event
from testbed.wire.transports import GLOO
from workloads import call_circuits, crossovers, groups, stragglers
from workloads.collectives import floats_of, sum_options
from workloads.job_env import Board, JobEnv
from workloads.native import build
from workloads.outcome import Outcome
from workloads.quantiser import NotFiniteError, PartMissingError, UnheardError
from workloads.reducers import InNetwork, Reducer, reducer_for
from workloads.timeline import Timeline

native: Any = build.load()
ledger = groups.Ledger()  # of groups that the script makes in addition to the job's own

_END_TIMEOUT_S = 5.0
# collectives that gloo must repeat if a result lacks one worker's part
_OF_ALL = ("all_gather", "all_reduce of int64", "broadcast")
# how long to wait for the board to name the worker that ended: the launcher records an exit within
# milliseconds, if it gets a core, but gloo may notice the closed connection first
_BOARD_WAIT_S = 5.0


def carried(workers: int, is_shaped: bool) -> dict[str, list[tuple[int, int]]]:
    """Return, for each collective, the ranges of sizes in bytes (first, last, both included) that the network
    carries.

    The ranges were measured at some numbers of workers (workloads/crossovers.py). Those of the largest
    measured number up to `workers` apply; below the smallest measured number the network carries nothing.
    """
    links, sizes = "shaped" if is_shaped else "unshaped", {}
    for collective, by_links in crossovers.CARRIED.items():
        by_workers = by_links[links]
        measured = max((count for count in by_workers if count <= workers), default=0)
        sizes[collective] = [
            (least, sys.maxsize if most is None else most) for least, most in by_workers.get(measured, ())
        ]
    return sizes


class Sums:
    """The sums of a worker process, in the order of the script's calls: by the job's reducer, or by gloo's
    ring where the job has none.

    It lives as long as the process. Process groups use it one after the other (`begin`, `shutdown`). The
    compiled backend calls its public members.
    """

    def __init__(self, job: JobEnv, timeout_s: float, is_whole: bool = True) -> None:
        """`timeout_s` bounds the wait for a result. `is_whole`: these are the sums of the job's own group,
        not of a further group.
        """
        self._job = job
        self._reducer: Reducer | None = reducer_for(job, timeout_s)
        self._limit_s = timeout_s  # the time limit of the vector submitted last
        self._set_limit = getattr(self._reducer, "set_timeout", None)  # optional in a user's reducer
        self.before_sum = stragglers.before_sum if stragglers.is_installed() else None
        uses_line = type(self._reducer) is InNetwork  # not a subclass: a user's may work differently
        # collectives other than sums; all workers have the same settings, with the rate of their slowest link
        endpoint = job.endpoint if uses_line else None
        self.carried = carried(job.world_size, bool(endpoint.rate_mbps)) if endpoint else {}
        if endpoint and endpoint.spare_bits:  # results may lack late workers
            self.carried = {name: self.carried[name] for name in self.carried if name not in _OF_ALL}
        self.sums_in_lanes = self._reducer is not None
        self.rounds = uses_line
        self._timeline = Timeline() if is_whole else None
        self.course = native.Course(*job.board.course_addresses(), self._timeline)
        self._sees_all = True  # the timeline has every collective of the script
        self.line = native.Line(job.world_size, job.board.summed_address())
        if uses_line:
            reducer: Any = self._reducer
            self.line.sum_by(*reducer.endpoint())
        self.record = self.line.record  # which workers contributed to this worker's sums
        self._by_bytes: Counter[str] = Counter()  # bytes summed through Python, by way
        self._thread: threading.Thread | None = None
        self._gloo: Any = None
        self._new_exact: Any = None
        atexit.register(self._end)

    @property
    def board(self) -> Board:
        """Return the board of the job's workers, as mapped in this process."""
        return self._job.board

    def begin(self, gloo: Any, exact: Callable[[], Any], order: Any = None) -> None:
        """Start the sum thread for a new process group of all workers.

        `gloo` carries the group's other collectives. `exact` makes a second gloo backend, for the sum thread.
        `order` compares the workers' calls (None: no comparison).
        """
        if order is not None and isinstance(self._reducer, InNetwork):
            self._reducer.set_check(order.check)
        self._gloo, self._new_exact = gloo, functools.cache(exact)
        self.line.open()
        self._thread = threading.Thread(target=self._work, name="inc-allreduce", daemon=True)
        self._thread.start()
        self._job.board.join()

    def start(
        self, work: Any, tensors: list[torch.Tensor], average: bool, limit_s: float | None = None
    ) -> None:
        """Start a sum that the compiled `line` does not carry; `work.done()` or `work.fail(text)` reports its
        end.

        When the sum is complete, `work.outcomes` has the contributors of each tensor's sum. Without a result
        for `limit_s` seconds the work fails.
        """
        self.line.require_open()
        stragglers.before_sum()
        if self._reducer:
            self._submit(self._reducer, work, tensors, average, limit_s)
        else:
            start = time.perf_counter()
            works = self._start_ring(tensors, limit_s)
            self.line.put(
                lambda: self._settle(work, lambda: self._finish_ring(work, works, start, tensors, average))
            )

    # ---- the thread of the reducer ----

    @property
    def is_up(self) -> bool:
        """Return whether a process group uses these sums now."""
        return self._thread is not None and self._thread.is_alive()

    def shutdown(self) -> None:
        """End the thread after the sums that were requested before, and write the statistics. Torch calls
        this when the group is destroyed, or when the process ends.
        """
        if self._thread is None or not self._thread.is_alive():
            return
        self.line.close()
        self._thread.join(_END_TIMEOUT_S)
        native.drain(_END_TIMEOUT_S)  # runs the callbacks of the last sums
        if not self._thread.is_alive():  # a live thread may still use both
            self._gloo = self._new_exact = None
        try:
            self._write_statistics()
        except OSError as error:  # the training itself is done
            print(f"the result lacks this worker's statistics: {error.strerror}", file=sys.stderr)
        self._job.board.leave()

    def _end(self) -> None:
        try:
            self.shutdown()
        finally:
            if self.is_up:  # the thread still waits for other workers
                self.line.abandon()

    def _work(self) -> None:
        while True:
            try:
                task = self.line.next()
            except Exception as error:  # out of memory or threads: fail the waiting works
                self.line.stop(_words(error))
                continue
            if task is None:
                return
            if isinstance(task, native.Vector):
                self._resolve(task)
            else:
                task()
            del task  # frees its tensors: the next task may come much later

    @torch.inference_mode()
    def _resolve(self, vector: Any) -> None:
        """Handle a vector of `line` that has no sum: replace it by gloo's, or fail it. A vector that only
        waits stays under way.
        """
        reducer: Any = self._reducer
        try:
            error = reducer.failure_of(vector)
            if error is not None:
                self._replace(error, vector.settle_by, vector.limit_s)
        except Exception as error:  # every failure goes to the work that waits for it
            why = _words(error)
            vector.fail(why)
            if reducer.is_broken() or vector.event == Event.QUIET:  # the vector is still under way
                self.line.stop(why)

    def _settle(self, work: Any, finish: Callable[[], None]) -> None:
        try:
            finish()
        except Exception as error:  # every failure goes to the work that waits for it
            work.fail(_words(error))
        else:
            work.done()

    def _submit_all(
        self,
        vectors: Sequence[tuple[Callable[[], None], Callable[[], None]]],
        settle: Callable[[], None],
        limit_s: float | None,
    ) -> None:
        """Submit vectors, each given as a function that submits it and one that finishes it, and queue
        `settle` after them.

        The caller's thread submits them, not the sum thread, so that vectors follow each other without a
        pause. Each vector has a task of its own, because finishing one may make room for the next.

        If a submission raises, the vectors before it are finished all the same, so that the next call finds
        none of this call's under way.
        """
        with self.line:
            self._limit(limit_s)
            for submit, finish in vectors:
                self.line.require_open()
                submit()
                self.line.put(finish)
            self.line.put(settle)

    def _limit(self, limit_s: float | None) -> None:
        """Set how long the reducer waits for a result, in seconds, for vectors submitted from now on."""
        if limit_s is not None and limit_s != self._limit_s:
            self._limit_s = limit_s
            if self._set_limit is not None:
                self._set_limit(limit_s)

    @torch.inference_mode()
    def _submit(
        self,
        reducer: Reducer,
        work: Any,
        tensors: list[torch.Tensor],
        average: bool,
        limit_s: float | None,
    ) -> None:
        start, failures = time.perf_counter(), list[Exception]()

        def finish(tensor: torch.Tensor, flat: torch.Tensor) -> None:
            try:
                work.add(self._finish(reducer, tensor, flat, average))
            except Exception as error:  # raised after all tensors are finished
                failures.append(error)

        flats = [self._flat(tensor) for tensor in tensors]
        self._submit_all(
            [
                (
                    functools.partial(reducer.submit, floats_of(flat)),
                    functools.partial(finish, tensor, flat),
                )
                for tensor, flat in zip(tensors, flats, strict=True)
            ],
            lambda: self._settle(work, lambda: self._conclude(start, tensors, failures)),
            limit_s,
        )

    def _flat(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor's values as a contiguous binary32 vector: the tensor itself where it is that, else
        a buffer of `line`.
        """
        if tensor.dtype == torch.float32 and tensor.is_contiguous() and not tensor.is_neg():
            return tensor.view(-1)
        flat: torch.Tensor = self.line.buffers.take(tensor.numel())
        flat.view(tensor.shape).copy_(tensor)
        return flat

    @torch.inference_mode()
    def _finish(self, reducer: Reducer, tensor: torch.Tensor, flat: torch.Tensor, average: bool) -> Outcome:
        way, outcome = self._finished(reducer, lambda gloo: gloo.allreduce([flat], sum_options()).wait())
        self.record.add(outcome)
        self._by_bytes[way] += 4 * flat.numel()
        if average:  # a sum that lacks workers is already scaled to all of them
            flat.div_(self._job.world_size)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))
            self.line.buffers.give(flat)
        return outcome

    def _finished(self, reducer: Reducer, by_gloo: Callable[[Any], None]) -> tuple[str, Outcome]:
        """Wait for the next vector's result, or call `by_gloo` where the network has none. Return the way by
        which it was summed (the job's transport, or gloo) and the contributors.
        """

        workers = self._job.world_size
        try:  # a user's reducer may return None
            return self._job.transport, reducer.finish() or Outcome.whole(workers)
        except (NotFiniteError, PartMissingError) as error:
            self._replace(error, by_gloo, self._limit_s)
        return GLOO, Outcome.whole(workers)

    def _replace(self, error: Exception, by_gloo: Callable[[Any], None], limit_s: float) -> None:
        """Let gloo repeat a collective for which the network has no integers or a worker's part is missing;
        raise every other error.

        All workers do this at the same position in the order of sums, because the vote or the result that
        showed it to one worker showed it to all. The gloo backend belongs to this thread alone, so that no
        collective of the script comes in between.
        """
        if not isinstance(error, NotFiniteError | PartMissingError) or isinstance(error, UnheardError):
            raise error  # gloo needs all workers, and others may have a sum already
        if isinstance(error, NotFiniteError) and self._job.strict_finite:
            raise error
        try:
            exact = self._new_exact()
            exact._set_default_timeout(timedelta(seconds=limit_s))
            by_gloo(exact)
        except RuntimeError as error:
            raise self._explained(error) from error

    def _conclude(self, start: float, tensors: list[torch.Tensor], failures: list[Exception]) -> None:
        if failures:
            raise failures[0]
        self._count(start, tensors)

    def _count(self, start: float, tensors: list[torch.Tensor]) -> None:
        self.line.count(start, _size_bytes(tensors))

    # ---- the ring ----

    def _start_ring(self, tensors: list[torch.Tensor], limit_s: float | None) -> list[Any]:
        """Start gloo's all-reduce of each tensor at once and on the caller's thread: gloo pairs the workers'
        calls by their order.
        """
        return [self._gloo.allreduce([tensor], sum_options(limit_s)) for tensor in tensors]

    @torch.inference_mode()
    def _finish_ring(
        self, work: Any, works: list[Any], start: float, tensors: list[torch.Tensor], average: bool
    ) -> None:
        """Wait for gloo's all-reduces on the sum thread. A callback would not do: gloo's threads must not run
        Python while the interpreter ends.
        """
        try:
            for each in works:
                each.wait()
            self._by_bytes[GLOO] += _size_bytes(tensors)
        except RuntimeError as error:
            raise self._explained(error) from error
        for tensor in tensors:
            if average:
                tensor.div_(self._job.world_size)
            whole = Outcome.whole(self._job.world_size)  # gloo sums over all workers or fails
            work.add(whole)
            self.record.add(whole)
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
        """Mark the timeline as incomplete: the script has another group, whose traffic and waiting are not
        measured here, so that no bound can be made from it.
        """
        self._sees_all = False

    def summed(self) -> Counter[str]:
        """Return the bytes summed so far, by way: the job's transport, or gloo."""
        by_line = {self._job.transport: self.line.carried_bytes, GLOO: self.line.replaced_bytes}
        return self._by_bytes + Counter(by_line)

    def _write_statistics(self) -> None:
        counters = self._reducer.counters() if self._reducer else {}
        self._job.write_stats(
            {
                "rank": self._job.rank,
                "transport": self._job.transport,
                "allreduce": self.line.spans(),
                "bytes_by": self.summed() + ledger.summed() + Counter({GLOO: native.by_gloo_bytes()}),
                "groups": [asdict(row) for row in ledger.rows()],
                "timeline": self._timeline.summary() if self._timeline and self._sees_all else None,
                **({"delays": delays.as_statistics()} if (delays := stragglers.summary()) else {}),
                **({"circuits": counts} if (counts := call_circuits.summary()) else {}),
                **self.record.summary(),
                **ledger.counted(counters),
            }
        )


def _words(error: Exception) -> str:
    """Return an error's type and text as one string: a work carries text only."""
    return f"{type(error).__name__}: {error}"


def _size_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
