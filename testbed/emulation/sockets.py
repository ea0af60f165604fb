"""End a process that holds many packet sockets quickly.

At the last close of a packet socket the kernel waits for an RCU grace period (6 to 12 ms on 2 cores), and it
closes an ended process's sockets one after the other. Open vSwitch's user-space datapath has one for each
port: at 512 ports its end took 6 s. Closing by several threads shares the grace periods.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from testbed.emulation.namespaces import call_libc

_SYS_PIDFD_GETFD = 438  # the same number on every architecture
_THREADS = 32


@contextlib.contextmanager
def shared_sockets(pid: int) -> Iterator[None]:
    """Duplicate a process's sockets while the block ends it, then close them by many threads.

    Sockets that cannot be duplicated (the process is gone, too many open files) are left to the kernel.
    """
    held: list[int] = []
    with contextlib.suppress(OSError):
        _share(pid, held)
    try:
        yield
    finally:
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(os.close, held))


def _share(pid: int, held: list[int]) -> None:
    process = os.pidfd_open(pid)
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{entry}").startswith("socket:"):
                    held.append(call_libc("syscall", _SYS_PIDFD_GETFD, process, int(entry), 0))
    finally:
        os.close(process)
