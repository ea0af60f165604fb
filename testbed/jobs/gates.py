"""The gates of a scheduled job: where its workers wait, their libraries loaded, until it is started and they
are told how they sum.

One socket pair a worker. The worker's end is inherited; workloads/job_env.py, called at the end of `import
torch`, says `here` on it and receives one message, with the descriptors that it names.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence

from testbed.machine.ready import ready
from testbed.wire.settings import GateSettings, SumSettings, written


class Gates:
    """`workers` gates. Whoever made them closes them; the other calls may come at any time until then."""

    def __init__(self, workers: int) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(workers)]
        self._ours, self._theirs = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
        self._waiting = set(range(workers))  # those that have not come yet

    def fd(self, worker: int) -> int:
        """Return the descriptor of a worker's end, which the worker inherits."""
        return self._theirs[worker].fileno()

    def are_inherited(self) -> None:
        """Lets go of the workers' ends: from now on a worker that ended is noticed, and so is the end of this
        process by them.
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
        """Tells a worker what it waits for. One that has ended is not told."""
        message = written(GateSettings(sums, tuple(fds))).encode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._ours[worker], [message], list(fds))

    def close(self) -> None:
        for end in (*self._ours, *self._theirs):
            end.close()
