"""The gates of a scheduled job: its workers wait there, with their libraries loaded, until the job is started
and they get their settings.

One socket pair a worker. The worker inherits one end; workloads/job_env.py, called at the end of `import
torch`, sends `here` on it and receives one message, with the descriptors that it names.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence

from testbed.machine.ready import ready
from testbed.wire.settings import GateSettings, SumSettings, written


class Gates:
    """The gates of `workers` workers. Their owner closes them; until then, the other methods may be called at
    any time.
    """

    def __init__(self, workers: int) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(workers)]
        self._ours, self._theirs = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
        self._waiting = set(range(workers))  # the workers that have not arrived yet

    def fd(self, worker: int) -> int:
        """Return the descriptor of a worker's end, which the worker inherits."""
        return self._theirs[worker].fileno()

    def are_inherited(self) -> None:
        """Close this process's copies of the workers' ends: from now on, this process notices a worker's end,
        and workers notice this process's.
        """
        for theirs in self._theirs:
            theirs.close()

    def all_there(self) -> bool:
        """Return whether every worker waits."""
        by_fd = {self._ours[worker].fileno(): worker for worker in self._waiting}
        for fd in ready(by_fd, 0.0):
            with contextlib.suppress(ConnectionResetError):  # it has ended
                if self._ours[by_fd[fd]].recv(16):
                    self._waiting.discard(by_fd[fd])
        return not self._waiting

    def open(self, worker: int, sums: SumSettings, fds: Sequence[int]) -> None:
        """Send a worker its settings. A worker that has ended is skipped."""
        message = written(GateSettings(sums, tuple(fds))).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._ours[worker], [message], list(fds))

    def close(self) -> None:
        """Close both ends of all gates."""
        for end in (*self._ours, *self._theirs):
            end.close()
