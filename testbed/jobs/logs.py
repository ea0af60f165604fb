"""The output of a job's processes: to their logs, and line by line to whoever listens. Owns the thread that
carries it.

Nobody else waits for that thread for longer than it says: a log on a disk that hangs, and a process that
prints without end, hold up what is printed and nothing else.
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
DRAIN_S = 1.0  # for pipes that a process which left its session holds open
HUNG_S = 5.0  # more, for one that prints without end, or a log that takes nothing


def own_log(path: Path, caller: Caller) -> int:
    """Return a descriptor of a new log in a folder of root's, which the user may read. Raises OSError."""
    path.unlink(missing_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        os.fchown(log, caller.uid, caller.gid)
    return log


class _Output:
    """The pipe that a process writes to, and its log. `listen` gets whole lines, without their end."""

    def __init__(self, pipe: int, log: int, path: Path, listen: Callable[[str], None]) -> None:
        self.pipe, self._log, self._path, self._listen = pipe, log, path, listen
        self._pending = b""
        self.lost: str | None = None

    def read(self) -> bool:
        """Take what there is to read in a pipe that is ready; return False at its end."""
        data = os.read(self.pipe, _PIECE_BYTES)
        if not data:
            return False
        self._keep(data)
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > _LONGEST_LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        for line in lines:
            self._listen(line.decode(errors="replace").rstrip("\r"))
        return True

    def _keep(self, data: bytes) -> None:
        """Write to the log, unless that took no more once."""
        try:
            while data and self.lost is None:
                data = data[os.write(self._log, data) :]
        except OSError as error:
            self.lost = f"log {self._path}: {error.strerror}: it lacks output"

    def close(self) -> None:
        if self._pending:
            self._listen(self._pending.decode(errors="replace"))
        os.close(self.pipe)
        os.close(self._log)


class Outputs:
    """The outputs of one job. `add` and `finish` are its keeper's; `listen(label, line)` is called by the
    thread of this, and must not wait.
    """

    def __init__(
        self, listen: Callable[[str, str], None], drain_s: float = DRAIN_S, hung_s: float = HUNG_S
    ) -> None:
        self._listen, self._drain_s, self._hung_s = listen, drain_s, hung_s
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._lock = threading.Lock()  # the two below
        self._new: list[_Output] = []
        self._finish_at: float | None = None
        self._outputs: list[_Output] = []
        self._thread = threading.Thread(target=self._carry, name="output", daemon=True)
        self._thread.start()

    def add(self, pipe: int, log: int, path: Path, label: str) -> None:
        """Carry a process's output from now on; takes both descriptors."""
        with self._lock:
            self._new.append(_Output(pipe, log, path, lambda line: self._listen(label, line)))
        os.eventfd_write(self._wake, 1)

    def finish(self) -> list[str]:
        """Wait until all that was printed is in its log, within the times above; return what is lacking, a
        line each.
        """
        with self._lock:
            if self._finish_at is None:
                self._finish_at = time.monotonic() + self._drain_s
                os.eventfd_write(self._wake, 1)
        self._thread.join(self._drain_s + 2 * self._hung_s)
        lacking = [output.lost for output in self._outputs if output.lost is not None]
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
                    return  # nothing came for a while, and somebody holds a pipe open
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
