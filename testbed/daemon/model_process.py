"""The process of a user's optical model, as the daemon keeps it: as that user, aside of all hosts, at a
socket that root alone can connect to.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.client.caller import Caller
from testbed.emulation.ready import ready
from testbed.emulation.spawner import Started
from testbed.errors import TestbedError
from testbed.interpreters import isolated

Spawn = Callable[..., Started]


class ModelProcess:
    """A context manager around the model's life. The controller asks it by the socket at `path`. One that
    ended is started again once it is asked: whoever connects waits until then.
    """

    def __init__(
        self, spawn: Spawn, name: str, path: Path, caller: Caller, environ: Mapping[str, str]
    ) -> None:
        """`spawn(argv, **options)` starts a process, `name` is FILE.py:CLASS, `environ` the process's."""
        self._spawn, self._name, self._caller, self._environ = spawn, name, caller, environ
        self._path = path
        self._process: Started | None = None
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
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        """Return 0 where it has not been started."""
        return self._process.pid if self._process else 0

    def restart(self) -> None:
        """Load the class again, for a controller that is started again."""
        self._end()
        self._start()

    def watch(self) -> None:
        """Start a process that has ended again, if somebody asks it."""
        if self._process is not None and self._process.poll() is None:
            return
        if ready([self._listener.fileno()], 0.0):
            self.restart()

    def _start(self) -> None:
        argv = isolated("-u", "-m", "testbed.emulation.model_host", self._name)
        try:
            self._process = self._spawn(
                argv,
                uid=self._caller.uid,
                gid=self._caller.gid,
                groups=self._caller.groups,
                env=self._environ,
                cwd=str(Path(self._name.rpartition(":")[0]).parent),
                stdin=self._listener.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise TestbedError(f"start optical model {self._name}: {error}") from error

    def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.end()
