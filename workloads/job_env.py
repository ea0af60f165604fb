"""Give a worker process its view of its job. Owns the reading of `TESTBED_JOB`; imports nothing but NumPy and
the settings' types (testbed/wire/settings.py).

The launcher writes the settings (testbed/jobs/attempt.py). A worker of a scheduled job waits at its gate
(testbed/jobs/gates.py) until the job is started, and receives there how the job sums. The settings describe
the layout of the job board (a memory file that the job's processes share), so that the layout is written down
once, in testbed/jobs/board.py.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.wire.settings import (
    BoardSettings,
    EndpointSettings,
    GateSettings,
    SumSettings,
    WorkerSettings,
    read,
)

VARIABLE = "TESTBED_JOB"
_LARGEST_MESSAGE_BYTES = 1 << 16
_worker_pid: int | None = None  # this worker's process, once it has read its settings


class NotInJobError(RuntimeError):
    """The process was not started by `testbed run`, or its settings cannot be read."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A process of the job that has ended while this one still runs.

    `rank` is a worker's; None stands for the process that serves the workers, named by `service`.
    """

    rank: int | None
    host: str
    exit_code: int
    service: str = "parameter server"

    def __str__(self) -> str:
        who = self.service if self.rank is None else f"worker {self.rank}"
        return f"{who} on {self.host} {how_it_ended(self.exit_code)}"


def how_it_ended(exit_code: int) -> str:
    """Return in words how a process ended. A negative code is the number of the signal that ended it (as in
    subprocess).
    """
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"


class Board:
    """The job board: a record per worker, which the launcher updates as processes start and exit, read in
    place.

    A worker writes some fields of its own record (testbed/jobs/board.py says which). Each field has one
    writing process and is an aligned word.
    """

    def __init__(
        self,
        records: npt.NDArray[np.void],
        exited: int,
        rank: int,
        hosts: tuple[str, ...],
        ps_host: str | None,
        phases: Mapping[str, int],
        service: str = "parameter server",
        calls: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        self._service = service
        self.calls = calls  # all workers' tables of calls (testbed/wire/calls.py); None on a group's board
        self._records = records
        self._exited = exited
        self._phases = phases
        self._rank = rank
        self._hosts = hosts
        self._ps_host = ps_host

    @classmethod
    def from_settings(
        cls,
        settings: BoardSettings,
        rank: int,
        hosts: tuple[str, ...],
        ps_host: str | None,
        service: str = "parameter server",
    ) -> Board:
        memory = mmap.mmap(settings.fd, 0)
        records = np.frombuffer(memory, dtype=np.dtype([*settings.fields]), count=settings.records)
        calls = None if settings.calls is None else np.frombuffer(memory, np.uint8, offset=settings.calls)
        return cls(records, settings.exited, rank, hosts, ps_host, settings.phases, service, calls)

    def missing(self) -> list[Missing]:
        """Return the other processes that have ended, whatever their exit code: workers, and the process that
        serves them if the job has one. Cheap: reads memory only.
        """
        ended = np.flatnonzero(self._records["state"] == self._exited)
        needed = len(self._hosts) + (self._ps_host is not None)
        return [
            Missing(int(index), self._hosts[index], int(self._records["exit_code"][index]))
            if index < len(self._hosts)
            else Missing(None, str(self._ps_host), int(self._records["exit_code"][index]), self._service)
            for index in ended
            if index != self._rank and index < needed
        ]

    def out(self) -> frozenset[int]:
        """Return the ranks of the workers that sums currently go on without."""
        left = int(self._records["left"][self._rank])
        return frozenset(rank for rank in range(len(self._hosts)) if left >> rank & 1)

    @property
    def service_host(self) -> str | None:
        """Return the host of the process that serves the workers, if the job has one."""
        return self._ps_host

    def who(self, number: int) -> str:
        """Return the name, for messages, of the worker with this number among those who sum."""
        return f"worker {number}"

    def _address(self, name: str) -> int:
        """Return the address of a field of this worker's record, for code that is not Python."""
        field = self._records.dtype.fields
        assert field is not None
        return int(self._records.ctypes.data + self._rank * self._records.itemsize + field[name][1])

    def progress_address(self) -> int:
        """Return the address of this worker's progress, an aligned 64-bit word."""
        return self._address("progress")

    def parallel_address(self) -> int:
        """Return the address of the 32-bit word that says whether results may arrive out of order."""
        return self._address("parallel")

    def rate_address(self) -> int:
        """Return the address of the rate of this worker's link, a binary64 in Mb/s; it is 0 while the rate is
        as at the start.
        """
        return self._address("rate_mbps")

    def course_addresses(self) -> tuple[int, int]:
        """Return two addresses: of the number of collectives that the script has asked for, and of the
        number, from 1, of the collective that it waits for (0: none).
        """
        return self._address("asked"), self._address("waits_for")

    def add_summed(self, size_bytes: int) -> None:
        """Add to the bytes of gradients that this worker has the sums of."""
        self._records["summed_bytes"][self._rank] += size_bytes

    def summed_address(self) -> int:
        """Return the address of the number of bytes of gradients that this worker has the sums of."""
        return self._address("summed_bytes")

    def wants(self, world: int) -> None:
        """Record the number of workers that this worker's process group is to have."""
        self._records["world"][self._rank] = world

    def meet(self) -> None:
        """Record that this worker waits for the process group of all workers."""
        self._records["phase"][self._rank] = self._phases["MEETING"]

    def met(self) -> None:
        """Record that the process group exists, so that this worker no longer waits for it."""
        self._records["phase"][self._rank] = self._phases["JOINED"]

    def join(self) -> None:
        """Record that this worker sums from now on."""
        self._records["left_ns"][self._rank] = 0
        self.met()

    def leave(self) -> None:
        """Record, with the time, that this worker will sum nothing more."""
        self._records["left_ns"][self._rank] = time.monotonic_ns()
        self.part()

    def part(self) -> None:
        """Record that this worker is in no group any more, or gave up waiting for one."""
        self._records["phase"][self._rank] = self._phases["ALONE"]

    def lacks_statistics(self, error_number: int) -> None:
        """Record the error number for which this worker's statistics could not be written (0: they were
        written).
        """
        self._records["stats_errno"][self._rank] = error_number

    def asks_for_stacks(self) -> bool:
        """Return whether the launcher requests the stacks of this worker's threads."""
        return bool(self._records["asks_stacks"][self._rank])

    def has_left_stacks(self) -> None:
        """Record that this worker's stacks are written."""
        self._records["left_stacks"][self._rank] = 1

    def progress(self) -> list[int]:
        """Return every worker's progress in fragments, by rank."""
        return [int(value) >> 1 for value in self._records["progress"][: len(self._hosts)]]

    def behind(self) -> list[int]:
        """Return the ranks of the workers that hold this one up.

        These have summed less than this worker, or as much and pushed nothing since, or their scripts have
        not asked for the collective that this one's script waits for.
        """
        pushed, asked = ([int(value) for value in self._records[name]] for name in ("progress", "asked"))
        waits_for = int(self._records["waits_for"][self._rank])
        return [
            rank
            for rank in range(len(self._hosts))
            if pushed[rank] < (pushed[self._rank] | 1) or asked[rank] < waits_for
        ]


class Part(Board):
    """The board of a group of some of the workers. Their progress is in records of the group's own, indexed
    by their numbers in the group; which workers have ended is read from the job's board.
    """

    def __init__(
        self, whole: Board, ranks: tuple[int, ...], records: npt.NDArray[np.void], member: int
    ) -> None:
        hosts = tuple(whole._hosts[rank] for rank in ranks)
        super().__init__(records, whole._exited, member, hosts, None, whole._phases)
        self._whole, self._ranks = whole, ranks
        self._memory: mmap.mmap | None = None

    @classmethod
    def of(cls, whole: Board, ranks: tuple[int, ...], settings: BoardSettings, member: int) -> Part:
        """Map the group's own records, one per member."""
        layout = np.dtype([*settings.fields])
        memory = mmap.mmap(settings.fd, len(ranks) * layout.itemsize)
        part = cls(whole, ranks, np.frombuffer(memory, dtype=layout, count=len(ranks)), member)
        part._memory = memory
        return part

    def close(self) -> None:
        """Unmap the group's own records, whose mapping holds a descriptor. Their values stay readable as a
        copy.
        """
        self._records = self._records.copy()
        if self._memory is not None:
            with contextlib.suppress(BufferError):  # another thread reads them: unmapped with its last view
                self._memory.close()

    def who(self, number: int) -> str:
        return self._whole.who(self._ranks[number])

    def missing(self) -> list[Missing]:
        return [peer for peer in self._whole.missing() if peer.rank in self._ranks]

    def rate_address(self) -> int:
        return self._whole.rate_address()

    def summed_address(self) -> int:
        """Return 0: policies see the sums of the job's own group only."""
        return 0

    def join(self) -> None:
        """Do nothing: the job's own board records this."""

    def leave(self) -> None:
        """Do nothing: the job's own board records this."""


def wait_at_gate(environ: Mapping[str, str] = os.environ) -> None:
    """Wait until this worker's job is started. Return at once where there is no gate, or where it is another
    process's: every process that a worker starts inherits the variable, but not the descriptor.
    """
    gate = read(WorkerSettings, environ[VARIABLE]).gate if VARIABLE in environ else None
    if gate is not None and _is_gate(gate):
        _through_gate(gate)


def _is_gate(fd: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as end:
            return (end.family, end.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        if error.errno not in (errno.EBADF, errno.ENOTSOCK):
            raise
        return False


def of_worker(environ: Mapping[str, str] = os.environ) -> WorkerSettings | None:
    """Return this process's settings if it is a worker, and remember its process id, so that its later forks
    are not taken for the worker; return None in every other process.

    Settings that cannot be read are reported on standard error.
    """
    global _worker_pid
    try:
        settings = read(WorkerSettings, environ[VARIABLE])
        is_worker = _is_worker(settings)
    except KeyError:
        return None
    except (TypeError, ValueError) as problem:  # a testbed of another version: report it
        print(f"inc: {VARIABLE} does not read, so that this is no worker: {problem}", file=sys.stderr)
        return None
    if not is_worker:
        return None
    _worker_pid = os.getpid()
    return settings


def _is_worker(settings: WorkerSettings) -> bool:
    """Return whether this process is the worker itself.

    A process that the worker started inherits the environment without the descriptors. A fork inherits both,
    but has another process id.
    """
    if _worker_pid not in (None, os.getpid()):
        return False
    try:
        return os.readlink(f"/proc/self/fd/{settings.board.fd}").startswith("/memfd:job-board")
    except FileNotFoundError:
        return False


def _require_worker(settings: WorkerSettings) -> None:
    if not _is_worker(settings):
        raise NotInJobError(
            f"job {settings.job_id}: this process was started by worker {settings.rank} and not by "
            f"`testbed run`: it has no part in the job's sums; make the group in the worker itself, or take "
            f"gloo here"
        )


def own_settings(environ: Mapping[str, str] = os.environ) -> WorkerSettings:
    """Read this worker's settings. Raises NotInJobError, with a line that says what to do, outside a job."""
    text = environ.get(VARIABLE)
    if text is None:
        raise NotInJobError(f"{VARIABLE} is not set: this process was not started by `testbed run`")
    try:
        settings = read(WorkerSettings, text)
        _require_worker(settings)
    except (KeyError, TypeError, ValueError, OSError) as problem:
        raise _unreadable(problem) from problem
    return settings


def _unreadable(problem: Exception) -> NotInJobError:
    return NotInJobError(f"{VARIABLE} does not read: {type(problem).__name__}: {problem}")


@functools.cache
def _through_gate(fd: int) -> SumSettings:
    """Report at the gate that this worker has started, wait for the job's start, and return how the job sums.
    Raises NotInJobError when the testbed ends first.

    The descriptors that come with the settings get other numbers in this process; the settings returned have
    these.
    """
    with socket.socket(fileno=fd) as gate:
        gate.sendall(b"here")
        message, fds, _, _ = socket.recv_fds(gate, _LARGEST_MESSAGE_BYTES, 8)
    if not message:
        raise NotInJobError("the testbed ended before it started this job")
    settings = read(GateSettings, message)
    sums, numbers = settings.sums, dict(zip(settings.fds, fds, strict=True))
    return sums if sums.endpoint is None else replace(sums, endpoint=sums.endpoint.renumbered(numbers))


@dataclass(frozen=True, slots=True)
class JobEnv:
    """One worker's view of its job.

    `endpoint` has the settings of its endpoint, None where no place sums for the job. `ps` is the address and
    port of the process that serves the workers, None where none listens.
    """

    testbed: str
    job_id: int
    generation: int
    rank: int
    world_size: int
    system: str
    transport: str
    hosts: tuple[str, ...]
    board: Board
    stats: Path
    endpoint: EndpointSettings | None
    ps: tuple[str, int] | None
    strict_finite: bool
    asked_in: str | None  # the caller's working folder, which need not be the worker's
    groups: int | None = None  # the descriptor of the socket on which it requests groups
    stacks: Path | None = None  # the file for the stacks of its threads
    master: str = ""  # ADDRESS:PORT of torch's store, at which the workers meet

    @property
    def host(self) -> str:
        return self.hosts[self.rank]

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> JobEnv:
        """Read this worker's environment. Raises NotInJobError, with a line that says what to do, outside a
        job.
        """
        settings = own_settings(environ)
        try:
            sums = settings.sums if settings.gate is None else _through_gate(settings.gate)
            rank, hosts = settings.rank, settings.hosts
            return cls(
                testbed=settings.testbed,
                job_id=settings.job_id,
                generation=settings.generation,
                rank=rank,
                world_size=len(hosts),
                system=sums.system,
                transport=sums.transport,
                hosts=hosts,
                board=Board.from_settings(settings.board, rank, hosts, sums.ps_host, sums.service),
                stats=Path(settings.stats),
                endpoint=sums.endpoint,
                ps=sums.ps,
                strict_finite=settings.options.strict_finite,
                asked_in=settings.asked_in,
                groups=settings.groups,
                stacks=None if settings.stacks is None else Path(settings.stacks),
                master=settings.master,
            )
        except (KeyError, TypeError, ValueError, OSError) as problem:
            raise _unreadable(problem) from problem

    def write_stats(self, stats: Mapping[str, Any]) -> None:
        """Write this worker's statistics for the job's result; a later call replaces all of an earlier one's.

        Raises OSError where they cannot be written; no part of them is left then, and the board has the
        reason.
        """
        draft = self.stats.with_suffix(".draft")
        try:
            draft.write_text(json.dumps(dict(stats)))
            draft.replace(self.stats)
        except OSError as error:
            self.board.lacks_statistics(error.errno or errno.EIO)
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        self.board.lacks_statistics(0)
