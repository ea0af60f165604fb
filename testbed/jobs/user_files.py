"""Access users' files for the daemon, through a process of the user (file_host.py) with a deadline.

So each path is opened with the user's own rights and groups, and nothing at it (a pipe without a writer, a
file system that does not answer, another user's file) can block the daemon for long.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.interpreters import isolated
from testbed.jobs import file_host
from testbed.machine.process import Spawned

WITHIN_S = 30.0
TOGETHER_BYTES = 64 << 20  # the most bytes that one call reads

Spawn = Callable[..., Spawned]


class UserFiles:
    """Accesses users' files. Thread-safe. `spawn(argv, **options)` starts a process."""

    def __init__(self, spawn: Spawn, within_s: float = WITHIN_S) -> None:
        self._spawn, self._within_s = spawn, within_s

    def open_logs(self, paths: Sequence[Path], caller: Caller) -> list[int]:
        """Empty the logs, and return descriptors that append to them. Raises RequestError."""
        return self._open("log", "log", paths, caller)

    def open_output(self, path: Path, caller: Caller) -> int:
        """Return a descriptor that writes from the file's start; the content is not truncated. Raises
        RequestError.
        """
        (fd,) = self._open("open", "--output", [path], caller)
        return fd

    def read(self, paths: Sequence[Path], caller: Caller, most_bytes: int) -> list[bytes | OSError | None]:
        """Read the files. A result is None if there is no file, and an OSError if it cannot be read, has more
        than `most_bytes`, or exceeds TOGETHER_BYTES together with those before.
        """
        contents: list[bytes | OSError | None] = []
        room = TOGETHER_BYTES
        try:
            with self._process("read", paths, caller) as peer:
                for _ in paths:
                    content, size = peer.content(min(most_bytes, room), room)
                    contents.append(content)
                    room -= size
        except OSError as error:  # the process ended, or its time or the room is used up
            contents += [error] * (len(paths) - len(contents))
        return contents

    def write(self, path: Path, content: bytes, caller: Caller) -> None:
        """Replace the file's content. Raises OSError, whose `strerror` says why that failed, or stopped
        halfway.
        """
        with self._process("write", [path], caller) as peer:
            peer.send(content)
            _reason(peer.message()[0])

    def make_folders(self, paths: Sequence[Path], caller: Caller) -> None:
        """Make the missing folders, with their parents. Raises RequestError for one that the user cannot
        make, or not write.
        """
        made = 0
        try:
            with self._process("folder", paths, caller) as peer:
                while made < len(paths):
                    _reason(peer.message()[0])
                    made += 1
        except OSError as error:
            raise RequestError(
                f"folder {paths[made]}: user {caller.user} cannot write there: {error.strerror}"
            ) from error

    def _open(self, action: str, what: str, paths: Sequence[Path], caller: Caller) -> list[int]:
        fds: list[int] = []
        with contextlib.ExitStack() as undo:
            try:
                with self._process(action, paths, caller) as peer:
                    for _ in paths:
                        message, passed = peer.message()
                        fds += passed
                        for fd in passed:
                            undo.callback(os.close, fd)
                        _reason(message)
                        if not passed:  # the user may interfere with that process
                            raise OSError(0, "the process that opens it passed no descriptor")
            except OSError as error:
                path = paths[min(len(fds), len(paths) - 1)]
                raise RequestError(
                    f"{what} {path}: user {caller.user} cannot write it: {error.strerror}"
                ) from error
            undo.pop_all()
        return fds

    @contextlib.contextmanager
    def _process(self, action: str, paths: Sequence[Path], caller: Caller) -> Iterator[_Peer]:
        """Start a process for this action, which ends with the block. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = isolated("-I", "-S", file_host.__file__, action, *map(str, paths))
        with ours:
            with theirs:
                process = self._spawn(
                    argv,
                    uid=caller.uid,
                    gid=caller.gid,
                    groups=caller.groups,
                    env={},
                    stdin=theirs.fileno(),
                    new_session=True,
                )
            try:
                yield _Peer(ours, time.monotonic() + self._within_s)
            except TimeoutError as error:
                raise OSError(error.errno, f"it takes longer than {self._within_s:g} s") from error
            finally:
                process.end()


class _Peer:
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = connection, deadline

    def message(self) -> tuple[bytes, list[int]]:
        self._until_deadline()
        message, fds, _, _ = socket.recv_fds(self._socket, file_host.PIECE_BYTES + 1, 1)
        for fd in fds:  # Python 3.11's recv_fds does not pass on MSG_CMSG_CLOEXEC
            os.set_inheritable(fd, False)
        return message, fds

    def content(self, most_bytes: int, end_bytes: int) -> tuple[bytes | OSError | None, int]:
        """Return the content of a path, and the number of bytes received. Raises OSError beyond
        `end_bytes`.
        """
        pieces: list[bytes] = []
        size = 0
        while (message := self.message()[0])[:1] == b"+":
            size += len(message) - 1
            if size > end_bytes:
                raise OSError(0, f"there are more than {TOGETHER_BYTES >> 20} MiB to read together")
            if size <= most_bytes:
                pieces.append(message[1:])
            else:
                pieces.clear()
        if message == b"0":
            return None, size
        if message != b".":
            try:
                _reason(message)
            except OSError as error:
                return error, size
        if size > most_bytes:
            return OSError(0, f"it has {size} bytes, more than the {most_bytes} that are read"), size
        return b"".join(pieces), size

    def send(self, content: bytes) -> None:
        for at in range(0, len(content), file_host.PIECE_BYTES):
            self._until_deadline()
            self._socket.send(content[at : at + file_host.PIECE_BYTES])
        self._socket.shutdown(socket.SHUT_WR)

    def _until_deadline(self) -> None:
        self._socket.settimeout(max(0.01, self._deadline - time.monotonic()))


def _reason(message: bytes) -> None:
    """Raise OSError unless the message says that the action was done."""
    if not message:
        raise OSError(0, "the process that does it ended; the daemon's log says more")
    if message[:1] == b"-":
        raise OSError(0, message[1:].decode(errors="replace"))
