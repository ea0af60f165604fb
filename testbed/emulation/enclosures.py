"""All that a job, a command in a host, or a user's class started, wherever it went: kept together, and ended
together.

Each has a cgroup of its own, which no process of a user's can leave. And whatever a user still has in the
network namespace of one of its hosts is ended too, unless something else of that user's is there: where this
machine gives no cgroups, that alone holds, and a mark in the environment.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from testbed.cgroups.hierarchy import end_members, members
from testbed.emulation.leftovers import end_those, environment_of, users_of

MARK = "TESTBED_ENCLOSURE"
_ROOT = 0


class Enclosures:
    """Those of a fabric. `folder` is the cgroup that theirs are made in, None where this machine gives none;
    `limits` has the cgroups of hosts that have a limit, and `namespace` returns a descriptor of a host's
    network namespace. Thread-safe.
    """

    def __init__(
        self, folder: Path | None, limits: Mapping[str, Path], namespace: Callable[[str], int]
    ) -> None:
        self._folder, self._limits, self._namespace = folder, limits, namespace
        self._numbers = itertools.count(1)
        self._users: Counter[tuple[int, int]] = Counter()  # of a network namespace: who has how many there
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self, name: str, uid: int) -> Iterator[Enclosure]:
        """Make one for what runs as this user; it is ended with the block."""
        enclosure = self.open(name, uid)
        try:
            yield enclosure
        finally:
            enclosure.end()

    def open(self, name: str, uid: int) -> Enclosure:
        """Make one, which `Enclosure.end` ends."""
        return Enclosure(self, f"{name}-{next(self._numbers)}", uid)

    def cgroups_of(self, host: str, name: str) -> list[Path]:
        """Return the cgroups that a process enters at a host, in this order, made where they are not there:
        that of the host's limit, and the enclosure's, below it where both are of one hierarchy.
        """
        limit = self._limits.get(host)
        if self._folder is None:
            return [] if limit is None else [limit]
        is_one = limit is not None and limit.stat().st_dev == self._folder.stat().st_dev
        own = (limit if limit is not None and is_one else self._folder) / name
        own.mkdir(exist_ok=True)
        return [own] if limit is None or is_one else [limit, own]

    def enter(self, host: str, uid: int) -> int:
        """Note that something of this user's is at a host, and return the host's network namespace."""
        number = os.fstat(self._namespace(host)).st_ino
        with self._lock:
            self._users[number, uid] += 1
        return number

    def leave(self, namespaces: Sequence[int], uid: int) -> None:
        """Take back what `enter` noted of these."""
        with self._lock:
            self._users.subtract((number, uid) for number in namespaces)

    def is_empty(self, namespace: int, uid: int) -> bool:
        """Return whether nothing that was noted of this user is in a network namespace."""
        with self._lock:
            return not self._users[namespace, uid]


class Enclosure:
    """All that runs for one of them. `mark` belongs into the environment of each process."""

    def __init__(self, every: Enclosures, name: str, uid: int) -> None:
        self._every, self._name, self._uid = every, name, uid
        self.mark = {MARK: secrets.token_hex(8)}
        self._namespaces: dict[str, int] = {}
        self._cgroups: set[Path] = set()
        self._lock = threading.Lock()

    def hold(self, host: str, pid: int) -> None:
        """Take in a process that somebody else started at a host. Raises OSError."""
        for cgroup in self.at(host):
            members(cgroup).write_text(str(pid))

    def at(self, host: str) -> list[Path]:
        """Return the cgroups that its next process at a host is to enter. Raises OSError."""
        with self._lock:
            if host not in self._namespaces:
                self._namespaces[host] = self._every.enter(host, self._uid)
            cgroups = self._every.cgroups_of(host, self._name)
            self._cgroups.update(path for path in cgroups if path.name == self._name)
            return cgroups

    def end(self) -> int:
        """Kill whatever is left of it, wait until that is gone, and return how much it was."""
        with self._lock:
            namespaces, self._namespaces = set(self._namespaces.values()), {}
            cgroups, self._cgroups = sorted(self._cgroups), set()
        self._every.leave(sorted(namespaces), self._uid)
        ended = sum(end_members(cgroup) for cgroup in cgroups)
        mark = "".join(f"{name}={value}" for name, value in self.mark.items()).encode()

        def belongs(process: Path) -> bool:
            if self._uid != _ROOT and self._uid in users_of(process):
                number = (process / "ns/net").stat().st_ino
                if number in namespaces and self._every.is_empty(number, self._uid):
                    return True
            return mark in environment_of(process).split(b"\0")

        ended += end_those(belongs)
        for cgroup in cgroups:
            with contextlib.suppress(OSError):  # the keeper takes what is left with the testbed
                cgroup.rmdir()
        return ended
