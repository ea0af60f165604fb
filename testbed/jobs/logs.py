"""Carry the output of a job's processes to their logs and, line by line, to a listener. Owns the thread that
does so.

Other threads wait for that thread only within the times below: a log on a disk that hangs, and a process that
prints without end, delay their own output and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Callable
from pathlib import Path

from testbed.client.caller import Caller

_LONGEST_LINE_BYTES = 65536
_PIECE_BYTES = 65536
LAST_BYTES = 65536  # the end of the output that a bounded log keeps in addition
DRAIN_S = 1.0  # wait for pipes held open by a process that left its session
HUNG_S = 5.0  # further wait for a process that prints without end, or a log that accepts no data


def own_log(path: Path, caller: Caller) -> int:
    """Create a log in a folder of root's, readable by the user, and return its descriptor. Raises OSError."""
    path.unlink(missing_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        os.fchown(log, caller.uid, caller.gid)
    return log


class _Log:
    """A log being written: the first `most_bytes`, then at its end the last LAST_BYTES of further output."""

    def __init__(self, fd: int, path: Path, most_bytes: int | None) -> None:
        self._fd, self._path, self._most_bytes = fd, path, most_bytes
        self._size = self._omitted = 0
        self._last = b""
        self.lost: str | None = None

    def write(self, data: bytes) -> None:
        """Append output. After a failed write, that output and all that follows is lost."""
        room = len(data) if self._most_bytes is None else self._most_bytes - self._size
        self._write(data[:room])
        self._size += len(data[:room])
        if rest := data[room:]:
            kept = (self._last + rest)[-LAST_BYTES:]
            self._omitted += len(self._last) + len(rest) - len(kept)
            self._last = kept

    def close(self) -> None:
        """Write the end of the output, after a line that counts the omitted bytes, and close the file."""
        if self._omitted:
            cut, end, rest = self._last.partition(b"\n")
            if end:  # whole lines
                self._omitted, self._last = self._omitted + len(cut) + 1, rest
            self._write(f"\n... {self._omitted} bytes are left out here ...\n".encode())
            if self.lost is None:
                self.lost = (
                    f"log {self._path}: {self._omitted} bytes are left out before its last "
                    f"{LAST_BYTES >> 10} KiB; with --logs DIR all are kept"
                )
        self._write(self._last)
        os.close(self._fd)

    def _write(self, data: bytes) -> None:
        try:
            while data and (self.lost is None or self._omitted):
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self.lost = f"log {self._path}: {error.strerror}: it lacks output"


class _Output:
    """The pipe that a process writes to, and its log. `listen` gets whole lines, without their end."""

    def __init__(self, pipe: int, log: _Log, listen: Callable[[str], None]) -> None:
        self.pipe, self.log, self._listen = pipe, log, listen
        self._pending = b""

    def read(self) -> bool:
        """Read the available data of a ready pipe; return False at its end."""
        data = os.read(self.pipe, _PIECE_BYTES)
        if not data:
            return False
        self.log.write(data)
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _LONGEST_LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        for line in lines:
            self._listen(line.decode(errors="replace").rstrip("\r"))
        return True

    def close(self) -> None:
        if self._pending:
            self._listen(self._pending.decode(errors="replace"))
        os.close(self.pipe)
        self.log.close()


class Outputs:
    """The outputs of one job. The job's own thread calls `add` and `finish`; this object's thread calls
    `listen(label, line)`, which must not block.
    """

    def __init__(
        self, listen: Callable[[str, str], None], drain_s: float = DRAIN_S, hung_s: float = HUNG_S
    ) -> None:
        self._listen, self._drain_s, self._hung_s = listen, drain_s, hung_s
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._lock = threading.Lock()  # guards the two below
        self._new: list[_Output] = []
        self._finish_at: float | None = None
        self._outputs: list[_Output] = []
        self._thread = threading.Thread(target=self._carry, name="output", daemon=True)
        self._thread.start()

    def add(self, pipe: int, log: int, path: Path, label: str, most_bytes: int | None = None) -> None:
        """Carry a process's output from now on; owns both descriptors. Its log keeps `most_bytes`, and the
        end of the output.
        """
        with self._lock:
            log_of = _Log(log, path, most_bytes)
            self._new.append(_Output(pipe, log_of, lambda line: self._listen(label, line)))
        os.eventfd_write(self._wake, 1)

    def finish(self) -> list[str]:
        """Wait until all output is in its logs, within the times above; return a line for each log that lacks
        output.
        """
        with self._lock:
            if self._finish_at is None:
                self._finish_at = time.monotonic() + self._drain_s
                os.eventfd_write(self._wake, 1)
        self._thread.join(self._drain_s + 2 * self._hung_s)
        lacking = [output.log.lost for output in self._outputs if output.log.lost is not None]
        if self._thread.is_alive():
            lacking.append(f"the logs took no output for {self._hung_s:g} s, and lack some")
        return lacking

    # ------------------------------------------------------------------ its thread

    def _carry(self) -> None:
        open_outputs: set[_Output] = set()
        try:
            while True:
                with self._lock:
                    coming, self._new, finish_at = self._new, [], self._finish_at
                for output in coming:
                    self._selector.register(output.pipe, selectors.EVENT_READ, output)
                self._outputs += coming
                open_outputs.update(coming)
                left_s = None if finish_at is None else finish_at - time.monotonic()
                if left_s is not None and (not open_outputs or left_s < -self._hung_s):
                    return
                ready = self._selector.select(None if left_s is None else max(0.0, left_s))
                if not ready and left_s is not None and left_s <= 0:
                    return  # no output for a while, though some process holds a pipe open
                for key, _ in ready:
                    if key.data is None:
                        with contextlib.suppress(BlockingIOError):
                            os.eventfd_read(self._wake)
                    elif not key.data.read():
                        self._selector.unregister(key.data.pipe)
                        open_outputs.discard(key.data)
                        key.data.close()
        finally:
            for output in open_outputs:
                output.close()
            self._selector.close()
            os.close(self._wake)
