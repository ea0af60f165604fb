"""Answer the workers of one start of a job that ask for circuits while it runs.

One socket pair a worker, of which the worker inherits one end: a message on it comes from that worker,
whatever it says. What a worker holds is released when it says so or ends; what all hold, when the job ends.
Owns the sockets, a thread that waits for no worker, and a thread for each request under way.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
import traceback
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from testbed.errors import TestbedError
from testbed.jobs.claimed_circuits import BusyCircuitsError, CircuitRequest, ClaimedCircuits
from testbed.ocs.claims import Holder
from testbed.wire.circuit_messages import CircuitAnswer, CircuitAsk
from testbed.wire.settings import read, written

MEMBERS_S = 600.0  # from a request's first member to its last
REJOIN_S = 0.1  # after the last block, in which a next one may begin
REJOIN_AGAIN_S = 1.0
MOST_OPEN = 64  # requests of a worker at once
MOST_KEPT = 1024  # requests of a job, of which some members may still ask
_MESSAGE_BYTES = 1 << 16
_MOST_KEY = 1 << 13  # characters
_LOOK_S = 5.0
_END_S = 2.0  # how long the end of a job waits for this thread


@dataclass(slots=True)
class _Open:
    """A request that is not yet answered, or whose circuits are held: the workers that asked, and those that
    released it or ended.
    """

    ask: CircuitAsk
    asked: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    since: float = field(default_factory=time.monotonic)
    refused: str | None = None
    is_under_way: bool = False
    is_answered: bool = False


class CircuitDesk:
    """The requests of one start of a job, with a socket for each of its `workers`. A context manager: after
    it the job holds no circuit.
    """

    def __init__(self, job: int, workers: int, circuits: ClaimedCircuits) -> None:
        self._job, self._circuits = job, circuits
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(workers)]
        self._ours, self._theirs = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
        self._open: dict[str, _Open] = {}
        self._gone: set[int] = set()  # workers that ended
        self._lock = threading.RLock()  # guards the fields above; acquired before those of the circuits
        self._has_ended = False
        self._timer: threading.Timer | None = None
        self.notes: list[str] = []
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, name="circuit-desk", daemon=True)

    def fd(self, worker: int) -> int:
        """Return the descriptor of a worker's end, which the worker inherits."""
        return self._theirs[worker].fileno()

    def are_inherited(self) -> None:
        """Close this process's copies of the workers' ends: from now on, the end of a worker is noticed."""
        for theirs in self._theirs:
            theirs.close()

    def __enter__(self) -> Self:
        self._circuits.subscribe(self._job, self._tell_wanted)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.eventfd_write(self._wake, 1)
        self._thread.join(_END_S)
        with self._lock:
            self._has_ended = True
            for end in (*self._ours, *self._theirs):
                end.close()
            self._circuits.subscribe(self._job, None)
            self._circuits.release(self._job)
        if not self._thread.is_alive():
            os.close(self._wake)

    # ------------------------------------------------------------------ its thread

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            for rank, ours in enumerate(self._ours):
                ours.setblocking(False)
                selector.register(ours, selectors.EVENT_READ, rank)
            while True:
                self._refuse_overdue()
                for key, _ in selector.select(_LOOK_S):
                    if key.data is None:
                        return
                    try:
                        is_there = self._receive(key.data)
                    except OSError:  # the job ended meanwhile
                        is_there = False
                    if not is_there:
                        selector.unregister(key.fileobj)
                        self._on_end(key.data)

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
        try:
            ask = read(CircuitAsk, data)
        except (ValueError, TypeError, RecursionError):  # malformed messages of a worker are ignored
            return True
        with self._lock:
            if ask.release:
                self._leave(ask.key, rank)
            else:
                self._take(ask, rank)
        return True

    def _take(self, ask: CircuitAsk, rank: int) -> None:
        """Note that a worker asks; begin when the last member has asked."""
        if why := self._refusal(ask, rank):
            self._send(rank, CircuitAnswer(key=ask.key, why=why))
            return
        self._forget_oldest()
        opened = self._open.setdefault(ask.key, _Open(ask))
        opened.asked.add(rank)
        if opened.refused is None:
            opened.refused = _difference(opened.ask, ask, rank) or self._missing(opened)
        if opened.refused is not None:
            self._refuse(ask.key, opened)
        elif opened.asked == {*ask.members}:
            opened.is_under_way = True
            name = f"circuits-of-job-{self._job}"
            threading.Thread(target=self._get, args=(ask.key, opened), name=name, daemon=True).start()

    def _refusal(self, ask: CircuitAsk, rank: int) -> str | None:
        """Say why a message of a worker is no request; None if it is one."""
        workers = len(self._ours)
        if len(ask.key) > _MOST_KEY or rank not in ask.members or len({*ask.members}) != len(ask.members):
            return "a request names its members, each once and its worker among them"
        if not all(0 <= member < workers for member in ask.members):
            return f"among: ranks from 0 to {workers - 1} are accepted"
        if sum(rank in each.asked - each.left for each in self._open.values()) >= MOST_OPEN:
            return f"worker {rank} has {MOST_OPEN} open requests for circuits: leave some"
        opened = self._open.get(ask.key)
        if opened is not None and rank in opened.asked:
            return "the request was made already"
        return None

    def _forget_oldest(self) -> None:
        """Forget the oldest request that all who asked have left, if too many are kept for the others."""
        if len(self._open) < MOST_KEPT:
            return
        for key, opened in self._open.items():
            if opened.asked <= opened.left and not opened.is_under_way:
                del self._open[key]
                return

    def _missing(self, opened: _Open) -> str | None:
        """Say which member of a request ended before it asked; None if none has."""
        missing = sorted(self._gone.intersection(opened.ask.members) - opened.asked)
        return f"worker {missing[0]} ended before it asked for them" if missing else None

    def _refuse(self, key: str, opened: _Open, is_busy: bool = False) -> None:
        """Refuse a request, for members that have asked and for those that ask later."""
        for rank in opened.asked - opened.left:
            self._send(rank, CircuitAnswer(key=key, why=opened.refused, is_busy=is_busy))
        opened.left |= opened.asked
        self._drop_if_left(key, opened)

    def _leave(self, key: str, rank: int) -> None:
        """Release what a worker asked for under a key."""
        opened = self._open.get(key)
        if opened is None or rank not in opened.asked:
            return
        opened.left.add(rank)
        if opened.is_answered:
            self._circuits.release(self._job, rank, key)
        self._drop_if_left(key, opened)

    def _on_end(self, rank: int) -> None:
        with self._lock:
            self._gone.add(rank)
            for key, opened in list(self._open.items()):
                if rank in opened.asked:
                    self._leave(key, rank)
                elif opened.refused is None and rank in opened.ask.members:
                    opened.refused = self._missing(opened)
                    self._refuse(key, opened)

    def _drop_if_left(self, key: str, opened: _Open) -> None:
        """Forget a request that all of its members have left, or ended before they could ask."""
        members = {*opened.ask.members}
        if opened.is_under_way and not opened.is_answered:
            return
        if members <= opened.left | self._gone and self._open.get(key) is opened:
            del self._open[key]
        if self._circuits.may_cut_off and not self._holds_any():
            self._rejoin_after(REJOIN_S)

    def _holds_any(self) -> bool:
        """Return whether circuits are being set for the job, or some worker is within a block."""
        return any(
            each.is_under_way or (each.is_answered and each.refused is None and each.asked - each.left)
            for each in self._open.values()
        )

    def _rejoin_after(self, wait_s: float) -> None:
        if self._timer is None and not self._has_ended:
            self._timer = threading.Timer(wait_s, self._rejoin)
            self._timer.daemon = True
            self._timer.start()

    def _rejoin(self) -> None:
        """Set circuits between the job's units again, if its last block left some without a way. If others
        hold what it needs, try again later.
        """
        with self._lock:
            self._timer = None
            if self._has_ended or self._holds_any():
                return
        try:
            self._circuits.rejoin(self._job)
        except TestbedError as error:
            note = f"circuits between the job's units after its last block: {error}"
            if note not in self.notes:
                self.notes.append(note)
            with self._lock:
                self._rejoin_after(REJOIN_AGAIN_S)

    def _refuse_overdue(self) -> None:
        """Refuse the requests that some member has not made for MEMBERS_S."""
        now = time.monotonic()
        with self._lock:
            for key, opened in list(self._open.items()):
                missing = sorted({*opened.ask.members} - opened.asked)
                if missing and opened.refused is None and now - opened.since > MEMBERS_S:
                    opened.refused = f"worker {missing[0]} has not asked for them in {MEMBERS_S:g} s"
                    self._refuse(key, opened)

    # ------------------------------------------------------------------ a thread of each request's own

    def _get(self, key: str, opened: _Open) -> None:
        request = CircuitRequest(self._job, opened.ask)
        try:
            answer = self._circuits.get(request, lambda: self._is_given_up(opened))
        except TestbedError as error:
            answer = CircuitAnswer(key=key, why=str(error), is_busy=isinstance(error, BusyCircuitsError))
        except (
            Exception
        ) as error:  # a defect: its trace goes to the daemon's log, and the members get an answer
            traceback.print_exc()
            answer = CircuitAnswer(
                key=key, why=f"{type(error).__name__}: {error}; the daemon's log says more"
            )
        with self._lock:
            opened.is_under_way, opened.is_answered = False, True
            if answer.why is not None:
                opened.refused = answer.why
                self._refuse(key, opened, answer.is_busy)
                return
            for rank in opened.ask.members:
                if self._has_ended or rank in opened.left:
                    self._circuits.release(self._job, rank, key)
                else:
                    self._send(rank, answer)
            self._drop_if_left(key, opened)

    def _is_given_up(self, opened: _Open) -> bool:
        return self._has_ended or opened.left >= {*opened.ask.members}

    def _tell_wanted(self, holder: Holder) -> None:
        """Tell a worker that others wait for circuits which it holds."""
        self._send(holder.rank, CircuitAnswer(key=holder.key, is_wanted=True))

    def _send(self, rank: int, answer: CircuitAnswer) -> None:
        """Send a worker its answer, unless it has ended or does not read."""
        with contextlib.suppress(OSError):
            self._ours[rank].send(written(answer).encode())


def _difference(first: CircuitAsk, ask: CircuitAsk, rank: int) -> str | None:
    """Say how a worker's request differs from the first member's; None if it is the same."""
    if sorted(ask.members) != sorted(first.members) or ask.ahead != first.ahead or ask.wait_s != first.wait_s:
        return f"worker {rank} asks in another way than the other members do"
    if ask.circuits != first.circuits:
        texts = [", ".join("-".join(pair) for pair in each.circuits) for each in (ask, first)]
        return f"worker {rank} asks for {texts[0]}, and another member for {texts[1]}: all ask for the same"
    return None
