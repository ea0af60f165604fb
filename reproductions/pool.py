"""A pool of processes, each of which works on one piece after the other. Owns the processes; they end with
the block that started them, or with this process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from testbed.emulation.namespaces import die_with_parent
from testbed.errors import TestbedError, from_exit_code

Piece = TypeVar("Piece")
Done = TypeVar("Done")
END_S = 5.0
"""How long a terminated process may take to end before it is killed."""


class Pool(Generic[Piece, Done]):
    """Call work(piece, *given) in at most `processes` fresh processes; `work` is a function at module level.

    Only the caller receives Ctrl-C: it leaves the block, which ends the processes whatever they are doing.
    """

    def __init__(self, work: Callable[..., Done], given: Sequence[Any], processes: int) -> None:
        self._work, self._given, self._wanted = work, tuple(given), processes
        # spawn a fresh interpreter each: a fork would lose the caller's other threads
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> Pool[Piece, Done]:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.terminate()
        for connection, process in self._running.items():
            process.join(END_S)
            if process.is_alive():
                process.kill()
                process.join()
            connection.close()
        self._running.clear()

    def results(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Done]]:
        """Yield each piece with its result, in the order of completion. Raises the first error of a piece;
        the message names the piece.
        """
        waiting = list(reversed(pieces))
        busy: dict[Connection, Piece] = {}
        for _ in range(min(self._wanted, len(pieces))):
            self._start()
        for connection in self._running:
            busy[connection] = waiting.pop()
            connection.send(busy[connection])
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                piece = busy.pop(ready)
                try:
                    code, answer = ready.recv()
                except EOFError as error:
                    process = self._running[ready]
                    process.join(END_S)
                    raise TestbedError(
                        f"{piece}: its process ended with exit code {process.exitcode}"
                    ) from error
                if code is not None:
                    raise from_exit_code(code, f"{piece}: {answer}")
                if waiting:
                    busy[ready] = waiting.pop()
                    ready.send(busy[ready])
                yield piece, answer

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._work, self._given), daemon=True)
        with _undisturbed():
            process.start()
            self._running[ours] = process
        theirs.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Defer Ctrl-C until after the block; a process started in the block never receives it.

    A process that is interrupted before it has installed its handlers would print a traceback, so it inherits
    a mask that blocks SIGINT. The mask does not protect this thread, since the signal may go to another
    thread: hence also a handler that records the signal. multiprocessing's resource tracker, which the first
    process needs, unblocks SIGINT when it has started: so it is started before.
    """
    received: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if received:
        signal.raise_signal(signal.SIGINT)


def _serve(connection: Connection, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """Run in a pool process: receive pieces, send (None, result) or (exit code, message), until the other end
    is closed or its process has ended.
    """
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is None or os.getppid() != parent.pid:
        return  # the parent ended before die_with_parent took effect
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    while True:
        try:
            piece = connection.recv()
        except EOFError:
            return
        answer: tuple[int | None, Any]
        try:
            answer = (None, work(piece, *given))
        except TestbedError as error:
            answer = (error.exit_code, str(error))
        try:
            connection.send(answer)
        except BrokenPipeError:
            return  # the parent has ended
