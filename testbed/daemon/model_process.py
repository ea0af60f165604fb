"""The daemon's management of the process of a user's optical model: it runs as that user, without access to
hosts, at a socket to which only root can connect.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.client.caller import Caller
from testbed.errors import TestbedError
from testbed.interpreters import isolated
from testbed.machine.process import Spawned
from testbed.machine.ready import ready
from testbed.topology.model import Topology

READY_WITHIN_S = 60.0
STARTS = 3  # a process that answered and ended between two polls looks as if it had not accepted
_LOOK_S = 0.1
_MOST_BYTES = 1 << 16  # of its first answer

Spawn = Callable[..., Spawned]


class ModelProcess:
    """A context manager of the model's process; entering waits until the class is loaded and the model made.
    The controller queries it by the socket at `path`. A process that ended is restarted at the next query;
    the querier's connection waits until then.
    """

    def __init__(
        self, spawn: Spawn, topology: Topology, path: Path, caller: Caller, environ: Mapping[str, str]
    ) -> None:
        """Store the arguments. `spawn(argv, **options)` starts a process; the model is the topology's, and
        `environ` is the process's environment.
        """
        self._spawn, self._topology, self._caller, self._environ = spawn, topology, caller, environ
        self._name, self._path = topology.ocs.model, path
        self._process: Spawned | None = None
        self._starts = 0  # restarts during which a connection kept waiting
        self._said = ""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> ModelProcess:
        with contextlib.ExitStack() as stack:
            self._listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            before = os.umask(0o177)
            try:
                self._listener.bind(str(self._path))
            finally:
                os.umask(before)
            stack.callback(self._path.unlink, missing_ok=True)
            self._listener.listen()
            stack.callback(self._end)
            self._start()
            self._await_model()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        """The process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    def restart(self) -> None:
        """Load the class again, for a restarted controller. A failure is printed on standard error, and
        `watch` tries again.
        """
        try:
            self._end()
            self._start()
        except TestbedError as error:
            self._say(str(error))

    def watch(self) -> None:
        """Restart an ended process if a connection waits for it. If it ends `STARTS` times before it accepts
        the connection, refuse the connection.
        """
        if not ready([self._listener.fileno()], 0.0):
            self._starts = 0
            return
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._say(f"optical model {self._name}: its process ended with {code}")
            if self._starts >= STARTS:
                self._end()
                self._refuse()
                return
        self.restart()
        self._starts += self._process is not None

    def _start(self) -> None:
        argv = isolated("-u", "-m", "testbed.emulation.model_host", self._name)
        try:
            self._process = self._spawn(
                argv,
                uid=self._caller.uid,
                gid=self._caller.gid,
                groups=self._caller.groups,
                env=self._environ,
                stdin=self._listener.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise TestbedError(f"start optical model {self._name}: {error}") from error

    def _await_model(self) -> None:
        """Wait until the model can be queried. TestbedError, in one line, if it cannot be."""
        assert self._process is not None
        deadline, said = time.monotonic() + READY_WITHIN_S, b""
        question = json.dumps({"topology": self._topology.to_json(), "ready": True}).encode() + b"\n"
        with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(ConnectionError):
            peer.connect(str(self._path))
            peer.settimeout(_LOOK_S)
            while not said.endswith(b"\n") and len(said) < _MOST_BYTES:
                try:
                    if question:
                        question = question[peer.send(question) :]
                    elif piece := peer.recv(_MOST_BYTES):
                        said += piece
                    else:
                        break
                except TimeoutError:
                    if (
                        self._process.poll() is not None
                    ):  # this process holds the socket too, so it stays open
                        break
                if time.monotonic() > deadline:
                    raise TestbedError(
                        f"start optical model {self._name}: it is not loaded after {READY_WITHIN_S:g} s"
                    )
        try:
            answer = json.loads(said)
            if answer == {"ready": True}:
                return
            why = " ".join(str(answer["refused"]).split())
        except (KeyError, TypeError, ValueError, RecursionError):
            raise TestbedError(
                f"start optical model {self._name}: its process ended before it was loaded"
            ) from None
        raise TestbedError(why)

    def _refuse(self) -> None:
        """Close all waiting connections without blocking: a user's process, which holds the socket too, may
        already have accepted one. No such process is alive to notice that the socket is non-blocking for a
        moment.
        """
        self._listener.setblocking(False)
        try:
            while True:
                self._listener.accept()[0].close()
        except BlockingIOError:
            pass
        finally:
            self._listener.setblocking(True)

    def _say(self, line: str) -> None:
        """Write a line to the daemon's log, unless it repeats the previous one."""
        if line != self._said:
            print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)
        self._said = line

    def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.end()
