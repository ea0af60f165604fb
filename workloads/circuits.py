"""Ask for circuits from within a worker, for the time of a block: `with during("u1-u2"):`.

Imports neither torch nor what reads messages: it runs under the script's own interpreter. The testbed decides
(testbed/jobs/claimed_circuits.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

from testbed.wire.circuit_messages import CircuitAnswer, CircuitAsk
from testbed.wire.settings import read, written
from workloads.job_env import own_settings

AHEAD_S = 600.0  # how long a request that is made ahead waits for circuits that are in use
_LARGEST_MESSAGE_BYTES = 1 << 16

Pair = str | Sequence[str]  # two units, as "u1-u3" or ("u1", "u3"), or two optical ports likewise


class CircuitsRefusedError(RuntimeError):
    """The testbed gives this worker no circuits; the text says why."""


class CircuitsBusyError(CircuitsRefusedError):
    """Others use the circuits, and did not release them within the time that this worker waits."""


@dataclass(frozen=True, slots=True)
class Light:
    """The circuits that a worker has, by their optical ports. If they were changed for it (`is_changed`),
    `dark_ms` is the measured dark time of this change (None: it was not measured); else it is 0. `waited_ms`
    is the time from the request of the last member to the light.
    """

    circuits: tuple[tuple[str, str], ...]
    is_changed: bool
    dark_ms: float | None
    waited_ms: float


class Asked:
    """Circuits that were asked for, and are held until `release` or the end of a `with` block."""

    def __init__(self, client: CircuitClient, message: CircuitAsk, answer: Future[CircuitAnswer]) -> None:
        self._client, self._message, self._answer = client, message, answer
        self._is_released = False

    def wait(self, timeout_s: float | None = None) -> Light:
        """Wait until the circuits are lit. Raises CircuitsRefusedError if there are none for it, TimeoutError
        after `timeout_s`.
        """
        answer = self._answer.result(timeout_s)
        if answer.why is not None:
            pairs = ", ".join("-".join(pair) for pair in self._message.circuits)
            kind = CircuitsBusyError if answer.is_busy else CircuitsRefusedError
            raise kind(f"circuits {pairs}: {answer.why}")
        return Light(answer.circuits, answer.is_changed, answer.dark_ms, answer.waited_ms)

    @property
    def circuits(self) -> tuple[tuple[str, str], ...]:
        """The pairs that were asked for."""
        return self._message.circuits

    @property
    def key(self) -> str:
        """The name of this request in the job."""
        return self._message.key

    @property
    def is_lit(self) -> bool:
        """Whether the circuits are lit, or refused, so that `wait` returns at once."""
        return self._answer.done()

    def release(self) -> None:
        """Give the circuits back; does nothing the second time. They stay lit until others need their
        ports.
        """
        if not self._is_released:
            self._is_released = True
            self._client.release(self._message.key)

    def __enter__(self) -> Light:
        try:
            return self.wait()
        except BaseException:
            self.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def ask(
    *circuits: Pair, barrier: bool = True, among: Sequence[int] | None = None, wait_s: float = AHEAD_S
) -> Asked:
    """Ask for circuits before they are needed, and return at once. They change when all members have asked,
    and whatever holds their ports has released them, this worker's own blocks included. The arguments are
    those of `during`.
    """
    return _asked(circuits, barrier, among, wait_s, ahead=True)


@contextlib.contextmanager
def during(
    *circuits: Pair, barrier: bool = True, among: Sequence[int] | None = None, wait_s: float = 0.0
) -> Iterator[Light]:
    """Have circuits for the time of the block: one for each pair of units ("u1-u3"), or those between named
    optical ports ("u1o1-u3o2"). All units are the job's own.

    With `barrier` all workers of the job, or those `among` these ranks, ask together: the block begins at all
    of them when the last has come and the circuits are lit. Without, this worker asks for itself. Circuits
    that other jobs use, or other workers' blocks hold, are waited for up to `wait_s` seconds. Raises
    CircuitsRefusedError with the reason if there are none.
    """
    with _asked(circuits, barrier, among, wait_s, ahead=False) as light:
        yield light


def _asked(
    circuits: Sequence[Pair], barrier: bool, among: Sequence[int] | None, wait_s: float, ahead: bool
) -> Asked:
    settings = own_settings()
    pairs = tuple(_pair(each) for each in circuits)
    members = (settings.rank,) if not barrier else tuple(range(len(settings.hosts)))
    if barrier and among is not None:
        members = tuple(sorted(map(int, among)))
    return client(os.getpid(), settings.circuits).ask(pairs, members, ahead, float(wait_s))


def _pair(pair: Pair) -> tuple[str, str]:
    ends = pair.split("-") if isinstance(pair, str) else [str(end) for end in pair]
    if len(ends) != 2:
        raise CircuitsRefusedError(f"circuits: {pair}: a pair like u1-u3 or u1o1-u3o1 is accepted")
    return ends[0], ends[1]


class CircuitClient:
    """This worker's end of the socket on which it asks. A thread of its own receives the answers."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self.wanted: Callable[[str], None] = lambda key: None  # called when others wait for a key's circuits
        self._lock = threading.Lock()  # guards the fields below
        self._waiting: dict[str, Future[CircuitAnswer]] = {}
        self._numbers: Counter[tuple[int, ...]] = Counter()
        threading.Thread(target=self._receive, name="circuits", daemon=True).start()

    def ask(
        self,
        pairs: tuple[tuple[str, str], ...],
        members: tuple[int, ...],
        ahead: bool,
        wait_s: float,
        key: str | None = None,
    ) -> Asked:
        """Ask for circuits with all members, who name the request alike: by a key, or by their number of
        requests of the same members.
        """
        with self._lock:
            if key is None:
                self._numbers[members] += 1
                key = f"{','.join(map(str, members))}:{self._numbers[members]}"
            message = CircuitAsk(key=key, circuits=pairs, members=members, ahead=ahead, wait_s=wait_s)
            answer: Future[CircuitAnswer] = Future()
            self._waiting[key] = answer
            self._send(message)
        return Asked(self, message, answer)

    def release(self, key: str) -> None:
        """Give back what was asked for under a key."""
        with self._lock, contextlib.suppress(CircuitsRefusedError):  # the testbed ended, and all with it
            answer = self._waiting.pop(key, None)
            if answer is not None and not answer.done():
                answer.set_result(CircuitAnswer(key=key, why="they were given back unanswered"))
            self._send(CircuitAsk(key=key, release=True))

    def _send(self, message: CircuitAsk) -> None:
        try:
            self._socket.sendall(written(message).encode())
        except OSError as error:
            raise CircuitsRefusedError(f"circuits: the testbed ended: {error.strerror}") from error

    def _receive(self) -> None:
        while data := self._next():
            answer = read(CircuitAnswer, data)
            if answer.is_wanted:
                self.wanted(answer.key)
                continue
            with self._lock:
                waiting = self._waiting.get(answer.key)
                if waiting and not waiting.done():
                    waiting.set_result(answer)
        with self._lock:
            for key, future in self._waiting.items():
                if not future.done():
                    future.set_result(CircuitAnswer(key=key, why="the testbed ended before it answered"))

    def _next(self) -> bytes:
        try:
            return self._socket.recv(_LARGEST_MESSAGE_BYTES)
        except OSError:
            return b""


@functools.cache
def client(pid: int, fd: int | None) -> CircuitClient:
    """Return this process's client, made at the first call."""
    if fd is None:
        raise CircuitsRefusedError("circuits: this testbed's version gives workers none")
    return CircuitClient(fd)
