"""The daemon's side of a policy's process: it requests decisions within a time limit, and restarts a process
that ended or hangs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.client.caller import Caller
from testbed.encoding import to_json
from testbed.errors import RequestError, TestbedError
from testbed.interpreters import isolated
from testbed.jobs.environment import worker_environment
from testbed.jobs.logs import own_log
from testbed.machine.process import Spawned, exit_in_words
from testbed.machine.ready import ready
from testbed.queue.policy_messages import PolicyMessage
from testbed.scheduling.messages import decision_from_json
from testbed.scheduling.model import Decision, State

READY_S = 60.0
RESTARTS = 5
_STUCK_S = 10.0
_STUCK_SLOTS = 10
_END_S = 2.0
_TICK_S = 0.2
_LONGEST_LINE_BYTES = 8 << 20  # a decision for 1,400 jobs has 0.1 MB; parsing blocks the daemon

Spawn = Callable[..., Spawned]


class PolicyError(TestbedError):
    """There is no decision for this time slot: the policy raised, ended, or gave an answer that is no
    decision.
    """


class OverrunError(PolicyError):
    """There is no decision yet, and its time is over."""


class GoneError(PolicyError):
    """There will be no further decision: the policy ended too often."""


class _Lines:
    """Joins received pieces into lines, and searches each byte only once."""

    def __init__(self) -> None:
        self.whole: deque[bytes] = deque()
        self.begun_bytes = 0  # of the incomplete last line
        self._begun: list[bytes] = []

    def add(self, piece: bytes) -> None:
        """Append the next piece."""
        first, *others = piece.split(b"\n")
        self._begun.append(first)
        for following in others:
            self.whole.append(b"".join(self._begun))
            self._begun, self.begun_bytes = [following], 0
        self.begun_bytes += len(self._begun[-1])


def _yes() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Options:
    """A policy (name, FILE.py:CLASS or MODULE:CLASS) and its seed, the user of its process, and its log."""

    policy: str
    seed: int
    caller: Caller
    cwd: str
    environ: Mapping[str, str]
    log: Path


class PolicyProcess:
    """A context manager for a policy's process. All calls must come from one thread. `spawn(argv, **options)`
    starts a process; `wanted` is polled during the first start, and returns False to abort it.
    """

    def __init__(self, spawn: Spawn, options: Options, wanted: Callable[[], bool] = _yes) -> None:
        self._spawn, self._options, self._wanted = spawn, options, wanted
        self.policy = options.policy  # its own name, once it is ready
        self._process: Spawned | None = None
        self._socket: socket.socket | None = None
        self._lines = _Lines()
        self._number = 0
        self._ready = False
        self._asked_at: float | None = None  # when the unanswered state was sent, or the process started
        self.restarts = 0

    def __enter__(self) -> Self:
        """Start the process and wait until it is ready. Raises RequestError if there is no such policy, or it
        cannot be made.
        """
        self._start()
        try:
            message = self._next(time.monotonic() + READY_S, self._wanted)
        except PolicyError as error:
            self._end()
            raise RequestError(str(error)) from error
        self._ready, self._asked_at = True, None
        self.policy = str(message.ready)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(
        self, state: State, slot_s: float, deadline: float, wanted: Callable[[], bool] = _yes
    ) -> tuple[Decision, float]:
        """Return a decision, and the policy's computing time in seconds. Raises OverrunError at the deadline
        (of time.monotonic) or once the decision is no longer `wanted`; either way the answer is abandoned.
        Raises PolicyError if the policy has no decision.
        """
        self._restart_if_needed(slot_s)
        while (
            self._asked_at is not None
        ):  # it starts, or still works on an earlier state, for which its answer is too late
            self._next(deadline, wanted)
            self._ready, self._asked_at = True, None
        self._number += 1
        self._asked_at = time.monotonic()
        self._send(json.dumps({"number": self._number, "state": to_json(state)}).encode() + b"\n", deadline)
        answer = self._next(deadline, wanted)
        while answer.number != self._number:  # the answer to an abandoned state
            answer = self._next(deadline, wanted)
        self._asked_at = None
        if answer.raised is not None:
            raise PolicyError(f"policy {self.policy} raised {answer.raised} (log: {self._options.log})")
        try:
            return decision_from_json(answer.decision), float(answer.took_s)
        except (TypeError, ValueError) as error:
            raise PolicyError(f"policy {self.policy}: {error}") from error

    def _restart_if_needed(self, slot_s: float) -> None:
        if self._process is not None and self._asked_at is not None:
            busy_s = time.monotonic() - self._asked_at
            if busy_s > (max(_STUCK_S, _STUCK_SLOTS * slot_s) if self._ready else READY_S):
                self._end()
        if self._process is None:
            if self.restarts >= RESTARTS:
                raise GoneError(f"policy {self.policy} ended {RESTARTS + 1} times, and is not started again")
            self.restarts += 1
            self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        env = worker_environment(self._options.environ, self._options.caller)
        argv = isolated("-u", "-m", "testbed.queue.policy_host")
        argv += [f"--seed={self._options.seed}", "--", self._options.policy]
        try:
            log = own_log(self._options.log, self._options.caller)
        except OSError as error:
            raise PolicyError(f"log {self._options.log} of policy {self.policy}: {error.strerror}") from error
        try:
            self._process = self._spawn(
                argv,
                uid=self._options.caller.uid,
                gid=self._options.caller.gid,
                groups=self._options.caller.groups,
                env=env,
                cwd=self._options.cwd,
                stdin=theirs.fileno(),
                stdout=log,
                stderr=log,
                new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            ours.close()
            raise PolicyError(f"start policy {self.policy}: {error}") from error
        finally:
            theirs.close()
            os.close(log)
        ours.setblocking(False)
        self._socket, self._lines, self._ready, self._asked_at = ours, _Lines(), False, time.monotonic()

    def _end(self) -> int:
        """End the process, if there is one, and return its exit code."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is None:
            return 0
        process, self._process = self._process, None
        return process.end()

    def _ended(self) -> PolicyError:
        """Make the error for a closed socket: wait for the process's end, which comes a little later, and
        report its exit.
        """
        if self._process is not None:
            pidfd = os.pidfd_open(self._process.pid)
            ready([pidfd], _END_S)
            os.close(pidfd)
        process, code = self._process, self._end()
        why = process.why_not() if process is not None else None
        if why is not None:
            return PolicyError(f"start policy {self.policy}: {why}")
        return PolicyError(f"policy {self.policy} {exit_in_words(code)} (log: {self._options.log})")

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._socket is not None
        while data:
            if not ready([], deadline - time.monotonic(), writing=[self._socket.fileno()]):
                # half a state cannot be withdrawn: restart the process
                self._end()
                raise OverrunError(
                    f"policy {self.policy} did not take its state in time, and is started again"
                )
            try:
                data = data[self._socket.send(data) :]
            except OSError as error:
                raise self._ended() from error

    def _next(self, deadline: float, wanted: Callable[[], bool]) -> PolicyMessage:
        """Receive the next message of the process."""
        assert self._socket is not None
        while not self._lines.whole:
            rest_s = deadline - time.monotonic()
            if not ready([self._socket.fileno()], min(rest_s, _TICK_S)):
                if not wanted():
                    raise OverrunError(f"policy {self.policy} is not needed any longer")
                if rest_s > 0:
                    continue
                doing = "had no decision" if self._ready else "was not ready"
                raise OverrunError(f"policy {self.policy} {doing} when its time was over")
            try:
                piece = self._socket.recv(1 << 16)
            except OSError as error:
                raise self._ended() from error
            if not piece:
                raise self._ended()
            self._lines.add(piece)
            if self._lines.begun_bytes > _LONGEST_LINE_BYTES:
                self._end()
                raise PolicyError(
                    f"policy {self.policy} wrote more than {_LONGEST_LINE_BYTES} bytes for an answer"
                )
        try:
            message = PolicyMessage.read(self._lines.whole.popleft())
        except (TypeError, ValueError, RecursionError) as error:
            self._asked_at = None  # it has answered
            raise PolicyError(f"policy {self.policy} wrote what is no answer: {error}") from error
        if message.refused is not None:
            self._end()
            raise PolicyError(str(message.refused))
        return message
