"""Start, watch and end the processes of one job. Owns their lives, but not where they run.

After a worker fails, the others have a grace period, in which they can report which peer they miss; then they
are asked to end, then killed. Each process started here is reaped here. The thread that does so waits for
processes only: another carries their output (logs.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from testbed.errors import TestbedError
from testbed.jobs import watch
from testbed.jobs.board import JobBoard
from testbed.jobs.logs import Outputs
from testbed.jobs.process_activity import doing
from testbed.machine.process import Process, exit_in_words
from testbed.messages.events import Event, JobNote, OutputLine

GRACE_S = 10.0
TERM_S = 5.0
STACKS_S = 1.0  # the time for workers to write their threads' stacks before they are asked to end
_TICK_S = 0.1
# as torch's c10::Error prints them, with and without symbols
_FRAME = re.compile(
    r"frame #\d+: |Exception raised from \S+ at |C\+\+ CapturedTraceback:|#\d+ .* from .+:\d+$"
)

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process to start. `label` prefixes its lines; `index` is its record on the job board."""

    index: int
    label: str
    who: str
    host: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    pass_fds: tuple[int, ...] = ()
    stats: Path | None = None  # the file for its statistics
    stacks: Path | None = None  # the file for its threads' stacks if the job fails
    cwd: Path | None = None  # a working folder of its own; None: its job's
    most_log_bytes: int | None = None  # its log's bound, without the end of its output
    serves: bool = False  # it must live as long as the workers; an earlier end is a failure


class Starts(Protocol):
    """Starts a job's processes (testbed/jobs/starting.py)."""

    def start(self, spec: ProcessSpec, stdout: int) -> Process:
        """Start a process as the leader of a session of its own, its output at `stdout`."""


@dataclass(slots=True)
class Child:
    """A started process. `signalled` says whether it was sent a signal: then its exit code is no failure of
    its own.
    """

    spec: ProcessSpec
    process: Process
    pidfd: int
    exit_code: int | None = None
    signalled: bool = False
    why_not: str | None = None  # why it did not run its program; None: it did


@dataclass(slots=True)
class Ending:
    """The end of a job's processes. `failure` is a line on the first failure, or None; `failed` is the rank
    of the failed worker, if it was one.
    """

    exit_codes: dict[int, int] = field(default_factory=dict)
    failure: str | None = None
    wall_s: float = 0.0
    stopped: bool = False  # ended from outside
    notes: list[str] = field(default_factory=list)  # which workers it waited for, and what its logs lack
    failed: int | None = None
    left_stacks: frozenset[int] = frozenset()  # the workers that wrote their stacks


def _never() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Orders:
    """Functions that are polled while processes run. A reason from `stop` or `fail` ends the job at once, and
    one from `fail` is its failure; `dismisses` returns whether its parameter server must end because the job
    does not need it.
    """

    stop: Callable[[], str | None] = _never
    fail: Callable[[], str | None] = _never
    dismisses: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Patience:
    """Three times in seconds: the grace of a job's other processes after a worker failed; the time to end on
    request; and how long workers wait for another before a line reports it.
    """

    grace_s: float = GRACE_S
    term_s: float = TERM_S
    tell_s: float = watch.FIRST_S


class JobProcesses:
    """A job's processes. A context manager: leaving it kills all that still run. `emit` is called from
    another thread and must not block.
    """

    def __init__(self, starter: Starts, board: JobBoard, emit: Emit, patience: Patience = Patience()) -> None:
        self._starter, self._board, self._patience, self._emit = starter, board, patience, emit
        self._watch = watch.Lookout(patience.tell_s)
        self._outputs = Outputs(self._on_line)
        self._children: list[Child] = []
        self._stacks_by: float | None = None  # the deadline for the running workers' stacks
        self._selector = selectors.DefaultSelector()

    def start(self, specs: Sequence[ProcessSpec], logs: Sequence[int]) -> None:
        """Start the processes in this order, each with the descriptor of its log, which this call owns.
        Raises TestbedError, with the process's name, if one cannot be started.
        """
        with contextlib.ExitStack() as undo:
            for log in logs:
                undo.callback(os.close, log)
            for spec, log in zip(specs, logs, strict=True):
                self._start(spec, os.dup(log))

    def _start(self, spec: ProcessSpec, log: int) -> None:
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, log)
            reader, writer = os.pipe()
            undo.callback(os.close, reader)
            try:
                process = self._starter.start(spec, writer)
            except (OSError, subprocess.SubprocessError, TestbedError) as error:
                raise TestbedError(f"start {spec.who}: {error}") from error
            finally:
                os.close(writer)
            undo.pop_all()
        self._outputs.add(reader, log, spec.log, spec.label, spec.most_log_bytes)
        child = Child(spec, process, os.pidfd_open(process.pid))
        self._children.append(child)
        self._board.started(spec.index)
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)

    def wait(self, orders: Orders) -> Ending:
        """Wait until every process has ended, and end them all after a failure or an order; return the
        ending.
        """
        began = time.monotonic()
        ending = Ending()
        term_at = kill_at = float("inf")
        dismissed = False
        failed: Child | None = None
        while self._running():
            ended = self._step(_TICK_S)
            for child in ended:
                ending.exit_codes[child.spec.index] = child.exit_code or 0
                if (
                    ending.failure is None
                    and not child.signalled
                    and (child.exit_code or self._is_needed(child))
                ):
                    failed = child
                    ending.failure, ending.failed = self._describe_fault(failed)
                    term_at = min(term_at, time.monotonic() + self._patience.grace_s)
            if failed is not None and ended:  # the faulty worker may end after those that wait for it
                ending.failure, ending.failed = self._describe_fault(failed)
                if watch.in_vain(self._standings()) or self._misfits(self._standing(failed)):
                    term_at = 0.0
            elif ending.failure is None and (waits_for := self._report_waiting()) is not None:
                ending.failure = waits_for
                term_at = 0.0
            now = time.monotonic()
            reason = orders.stop()
            if reason is not None:
                ending.stopped = True
                if kill_at == float("inf"):
                    ending.failure = ending.failure or reason
                    term_at = min(term_at, now)
            broken = orders.fail()
            if broken is not None and ending.failure is None:
                ending.failure = broken
                term_at = min(term_at, now)
            if not dismissed and orders.dismisses():
                dismissed = True
                self._signal(signal.SIGTERM, servers=True)
            if self._running() and not self._running(workers=True):
                term_at = min(term_at, now)
            if ending.failure is not None:
                self._ask_for_stacks(now)
            if now >= term_at and self._have_left_stacks(now):
                self._signal(signal.SIGTERM)
                term_at, kill_at = float("inf"), min(kill_at, now + self._patience.term_s)
            if now >= kill_at:
                self._signal(signal.SIGKILL)
                kill_at = now + self._patience.term_s
        ending.wall_s = time.monotonic() - began
        ending.left_stacks = frozenset(self._board.have_left_stacks())
        ending.notes = self._watch.totals(time.monotonic(), self._standings()) + self._outputs.finish()
        return ending

    def _on_line(self, label: str, line: str) -> None:
        if not is_frame(line):
            self._emit(OutputLine(line, label))

    def _ask_for_stacks(self, now: float) -> None:
        """Request each worker's stacks, at the job's first failure."""
        if self._stacks_by is None:
            self._stacks_by = now + STACKS_S
            self._board.ask_for_stacks()

    def _have_left_stacks(self, now: float) -> bool:
        """Return whether all running workers have written their stacks, or their time is over."""
        running = {child.spec.index for child in self._running(workers=True) if child.spec.stacks}
        return self._stacks_by is None or now >= self._stacks_by or running <= self._board.have_left_stacks()

    # ------------------------------------------------------------------ which worker waits for which

    def _standings(self) -> list[watch.Standing]:
        return [self._standing(child) for child in self._children if not child.spec.serves]

    def _standing(self, child: Child) -> watch.Standing:
        spec = child.spec
        who = f"{spec.who} on {spec.host}"
        says = self._board.standing(spec.index)
        return watch.Standing(spec.index, who, *says, child.exit_code, child.signalled)

    def _report_waiting(self) -> str | None:
        """Report the workers that others have long waited for; return why the job must end if they wait for a
        worker that has left.
        """
        workers = {child.spec.index: child for child in self._children if not child.spec.serves}
        pulse = watch.Pulse(*self._board.pulse(), self._board.calls)
        lines, left = self._watch.look(
            time.monotonic(), self._standings(), lambda rank: doing(workers[rank].process.pid), pulse
        )
        self._board.waiting = self._watch.line
        for line in lines:
            self._emit(JobNote(line))
        return None if left is None else self._left_early(left)

    def _describe_fault(self, failed: Child) -> tuple[str, int | None]:
        """Describe the failure that began with the end of this process: return a line on the faulty process,
        and its rank if it is a worker.
        """
        if failed.spec.serves:
            return describe(failed), None
        standing = self._standing(failed)
        blamed = watch.cause(self._standings(), standing)
        return self._blame(blamed), blamed.rank

    def _blame(self, blamed: watch.Standing) -> str:
        if blamed.left:
            return self._left_early(blamed)
        if self._misfits(blamed):
            return (
                f"{blamed.who}: world_size {blamed.world} does not fit this job's {self._board.workers} "
                f"workers (log: {self._child(blamed).spec.log})"
            )
        return describe(self._child(blamed)) + watch.ended_before(self._standings(), blamed)

    def _misfits(self, worker: watch.Standing) -> bool:
        return worker.world not in (0, self._board.workers)

    def _left_early(self, worker: watch.Standing) -> str:
        return f"{watch.left_early(worker)} (log: {self._child(worker).spec.log})"

    def _child(self, worker: watch.Standing) -> Child:
        return next(
            child for child in self._children if child.spec.index == worker.rank and not child.spec.serves
        )

    # ------------------------------------------------------------------ its processes

    def _running(self, workers: bool = False) -> list[Child]:
        return [
            child
            for child in self._children
            if child.exit_code is None and not (workers and child.spec.serves)
        ]

    def _is_needed(self, child: Child) -> bool:
        return child.spec.serves and bool(self._running(workers=True))

    def _step(self, timeout_s: float) -> list[Child]:
        """Wait for ends of processes, at most `timeout_s`; reap and return those that have ended."""
        ended: list[Child] = [key.data for key, _ in self._selector.select(timeout_s)]
        for child in ended:
            self._reap(child)
        return ended

    def _reap(self, child: Child) -> None:
        # Kill the processes that it started. It is not reaped yet, so its pid still names its group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, signal.SIGKILL)
        child.exit_code = child.process.wait()
        child.why_not = child.process.why_not()
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        self._board.exited(child.spec.index, child.exit_code)

    def _signal(self, number: signal.Signals, servers: bool = False) -> None:
        """Send a signal to all that run, or to the servers among them. SIGTERM goes to each only once,
        because a Python that is ending no longer has its handlers.
        """
        for child in self._running():
            asked = number is signal.SIGTERM and child.signalled
            if asked or (servers and not child.spec.serves):
                continue
            child.signalled = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signal(signal.SIGKILL)
        while self._running():
            self._step(_TICK_S)
        self._outputs.finish()
        self._selector.close()


def describe(child: Child) -> str:
    """Describe the end of a process, `worker 2 on u1h3 exited with code 1`, with its log; or why it did not
    run.
    """
    if child.why_not is not None:
        return f"start {child.spec.who} on {child.spec.host}: {child.why_not}"
    return (
        f"{child.spec.who} on {child.spec.host} {exit_in_words(child.exit_code or 0)} (log: {child.spec.log})"
    )


def is_frame(line: str) -> bool:
    """Return whether a line is part of a C++ stack, which goes to the log and not to the user."""
    return _FRAME.match(line) is not None
