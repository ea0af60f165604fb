"""Run single commands in hosts, each for a client that waits for it: the daemon's side, which limits their
number and ends them. The keeper (testbed/host_commands) runs the command and attaches it to the client.

A command, with everything that it started, ends with its client and with the testbed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from testbed.client.caller import Caller
from testbed.client.requests import CommandEnd, CommandRequest
from testbed.client.rpc import Emit, Peer
from testbed.errors import RequestError, TestbedError
from testbed.host_commands import keeper
from testbed.interpreters import isolated
from testbed.jobs.request import absolute, environ, word, words
from testbed.machine.interface import Hosts
from testbed.machine.process import EnclosureHandle, Spawned, exit_in_words
from testbed.machine.ready import ready

MOST = 64  # at the same time, in one testbed
_HUP_S = 2.0  # from SIGHUP to SIGKILL
_TICK_S = 0.1


Visited = Callable[[str, int, int], contextlib.AbstractContextManager[None]]


class Commands:
    """Thread-safe. `hosts` raises RequestError for an unknown host. `visited` is `Jobs.visited`, which keeps
    other users' jobs off the host meanwhile.
    """

    def __init__(self, hosts: Hosts, visited: Visited, most: int = MOST) -> None:
        self._hosts, self._visited, self._most = hosts, visited, most
        self._running = 0
        self._why_ending: str | None = None
        self._changed = threading.Condition()  # guards the two fields above

    def answer(
        self,
        request: CommandRequest,
        caller: Caller,
        peer: Peer,
        emit: Emit,
        disconnected: threading.Event,
    ) -> CommandEnd:
        """Run `argv` in `host` as `caller` until it has ended (request `exec`). Return its exit code, and the
        reason if it could not be run. Root, behind sudo, names the user for whom it acts.
        """
        host, argv = word(request.host, "host"), words(request.argv, "argv")
        if not argv or not argv[0]:
            raise RequestError("argv: a program and its arguments are accepted")
        cwd, env = (
            str(absolute(request.cwd, "cwd")),
            environment(environ(request.environ), caller),
        )
        behind = Caller.asking(peer, request.behind)
        with (
            self._place(),
            self._visited(host, behind.uid, caller.uid),
            self._hosts.enclosed("command", caller.uid) as enclosure,
            self._process(host, argv, env, cwd, caller, emit, enclosure) as process,
        ):
            self._wait(process, disconnected)
            process.end_session()
            code = process.wait()
            if self._why_ending and not disconnected.is_set():
                raise TestbedError(self._why_ending)
            killed = (
                f"its keeper {exit_in_words(code)}" if code < 0 else None
            )  # ended by a signal: 128 plus its number
            return CommandEnd(code if code >= 0 else 128 - code, process.why_not() or killed)

    def stop_all(self, why: str, within_s: float) -> None:
        """End all commands, and accept no more."""
        with self._changed:
            self._why_ending = why
            self._changed.wait_for(lambda: not self._running, within_s)

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        with self._changed:
            if self._why_ending:
                raise TestbedError(self._why_ending)
            if self._running >= self._most:
                raise RequestError(f"{self._most} commands run in hosts already: wait until one has ended")
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def _process(
        self,
        host: str,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        cwd: str,
        caller: Caller,
        emit: Emit,
        enclosure: EnclosureHandle,
    ) -> Iterator[Spawned]:
        """Start the command's keeper, and send the client its socket."""
        theirs, keepers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, keepers:
            try:
                process = self._hosts.popen_in(
                    host,
                    isolated("-I", "-S", keeper.__file__, str(keepers.fileno()), *argv),
                    enclosure,
                    uid=caller.uid,
                    gid=caller.gid,
                    groups=caller.groups,
                    env=env,
                    cwd=cwd,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(keepers.fileno(),),
                    new_session=True,
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise RequestError(f"run {argv[0]} in {host}: {error}") from error
            emit({"host": host}, theirs.fileno())
        try:
            yield process
        finally:
            process.kill()  # does nothing once it is reaped
            process.wait()

    def _wait(self, process: Spawned, disconnected: threading.Event) -> None:
        """Wait until the keeper has ended; end it if the client disconnects or the testbed ends."""
        pidfd, kill_at = os.pidfd_open(process.pid), float("inf")
        try:
            while not ready([pidfd], _TICK_S):
                if kill_at == float("inf") and (disconnected.is_set() or self._why_ending):
                    kill_at = time.monotonic() + _HUP_S
                    _signal(pidfd, signal.SIGTERM)
                if time.monotonic() > kill_at:
                    _signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def _signal(pidfd: int, number: signal.Signals) -> None:
    """Send a signal by pidfd; Popen's method would reap a process that has ended."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def environment(environ: Mapping[str, str], caller: Caller) -> dict[str, str]:
    """Return the client's environment without the variables that a testbed sets for its jobs."""
    env = {name: value for name, value in environ.items() if not name.startswith("TESTBED_")}
    known = {
        "HOME": caller.home,
        "USER": caller.user,
        "LOGNAME": caller.user,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }
    return known | env
