"""The daemon's side of workloads/template.py: fork workers from a template process that has torch loaded.
Owns that process.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testbed.client.environment import CHECKOUT
from testbed.emulation.spawner import ErrorPipe
from testbed.errors import TestbedError
from testbed.interpreters import isolated
from testbed.machine.process import exit_in_words
from testbed.wire.forks import ForkedWorker, ForkReply, ForkRequest
from testbed.wire.settings import read, written

READY_S = 120.0
_ANSWER_S = 30.0
_LARGEST_ANSWER_BYTES = 1 << 16
_DYING_S = 2.0  # from the end of its socket to its exit
_PASSED = ("PATH", "LANG", "LC_ALL", "TZ")


Origin = subprocess.Popen[bytes]  # the template process of a worker


class Forked:
    """A worker, with the methods of subprocess.Popen that its keeper needs. Only `wait` reaps it."""

    def __init__(self, template: Template, origin: Origin, pid: int, report: ErrorPipe) -> None:
        self._template, self._origin, self.pid, self._report = template, origin, pid, report

    def why_not(self) -> str | None:
        """Return why an ended worker never ran its script; None if it did."""
        return self._report.read()

    def wait(self) -> int:
        """Return the exit code, negative for the signal that ended the worker. Call once it has ended."""
        return self._template.waited(self._origin, self.pid)


class Template:
    """Starts its process at the first use, and again at the next use after it ended. Thread-safe.
    `spawn(argv, **options)` starts a process that ends with the daemon.
    """

    def __init__(self, spawn: Callable[..., subprocess.Popen[bytes]]) -> None:
        self._spawn = spawn
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def popen(
        self,
        namespace: Path,
        script: Sequence[str],
        *,
        uid: int,
        gid: int,
        groups: Sequence[int],
        env: Mapping[str, str],
        cwd: str,
        stdout: int,
        pass_fds: Sequence[int],
        hold: Callable[[int], None],
    ) -> Forked:
        """Fork a worker in this network namespace, as the leader of a session of its own, with output to
        `stdout`. `hold` is called with its number before it runs any of the job's code. Raises TestbedError.
        """
        worker = ForkedWorker(
            argv=tuple(script),
            env=env,
            cwd=cwd,
            uid=uid,
            gid=gid,
            groups=tuple(groups),
            fds=tuple(pass_fds),
        )
        report = ErrorPipe()
        try:
            with namespace.open("rb") as entered:
                fds = [entered.fileno(), stdout, report.writer, *pass_fds]
                origin, pid = self._fork(written(worker).encode(), fds, hold)
        except BaseException:
            report.close()
            raise
        finally:
            os.close(report.writer)
        return Forked(self, origin, pid, report)

    def _fork(
        self, description: bytes, fds: Sequence[int], hold: Callable[[int], None]
    ) -> tuple[Origin, int]:
        """Fork a process, send it its description over a private connection, and return its template process
        and its number. Raises TestbedError.
        """
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                origin, reply = self._ask(ForkRequest(), [theirs.fileno()])
            if reply.pid is None:
                raise TestbedError(f"fork a worker: {reply.refused}")
            pid = reply.pid
            try:
                hold(pid)
                ours.settimeout(_ANSWER_S)
                sent = socket.send_fds(ours, [description], list(fds))
                ours.sendall(description[sent:])
            except OSError as error:
                ours.close()  # the fork ends, since its description is incomplete
                self.waited(origin, pid)
                raise TestbedError(f"tell a worker what to become: {error.strerror or error}") from error
        return origin, pid

    def waited(self, origin: Origin, pid: int) -> int:
        """Return the exit code of a fork that has ended. TestbedError if its template process has ended, and
        its forks with it.
        """
        _, reply = self._ask(ForkRequest(wait=pid), [], origin)
        assert reply.code is not None
        return reply.code

    def close(self) -> None:
        """End the template process, and with it the workers that still run."""
        with self._lock:
            self._end()

    def _ask(
        self, request: ForkRequest, fds: Sequence[int], origin: Origin | None = None
    ) -> tuple[Origin, ForkReply]:
        """Send a request; return the process that replied, and its reply. With `origin`, ask only that
        process.
        """
        with self._lock:
            try:
                if self._process is not None and self._process.poll() is not None:
                    self._end()
                if origin is not None and origin is not self._process:
                    raise ValueError(_ended(origin))
                if self._process is None:
                    self._start()
                assert self._process is not None
                assert self._socket is not None
                socket.send_fds(self._socket, [written(request).encode()], list(fds))
                return self._process, read(ForkReply, self._answer(_ANSWER_S))
            except (OSError, ValueError, TypeError) as error:
                if origin in (None, self._process):
                    self._end()
                raise TestbedError(
                    f"the process that workers are forks of: {error or type(error).__name__}"
                ) from error

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._socket = ours
            # nothing of root's environment: a fork's initial environment stays readable for its user
            env = {name: os.environ[name] for name in _PASSED if name in os.environ}
            env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}
            argv = isolated("-u", "-m", "workloads.template")
            self._process = self._spawn(
                argv, stdin=theirs.fileno(), env=env, cwd=str(CHECKOUT), new_session=True
            )
        self._answer(READY_S)

    def _answer(self, timeout_s: float) -> bytes:
        assert self._socket is not None
        self._socket.settimeout(timeout_s)
        message = self._socket.recv(_LARGEST_ANSWER_BYTES)
        if not message:
            assert self._process is not None
            raise ValueError(_ended(self._process))
        return message

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None


def _ended(process: Origin) -> str:
    """Describe how a process ended, or that it no longer answers."""
    try:
        how = exit_in_words(process.wait(_DYING_S))
    except subprocess.TimeoutExpired:
        how = "answers no more"
    return f"it {how}; the daemon's log says more"
