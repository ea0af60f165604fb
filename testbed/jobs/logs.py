"""A process's output: to its log, opened as the job's user, and line by line to whoever listens.

Owns the acting as a user for one thread: the daemon has many threads, and seteuid would change all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.errors import RequestError
from testbed.runtime import Caller

_LONGEST_LINE_BYTES = 65536
_libc = ctypes.CDLL(None)


@contextlib.contextmanager
def files_as(caller: Caller) -> Iterator[None]:
    """File operations of this thread in the body have the user's rights. setfsuid(2) is the thread's own, and with a
    user other than root it drops the file capabilities as well."""
    _libc.setfsgid(caller.gid)
    _libc.setfsuid(caller.uid)
    try:
        yield
    finally:
        _libc.setfsuid(0 if os.geteuid() == 0 else os.geteuid())
        _libc.setfsgid(os.getegid())


def open_log(path: Path, caller: Caller) -> int:
    """A descriptor of the emptied log, which is the user's. Raises RequestError."""
    try:
        with files_as(caller):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RequestError(f"log {path}: user {caller.user} cannot write it: {error.strerror}") from error


class Output:
    """Reads the pipe that a process writes to. `listen` gets whole lines, without their end."""

    def __init__(self, pipe: int, log: int, listen: Callable[[str], None]) -> None:
        self.pipe = pipe
        self._log = log
        self._listen = listen
        self._pending = b""

    def read(self) -> bool:
        """Takes what is there, of a pipe that is ready; False at its end, when this is closed."""
        data = os.read(self.pipe, 65536)
        if not data:
            self.close()
            return False
        os.write(self._log, data)
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _LONGEST_LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        for line in lines:
            self._listen(line.decode(errors="replace").rstrip("\r"))
        return True

    def close(self) -> None:
        if self.pipe < 0:
            return
        if self._pending:
            self._listen(self._pending.decode(errors="replace"))
            self._pending = b""
        os.close(self.pipe)
        os.close(self._log)
        self.pipe = -1
