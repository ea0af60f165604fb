"""Admit and release the groups that a job's workers make while they run.

One socket pair a worker, of which the worker inherits one end: a message on it comes from that worker,
whatever it says. All members of a group ask for it, by a key that they agreed on. When the last has asked,
the group is admitted or refused, for all alike. It is released when all members have left it or ended. Owns
the sockets, and a thread that waits for no worker. That thread reads at most BURST messages of a worker at
once and MESSAGES_PER_S after that, because a script may make and destroy groups in a loop, many a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from testbed.aggregation.grants import Admission, Group
from testbed.errors import TestbedError
from testbed.jobs.board import JobBoard
from testbed.wire.group_messages import GroupAnswer
from testbed.wire.settings import written
from testbed.wire.spec import MAX_WORKERS

WAIT_S = 20.0  # from a group's first request to its last; all members come from the same rendezvous
MOST_GROUPS = 256  # of a job at once: as many as it may have trees
BURST, MESSAGES_PER_S = 200, 50.0  # messages of a worker; a group takes one to ask and one to leave
END_S = 2.0  # how long the end of a job waits for a request to the testbed
_MOST_REASONS = 8  # distinct reasons of refusals that are listed
_MESSAGE_BYTES = 4096
_MOST_KEY = 100  # characters


@dataclass(slots=True)
class _Allowance:
    """The number of messages that a worker may send now; it grows by MESSAGES_PER_S each second, up to
    BURST.
    """

    messages: float
    at: float

    def take(self, now: float) -> bool:
        """Use up one message; return False if none is left."""
        self.messages, self.at = min(BURST, self.messages + (now - self.at) * MESSAGES_PER_S), now
        self.messages -= 1
        return self.messages >= 0

    @property
    def full_again_at(self) -> float:
        """Return when the allowance will have grown to half a burst."""
        return self.at + (BURST / 2 - self.messages) / MESSAGES_PER_S


@dataclass(slots=True)
class _Asked:
    """A requested group: its members so far, and the outcome."""

    size: int
    since: float
    ports: dict[int, int] = field(default_factory=dict)  # by rank
    left: set[int] = field(default_factory=set)
    refused: str | None = None
    admission: Admission | None = None
    board: JobBoard | None = None

    @property
    def is_settled(self) -> bool:
        return self.refused is not None or self.admission is not None


class Groups:
    """The groups of one start of a job, with a socket for each of its `workers`. `admit` gives a group its
    places, or raises TestbedError; `release` takes them back. A context manager: after it no group is
    admitted, and the job releases those that are left. Leaving it waits at most END_S: if a group's admission
    is still under way (the controller may be away), it is released when the answer comes.
    """

    def __init__(
        self, workers: int, admit: Callable[[Group], Admission], release: Callable[[Admission], None]
    ) -> None:
        self._admit, self._release = admit, release
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(workers)]
        self._ours, self._theirs = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
        self._asked: dict[str, _Asked] = {}
        self._gone: set[int] = set()  # workers that ended
        self._refusals: defaultdict[str, dict[Group, None]] = defaultdict(dict)  # by reason, in order
        self._failures: list[str] = []
        self._allowances = [_Allowance(BURST, time.monotonic()) for _ in range(workers)]
        self._paused: dict[int, float] = {}  # workers that sent too many messages, and until when they pause
        self._is_left = False
        self._ending, self._is_closed_by_thread, self._has_ended = threading.Lock(), False, False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="groups", daemon=True)

    def fd(self, worker: int) -> int:
        """Return the descriptor of a worker's end, which the worker inherits."""
        return self._theirs[worker].fileno()

    def are_inherited(self) -> None:
        """Close this process's copies of the workers' ends: from now on, the end of a worker is noticed."""
        for theirs in self._theirs:
            theirs.close()

    def notes(self) -> list[str]:
        """Return a line for each reason for which groups were refused, and for each group that was not
        released. Called after the block.
        """
        refused = [
            f"the sums of {'; '.join(map(str, groups))} among themselves went by gloo ({reason})"
            for reason, groups in list(self._refusals.items())
        ]
        return [*refused, *self._failures]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_left = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(END_S)
        with self._ending:
            self._is_closed_by_thread = not self._has_ended
        if not self._is_closed_by_thread:
            self._close()

    def _close(self) -> None:
        os.close(self._wake)
        for end in (*self._ours, *self._theirs):
            end.close()
        for asked in self._asked.values():
            if asked.board:
                asked.board.close()

    # ------------------------------------------------------------------ its thread

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            with self._ending:
                self._has_ended = True
            if self._is_closed_by_thread:
                self._close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            for rank, ours in enumerate(self._ours):
                ours.setblocking(False)
                selector.register(ours, selectors.EVENT_READ, rank)
            while True:
                for key, _ in selector.select(self._until_next()):
                    if self._is_left:
                        return
                    allowance = self._allowances[key.data]
                    if not allowance.take(time.monotonic()):
                        selector.unregister(key.fileobj)
                        self._paused[key.data] = allowance.full_again_at
                    elif not self._receive(key.data):
                        selector.unregister(key.fileobj)
                        self._on_end(key.data)
                self._refuse_overdue()
                for rank in [rank for rank, until in self._paused.items() if until <= time.monotonic()]:
                    del self._paused[rank]
                    selector.register(self._ours[rank], selectors.EVENT_READ, rank)

    def _receive(self, rank: int) -> bool:
        """Read and handle a worker's message. Return False at the end of its process."""
        try:
            data = self._ours[rank].recv(_MESSAGE_BYTES)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if not data:
            return False
        # malformed messages of a worker are ignored
        with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
            message = json.loads(data)
            if "leave" in message:
                self._left(str(message["leave"])[:_MOST_KEY], rank)
            else:
                size, port = int(message["size"]), int(message["port"])
                if 2 <= size <= MAX_WORKERS and 1024 <= port < 1 << 16:
                    self._ask(str(message["ask"])[:_MOST_KEY], rank, size, port)
        return True

    def _ask(self, key: str, rank: int, size: int, port: int) -> None:
        asked = self._asked.get(key)
        if asked is None:
            if len(self._asked) >= MOST_GROUPS:
                self._send(rank, GroupAnswer(key, f"the job has {MOST_GROUPS} groups already"))
                return
            asked = self._asked[key] = _Asked(size, time.monotonic())
        if asked.admission and rank not in asked.ports:
            self._send(rank, GroupAnswer(key, "the group has all of its members already"))
            return
        asked.ports.setdefault(rank, port)
        if asked.is_settled:
            self._answer(key, asked, rank)
            self._drop_if_left(key, asked)
        elif len(asked.ports) == asked.size:
            self._settle(key, asked)

    def _settle(self, key: str, asked: _Asked) -> None:
        """Admit or refuse a group whose members have all asked, and answer all of them."""
        group = Group(*zip(*sorted(asked.ports.items()), strict=True))
        with contextlib.ExitStack() as undo:
            board = undo.enter_context(JobBoard(asked.size, of_group=True))
            try:
                admission = self._admit(group)
            except TestbedError as error:
                self._refuse(key, asked, str(error))
                return
            except (
                Exception
            ) as error:  # a defect: its trace goes to the daemon's log, and the members get an answer
                traceback.print_exc()
                self._refuse(key, asked, f"{type(error).__name__}: {error}; the daemon's log says more")
                return
            if self._is_left:
                self._give_back(admission)
                return
            undo.pop_all()
        asked.admission, asked.board = admission, board
        admission.subscribe_parallel(board.set_parallel)
        for rank in asked.ports:
            self._answer(key, asked, rank)
        self._drop_if_left(key, asked)

    def _refuse(self, key: str, asked: _Asked, why: str) -> None:
        """Refuse a group, for members that have asked and for those that ask later."""
        asked.refused = why
        if why not in self._refusals and len(self._refusals) >= _MOST_REASONS:
            why = "for other reasons"
        self._refusals[why][Group(tuple(sorted(asked.ports)), ())] = None
        for rank in asked.ports:
            self._answer(key, asked, rank)
        self._drop_if_left(key, asked)

    def _answer(self, key: str, asked: _Asked, rank: int) -> None:
        admission, board, ranks = asked.admission, asked.board, tuple(sorted(asked.ports))
        if admission is None or board is None:
            self._send(rank, GroupAnswer(key, asked.refused, ranks))
            return
        worker = ranks.index(rank)
        fds = (*admission.worker_fds(worker), board.fd)
        endpoint = admission.worker_env(worker)
        self._send(rank, GroupAnswer(key, None, ranks, endpoint, board.settings(), fds))

    def _send(self, rank: int, answer: GroupAnswer) -> None:
        """Send a worker its answer. A worker that does not read it runs into its own deadline."""
        try:
            socket.send_fds(self._ours[rank], [written(answer).encode()], answer.fds)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass  # it does not read, or has ended
        except OSError as error:
            self._failures.append(f"answer worker {rank}, which asked for a group: {error.strerror}")

    def _left(self, key: str, rank: int) -> None:
        asked = self._asked.get(key)
        if asked is not None and rank in asked.ports:
            asked.left.add(rank)
            self._drop_if_left(key, asked)

    def _on_end(self, rank: int) -> None:
        self._gone.add(rank)
        for key, asked in list(self._asked.items()):
            self._drop_if_left(key, asked)

    def _drop_if_left(self, key: str, asked: _Asked) -> None:
        """Release a group that all members have left; drop a refused one after the last member was
        answered.
        """
        is_told = asked.refused is not None and len(asked.ports) == asked.size
        if not is_told and not set(asked.ports) <= asked.left | self._gone:
            return
        del self._asked[key]
        if asked.board:
            asked.board.close()
        if asked.admission:
            self._give_back(asked.admission)

    def _give_back(self, admission: Admission) -> None:
        try:
            self._release(admission)
        except TestbedError as error:
            self._failures.append(str(error))

    def _until_next(self) -> float | None:
        waiting = [asked.since + WAIT_S for asked in self._asked.values() if not asked.is_settled]
        waiting += self._paused.values()
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _refuse_overdue(self) -> None:
        """Refuse the groups whose members have not all asked within WAIT_S."""
        now = time.monotonic()
        for key, asked in list(self._asked.items()):
            if not asked.is_settled and now - asked.since >= WAIT_S:
                lacking = asked.size - len(asked.ports)
                self._refuse(key, asked, f"{lacking} of its members did not ask for it in {WAIT_S:g} s")
