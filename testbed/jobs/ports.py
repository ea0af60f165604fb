"""The TCP ports of hosts while a job runs, and whose they are: its processes', or those of commands that
somebody runs there (`testbed exec`). A job holds its hosts alone, so that what else runs in their network
namespaces is its own: workers, what they start, and who serves them.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.telemetry.traffic import SeenPorts

COMMAND = "TESTBED_COMMAND"
"""The variable in the environment of commands."""
_EVERY_S, _SHARE = 1.0, 0.01  # between looks; of a core at most
_TABLES = ("net/tcp", "net/tcp6")
_LOCAL, _INODE = 1, 9  # columns


class PortWatch:
    """Looks every second, or less often where that takes more than a hundredth of a core. A context manager:
    `ports` is what was seen, by host, since it was entered. `namespaces` names hosts by the files of their
    network namespaces.
    """

    def __init__(self, namespaces: Mapping[str, Path], processes: Path = Path("/proc")) -> None:
        self.ports = SeenPorts()
        self._hosts = {path.stat().st_ino: host for host, path in namespaces.items()}
        self._processes = processes
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ports", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        wait_s = _EVERY_S
        while not self._is_over.wait(wait_s):
            began_s = time.thread_time()
            self.look()
            wait_s = max(_EVERY_S, (time.thread_time() - began_s) / _SHARE)

    def look(self) -> None:
        """Add the ports that there are now."""
        for process in self._processes.iterdir():
            # it ends meanwhile, or is another user's in a user namespace
            with contextlib.suppress(OSError, ValueError):
                host = self._hosts.get((process / "ns" / "net").stat().st_ino)
                if host is not None:
                    is_command = any(
                        each.startswith(f"{COMMAND}=".encode())
                        for each in (process / "environ").read_bytes().split(b"\0")
                    )
                    seen = self.ports.others if is_command else self.ports.own
                    seen |= {(host, port) for port in _ports_of(process)}


def _ports_of(process: Path) -> Iterator[int]:
    """Generate the local ports of the TCP sockets that a process has open."""
    inodes = set()
    for each in os.scandir(process / "fd"):
        with contextlib.suppress(OSError):
            kind, _, rest = os.readlink(each.path).partition(":[")
            if kind == "socket":
                inodes.add(rest.rstrip("]"))
    for table in _TABLES if inodes else ():
        for line in (process / table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[_INODE] in inodes:
                yield int(columns[_LOCAL].rpartition(":")[2], 16)
