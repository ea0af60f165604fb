"""The process of a user's optical model, as the daemon keeps it: as that user, aside of all hosts, at a
socket that root alone can connect to.
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
STARTS = 3  # one that answered, and ended, may look as if it had not accepted: between two looks
_LOOK_S = 0.1
_MOST_BYTES = 1 << 16  # of what it says when it is ready

Spawn = Callable[..., Spawned]


class ModelProcess:
    """A context manager around the model's life; entering waits until the class is loaded and its model made.
    The controller asks it by the socket at `path`. One that ended is started again once it is asked: whoever
    connects waits until then.
    """

    def __init__(
        self, spawn: Spawn, topology: Topology, path: Path, caller: Caller, environ: Mapping[str, str]
    ) -> None:
        """`spawn(argv, **options)` starts a process, whose model is the topology's, `environ` the
        process's.
        """
        self._spawn, self._topology, self._caller, self._environ = spawn, topology, caller, environ
        self._name, self._path = topology.ocs.model, path
        self._process: Spawned | None = None
        self._starts = 0  # while somebody waited all the time
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
        """Return 0 where it has not been started."""
        return self._process.pid if self._process else 0

    def restart(self) -> None:
        """Load the class again, for a controller that is started again. What fails is said on standard error,
        and `watch` tries again.
        """
        try:
            self._end()
            self._start()
        except TestbedError as error:
            self._say(str(error))

    def watch(self) -> None:
        """Start a process that has ended again, if somebody asks it. Where it ends `STARTS` times before it
        accepts the connection, whoever asks is refused.
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
        """Wait until the model can be asked. TestbedError, in one line, where it cannot be."""
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
                    if self._process.poll() is not None:  # its socket is this process's, too, and stays open
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
        """Close the connections that wait, and wait for none: a process of the user's, which has the socket
        as well, may have taken it. None of them lives now that would notice that the socket does not block.
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
        """Write a line to the daemon's log, once while it is the same."""
        if line != self._said:
            print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)
        self._said = line

    def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.end()
