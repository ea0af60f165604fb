"""The sums of a worker process, and the other collectives that the network carries: in the order in which
they are asked for, on a thread of their own.

What torch calls is compiled and hands them over (workloads/native/backend.cpp); workloads/backend.py makes
one for each process group that has any.
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
from workloads import crossovers, groups, stragglers
from workloads.collectives import floats_of, sum_options
from workloads.job_env import Board, JobEnv
from workloads.native import build
from workloads.outcome import Outcome
from workloads.quantiser import NotFiniteError, PartMissingError, UnheardError
from workloads.reducers import InNetwork, Reducer, reducer_for
from workloads.timeline import Timeline

native: Any = build.load()
ledger = groups.Ledger()  # of the groups beside the first

_END_TIMEOUT_S = 5.0
# without one worker's part they are asked for again
_OF_ALL = ("all_gather", "all_reduce of int64", "broadcast")
# the launcher notices an exit within milliseconds, if it has a core; gloo may notice the closed connection
# before
_BOARD_WAIT_S = 5.0


def carried(workers: int, is_shaped: bool) -> dict[str, list[tuple[int, int]]]:
    """Return the sizes at which the network carries each collective, from and to: as measured with so many
    workers, or with the most below that. With fewer than any that were measured it carries none.
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
        self.before_sum = stragglers.before_sum if stragglers.is_installed() else None
        is_lines = type(self._reducer) is InNetwork  # a user's own subclass may do otherwise
        # what it carries beside sums; all workers' settings are alike, the rate that of their slowest link
        endpoint = job.endpoint if is_lines else None
        self.carried = carried(job.world_size, bool(endpoint.rate_mbps)) if endpoint else {}
        if endpoint and endpoint.spare_bits:  # sums may come without late workers
            self.carried = {name: self.carried[name] for name in self.carried if name not in _OF_ALL}
        self.sums_in_lanes = self._reducer is not None
        self.rounds = is_lines
        self._timeline = Timeline() if is_whole else None
        self.course = native.Course(*job.board.course_addresses(), self._timeline)
        self._sees_all = True  # what its script asks for and waits for
        self.line = native.Line(job.world_size, job.board.summed_address())
        if is_lines:
            reducer: Any = self._reducer
            self.line.sum_by(*reducer.endpoint())
        self.record = self.line.record  # of who was in this worker's sums
        self._by_bytes: Counter[str] = Counter()  # what went by Python, by the way that it went
        self._thread: threading.Thread | None = None
        self._gloo: Any = None
        self._new_exact: Any = None
        atexit.register(self._end)

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
        self.line.open()
        self._thread = threading.Thread(target=self._work, name="inc-allreduce", daemon=True)
        self._thread.start()
        self._job.board.join()

    def start(
        self, work: Any, tensors: list[torch.Tensor], average: bool, limit_s: float | None = None
    ) -> None:
        """Begin a sum that `line` does not. `work.done()` or `work.fail(text)` follows; `work.outcomes` says
        of each tensor, once the sum is there, who is in it. Without a result for `limit_s` it fails.
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
        """Return whether a process group has them now."""
        return self._thread is not None and self._thread.is_alive()

    def shutdown(self) -> None:
        """End the thread after what was asked of it, and leave the statistics. Called by torch when the
        group is destroyed, or at the process's end.
        """
        if self._thread is None or not self._thread.is_alive():
            return
        self.line.close()
        self._thread.join(_END_TIMEOUT_S)
        native.drain(_END_TIMEOUT_S)  # callbacks of the last sums
        if not self._thread.is_alive():  # else it may need them still
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
            if self.is_up:  # it waits for others still
                self.line.abandon()

    def _work(self) -> None:
        while True:
            try:
                task = self.line.next()
            except Exception as error:  # no memory, no thread: whoever waits is told
                self.line.stop(_words(error))
                continue
            if task is None:
                return
            if isinstance(task, native.Vector):
                self._see_to(task)
            else:
                task()
            del task  # it has tensors, and the next may be far

    @torch.inference_mode()
    def _see_to(self, vector: Any) -> None:
        """A vector of `line` has no sum: say what becomes of it. Of a silence nothing may, yet."""
        reducer: Any = self._reducer
        try:
            error = reducer.heard(vector)
            if error is not None:
                self._replace(error, vector.settle_by, vector.limit_s)
        except Exception as error:  # every failure belongs to the one who waits
            why = _words(error)
            vector.fail(why)
            if reducer.is_broken() or vector.event == Event.QUIET:  # it is under way still
                self.line.stop(why)

    def _settle(self, work: Any, finish: Callable[[], None]) -> None:
        try:
            finish()
        except Exception as error:  # every failure belongs to the one who waits
            work.fail(_words(error))
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
        with self.line:
            self._limit(limit_s)
            for submit, take in vectors:
                self.line.require_open()
                submit()
                self.line.put(take)
            self.line.put(settle)

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
        work: Any,
        tensors: list[torch.Tensor],
        average: bool,
        limit_s: float | None,
    ) -> None:
        start, failures = time.perf_counter(), list[Exception]()

        def finish(tensor: torch.Tensor, flat: torch.Tensor) -> None:
            try:
                work.add(self._finish(reducer, tensor, flat, average))
            except Exception as error:  # told when all tensors are settled
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
            lambda: self._settle(work, lambda: self._sums_are_there(start, tensors, failures)),
            limit_s,
        )

    def _flat(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the values of a tensor as binary32 in one piece: itself, or a buffer."""
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
        if average:  # a sum that lacks workers is as large as that of all
            flat.div_(self._job.world_size)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))
            self.line.buffers.give(flat)
        return outcome

    def _finished(self, reducer: Reducer, by_gloo: Callable[[Any], None]) -> tuple[str, Outcome]:
        """Wait for the next vector, or do `by_gloo` what the network could not; say by which way it went, and
        who is in it.
        """
        workers = self._job.world_size
        try:
            return self._job.transport, reducer.finish() or Outcome.whole(workers)  # a user's may say nothing
        except (NotFiniteError, PartMissingError) as error:
            self._replace(error, by_gloo, self._limit_s)
        return GLOO, Outcome.whole(workers)

    def _replace(self, error: Exception, by_gloo: Callable[[Any], None], limit_s: float) -> None:
        """Have gloo do what the network has no integers for, or lacks workers of; raise what else is wrong.
        All workers do, at this place of the order: the vote or the result that told one of them told all. The
        backend is this thread's own, so that nothing of the script's comes between.
        """
        if not isinstance(error, NotFiniteError | PartMissingError) or isinstance(error, UnheardError):
            raise error  # gloo needs all of them
        if isinstance(error, NotFiniteError) and self._job.strict_finite:
            raise error
        try:
            exact = self._new_exact()
            exact._set_default_timeout(timedelta(seconds=limit_s))
            by_gloo(exact)
        except RuntimeError as error:
            raise self._explained(error) from error

    def _sums_are_there(self, start: float, tensors: list[torch.Tensor], failures: list[Exception]) -> None:
        if failures:
            raise failures[0]
        self._count(start, tensors)

    def _count(self, start: float, tensors: list[torch.Tensor]) -> None:
        self.line.count(start, _size_bytes(tensors))

    # ---- the ring ----

    def _start_ring(self, tensors: list[torch.Tensor], limit_s: float | None) -> list[Any]:
        """Starts gloo's all-reduce of each tensor, at once and on the caller's thread: gloo pairs them up by
        their order.
        """
        return [self._gloo.allreduce([tensor], sum_options(limit_s)) for tensor in tensors]

    @torch.inference_mode()
    def _finish_ring(
        self, work: Any, works: list[Any], start: float, tensors: list[torch.Tensor], average: bool
    ) -> None:
        """Wait for them on the reducer's thread. Not by a callback: gloo's threads must not run Python while
        the interpreter ends.
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
            whole = Outcome.whole(self._job.world_size)  # gloo has the sum of all, or none
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
        """The script has another group, whose traffic and waiting are not seen here: this one's timeline is
        no bound's.
        """
        self._sees_all = False

    def summed(self) -> Counter[str]:
        """Return the bytes that it summed so far, by the way that they went."""
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
                **self.record.summary(),
                **ledger.counted(counters),
            }
        )


def _words(error: Exception) -> str:
    """Return an error for a work, which has text alone."""
    return f"{type(error).__name__}: {error}"


def _size_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
