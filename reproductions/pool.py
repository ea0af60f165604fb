"""Work done by several processes, one piece after the other. Owns the processes; they end with the block, or
process, that began them.
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
"""For a process that was told to end, before it is killed."""


class Pool(Generic[Piece, Done]):
    """`work` is a function of a module, called as work(piece, *given) in fresh processes, at most `processes`
    of them.

    Ctrl-C is for the caller alone: it leaves the block, and what runs is ended, however long it would have
    taken.
    """

    def __init__(self, work: Callable[..., Done], given: Sequence[Any], processes: int) -> None:
        self._work, self._given, self._wanted = work, tuple(given), processes
        # a fresh interpreter each: the caller may have threads, which a fork would leave behind
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
        """Each piece with its result, in the order in which they are done. Raises the first error of a piece,
        which it names.
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
    """Ctrl-C comes after the block, not in it; for a process born in the block, never.

    One that is interrupted before it has been told what to do answers with a traceback. The mask is what it
    inherits; it does not keep Python from interrupting this thread, since the signal may go to another.
    multiprocessing's tracker of resources, which the first process needs, unblocks SIGINT when it has
    started: so it starts before.
    """
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came:
        signal.raise_signal(signal.SIGINT)


def _serve(connection: Connection, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """Serve in a process: pieces in, (None, result) or (exit code, message) out, until the other end is
    closed or its process gone.
    """
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is None or os.getppid() != parent.pid:
        return  # gone before the kernel was asked to tell
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
            return  # who asked is gone
