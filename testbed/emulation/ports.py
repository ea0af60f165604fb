"""Watch the TCP ports of hosts while a job runs, and whether a process of the job or another process there
(`testbed exec`) owns them. A job has its hosts to itself, so no other job's processes are there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.telemetry.traffic import SeenPorts

_EVERY_S, _SHARE = 1.0, 0.01  # seconds between scans; at most this share of a core
_TABLES = ("net/tcp", "net/tcp6")
_LOCAL, _INODE = 1, 9  # columns
_SESSION = 3  # in /proc/PID/stat, of the fields after the program's name


class PortWatch:
    """Scans at once, then every second, or less often if a scan takes more than a hundredth of a core. A
    context manager: `ports` is what was seen since it was entered. `namespaces` maps hosts to the files of
    their network namespaces. A job's processes have one of `signs` in their command line or environment.
    """

    def __init__(
        self, namespaces: Mapping[str, Path], signs: Sequence[bytes], processes: Path = Path("/proc")
    ) -> None:
        self.ports, self._signs = SeenPorts(), tuple(signs)
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
        wait_s = 0.0
        while not self._is_over.wait(wait_s):
            began_s = time.thread_time()
            with contextlib.suppress(OSError):  # such as no free descriptor: the next scan may succeed
                self.look()
            wait_s = max(_EVERY_S, (time.thread_time() - began_s) / _SHARE)

    def look(self) -> None:
        """Add the ports that exist now."""
        inodes: dict[
            str, tuple[set[str], set[str]]
        ] = {}  # by host: inodes of its job's sockets, and of others'
        tables: dict[str, Path] = {}
        for process in self._processes.iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # the process ends meanwhile
                host = self._hosts.get((process / "ns" / "net").stat().st_ino)
                if host is not None and (is_own := self._is_own(process)) is not None:
                    own, others = inodes.setdefault(host, (set(), set()))
                    (own if is_own else others).update(_sockets(process))
                    tables[host] = process
        for host, (own, others) in inodes.items():
            with contextlib.suppress(OSError):
                for port, inode in _ports(tables[host]) if own or others else ():
                    if inode in own:
                        self.ports.own.add((host, port))
                    elif inode in others:
                        self.ports.others.add((host, port))

    def _is_own(self, process: Path) -> bool | None:
        """Return whether a process is the job's: it, or the leader of its session, has a sign, or it is a
        fork of the template. None during an execve(2), when its data are empty.
        """
        session = (process / "stat").read_text().rpartition(")")[2].split()[_SESSION]
        said = [_said(process)]
        with contextlib.suppress(OSError):  # the leader has ended
            said.append(_said(self._processes / session))
        return None if not said[0] else any(sign in each for each in said for sign in self._signs)


def _said(process: Path) -> bytes:
    """Return the command line and environment of a process; empty during an execve(2)."""
    environment = (process / "environ").read_bytes()
    words = (process / "cmdline").read_bytes()
    return b"\0" + words + b"\0" + environment if words else b""


def _sockets(process: Path) -> Iterator[str]:
    """Yield the inodes of a process's open sockets."""
    for each in os.scandir(process / "fd"):
        with contextlib.suppress(OSError):
            kind, _, rest = os.readlink(each.path).partition(":[")
            if kind == "socket":
                yield rest.rstrip("]")


def _ports(process: Path) -> Iterator[tuple[int, str]]:
    """Yield the local port and inode of all TCP sockets in a process's network namespace."""
    for table in _TABLES:
        for line in (process / table).read_text().splitlines()[1:]:
            columns = line.split()
            yield int(columns[_LOCAL].rpartition(":")[2], 16), columns[_INODE]
