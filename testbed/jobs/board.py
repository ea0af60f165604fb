"""The job board, by which a job's processes see which of them still run. Owns its layout and the launcher's
side of it; imports only NumPy and the contract.

It is a memory file that every process of the job maps. Workers read it directly (workloads/job_env.py, which
gets the layout from `settings`), so that a worker whose peer dies can name it at once instead of running into
a timeout.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any, Self, TypeAlias, get_type_hints

import numpy as np

from testbed.wire import calls, service_status
from testbed.wire.records import Column, columns
from testbed.wire.settings import BoardSettings

S32: TypeAlias = Annotated[Column, "<i4"]
U32: TypeAlias = Annotated[Column, "<u4"]
U64: TypeAlias = Annotated[Column, "<u8"]
F64: TypeAlias = Annotated[Column, "<f8"]


@dataclass(frozen=True, slots=True, eq=False)
class BoardColumns:
    """The members of processes' records, in order, each with an element per process; see `JobBoard`."""

    state: U32
    exit_code: S32
    progress: U64
    summed_bytes: U64
    left_ns: U64
    rate_mbps: F64
    phase: U64
    asked: U64
    waits_for: U64
    world: U64
    parallel: U32
    stats_errno: U32
    left: U64
    asks_stacks: U32
    left_stacks: U32


FIELDS: tuple[tuple[str, str], ...] = tuple(
    (name, *hint.__metadata__) for name, hint in get_type_hints(BoardColumns, include_extras=True).items()
)
LAYOUT = np.dtype([*FIELDS])
_CALLS_ALIGNED = 64  # bytes, a processor's cache line


class WorkerState(enum.IntEnum):
    """The state of a worker's process."""

    STARTING = 0
    RUNNING = 1
    EXITED = 2


class GroupState(enum.IntEnum):
    """A worker's state in the process group of all workers. `workloads/job_env.py` gets the numbers with the
    board's layout.
    """

    ALONE = 0  # it has not asked for a group, or has left it
    MEETING = 1  # it waits for the others
    JOINED = 2


class JobBoard:
    """`workers` records, and one more for the process that serves them if the job has one (`has_ps`).

    The launcher writes state, exit_code and asks_stacks. The scheduler writes rate_mbps, of the worker's
    link, once it has changed. The owner of the result paths writes parallel, whether results may overtake
    each other. The checks for permanent stragglers write left, a bitmap of the ranks that left for a while.
    Worker N writes in record N:

    - progress: twice the fragments that the network summed, plus 1 while more are pushed;
    - summed_bytes: of gradients, by any kind of synchronisation;
    - left_ns: when it left its process group, by the monotonic clock;
    - phase: its GroupState;
    - asked: how many collectives of all workers its script has asked for;
    - waits_for: the number of the collective that the script waits for, from 1; 0: none;
    - world: the size of its process group; 0: it asked for none;
    - stats_errno: why its statistics could not be written;
    - left_stacks: set after it wrote its threads' stacks on asks_stacks.

    Every field is an aligned word with one writer, and state is written after exit_code: no lock is needed.

    Behind the records is a table of each worker's calls (testbed/wire/calls.py). A group's own board
    (`of_group`) has none, because its calls are in its job's. `waiting` is the launcher's present line on
    what the workers wait for, if they have waited long.
    """

    waiting: str = ""

    def __init__(self, workers: int, has_ps: bool = False, of_group: bool = False) -> None:
        self.workers = workers
        self._records_count = workers + (1 if has_ps else 0)
        records_bytes = self._records_count * LAYOUT.itemsize
        self._calls_at = None if of_group else -(-records_bytes // _CALLS_ALIGNED) * _CALLS_ALIGNED
        tables_bytes = workers * calls.TABLE.dtype().itemsize
        size_bytes = records_bytes if self._calls_at is None else self._calls_at + tables_bytes
        self.fd = os.memfd_create("job-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._memory = _sized(self.fd, size_bytes)
        self.slate_fd = os.memfd_create("job-slate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) if has_ps else -1
        self._slate = _sized(self.slate_fd, service_status.SLATE_BYTES) if has_ps else None
        self._map(np.frombuffer(self._memory, dtype=LAYOUT, count=self._records_count))
        self._tables = None if self._calls_at is None else self._mapped(self._calls_at)

    def _map(self, records: np.ndarray) -> None:
        self._processes = columns(BoardColumns, records)
        self._workers = columns(BoardColumns, records[: self.workers])

    def _mapped(self, at: int) -> calls.Tables:
        return calls.Tables(np.frombuffer(self._memory, np.uint8, offset=at))

    def settings(self) -> BoardSettings:
        """Return the data that a process needs to map the board; the descriptor keeps its number when it is
        inherited.
        """
        return BoardSettings(
            fd=self.fd,
            records=self._records_count,
            fields=FIELDS,
            exited=int(WorkerState.EXITED),
            phases={phase.name: int(phase) for phase in GroupState},
            calls=self._calls_at,
        )

    def calls(self) -> calls.Tables | None:
        """Copy the workers' present calls; None if the board has none, or is closed."""
        if self._calls_at is None or self.fd < 0:
            return None
        tables = np.frombuffer(self._memory, np.uint8, offset=self._calls_at).copy()
        return calls.Tables(tables)

    def pulse(self) -> tuple[bytes, bool, frozenset[int]]:
        """Return bytes that change whenever a running worker goes on, as far as the board shows it; whether
        any worker waits; and the ranks that wait for a call of any group.
        """
        of = self._workers
        running = of.state == WorkerState.RUNNING
        waiting = ((of.phase == GroupState.MEETING) | (of.waits_for != 0)) & running
        parts = (of.state, of.progress, of.phase, of.asked, of.waits_for)
        beat, waits = b"".join(part.tobytes() for part in parts), bool(waiting.any())
        if self._tables is None:
            return beat, waits, frozenset()
        calls_beat, some_wait = self._tables.pulse(running, waiting)
        return beat + calls_beat, waits or some_wait, self._tables.waiting()

    def ask_for_stacks(self) -> None:
        """Request the stacks of every worker's threads."""
        self._workers.asks_stacks[:] = 1

    def have_left_stacks(self) -> set[int]:
        """Return the workers that wrote their threads' stacks."""
        return {int(rank) for rank in np.flatnonzero(self._workers.left_stacks)}

    def started(self, index: int) -> None:
        """Note that a process was started."""
        self._processes.state[index] = WorkerState.RUNNING

    def exited(self, index: int, exit_code: int) -> None:
        """Note that a process ended. The state is written last, so that a reader who sees it also sees the
        exit code.
        """
        self._processes.exit_code[index] = exit_code
        self._processes.state[index] = WorkerState.EXITED

    def set_rate(self, rate_mbps: float) -> None:
        """Publish the new rate of the workers' links to all workers."""
        self._workers.rate_mbps[:] = rate_mbps

    def set_parallel(self, is_parallel: bool) -> None:
        """Publish to all workers whether results may overtake each other from now on."""
        self._workers.parallel[:] = is_parallel

    def set_left(self, ranks: Iterable[int]) -> None:
        """Publish to all workers which of them have left the sums for a while."""
        self._workers.left[:] = sum(1 << rank for rank in ranks)

    def state(self, index: int) -> WorkerState:
        return WorkerState(int(self._processes.state[index]))

    def progress(self) -> list[int]:
        """Return each worker's progress, by rank."""
        return [int(value) >> 1 for value in self._workers.progress]

    def summed_bytes(self) -> int:
        """Return the bytes of gradients whose sums every worker has, of those through the backend `inc`."""
        return int(self._workers.summed_bytes.min())

    def service(self) -> dict[str, Any] | None:
        """Return the status that the workers' server process reports (testbed/wire/service_status.py), if it
        does.
        """
        if self._slate is None:
            return None
        with memoryview(self._slate) as memory:
            return service_status.read(memory)

    def left_ns(self) -> int:
        """Return when the last worker left the process group of the backend `inc`, by the monotonic clock; 0
        before.
        """
        times = self._workers.left_ns
        return int(times.max()) if times.all() else 0

    def standing(self, index: int) -> tuple[GroupState, int, int, int]:
        """Return a worker's phase, how many collectives it has asked for, the number of the one that it waits
        for, and the size of its process group. An unknown phase counts as ALONE.
        """
        of = self._processes
        phase, asked, waits_for, world = (
            int(column[index]) for column in (of.phase, of.asked, of.waits_for, of.world)
        )
        return GroupState(phase) if phase <= max(GroupState) else GroupState.ALONE, asked, waits_for, world

    def owing(self) -> dict[int, int]:
        """Return the workers that asked the backend for collectives, and so should write statistics, by rank,
        with the errno of writing them (0: none). Workers of a gloo group write none.
        """
        asked, errnos = self._workers.asked, self._workers.stats_errno
        return {int(rank): int(errnos[rank]) for rank in np.flatnonzero((asked != 0) | (errnos != 0))}

    def close(self) -> None:
        """Unmap and close the board's files; does nothing if it is closed."""
        if self.fd < 0:
            return
        self._tables = None
        self._map(np.zeros(self._records_count, dtype=LAYOUT))  # mmap refuses to close under a view
        with contextlib.suppress(BufferError):  # another thread reads it: it is freed with its last view
            self._memory.close()
        if self._slate is not None:
            with contextlib.suppress(BufferError):
                self._slate.close()
            self._slate = None
            os.close(self.slate_fd)
        os.close(self.fd)
        self.fd = self.slate_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sized(fd: int, size_bytes: int) -> mmap.mmap:
    """Map a new memory file of that size. The size is sealed, because a process that shrank it would crash
    its peers (SIGBUS).
    """
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return mmap.mmap(fd, size_bytes)
