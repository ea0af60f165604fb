"""Enclosures: hold together, and end together, everything that a job, a command in a host, or a user's class
started.

Each enclosure has a cgroup, which no user's process can leave. Besides, a user's processes in the network
namespace of one of its hosts are ended too, unless something else of the same user runs there. On a machine
without cgroups this is the only means, with a mark in the environment.
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
    """The enclosures of a fabric. `folder` is the cgroup in which theirs are made, None if the machine has no
    cgroups; `limits` has the cgroups of hosts with a limit; `namespace` returns a descriptor of a host's
    network namespace. Thread-safe.
    """

    def __init__(
        self, folder: Path | None, limits: Mapping[str, Path], namespace: Callable[[str], int]
    ) -> None:
        self._folder, self._limits, self._namespace = folder, limits, namespace
        self._numbers = itertools.count(1)
        self._users: Counter[tuple[int, int]] = Counter()  # enclosures by (network namespace, user)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self, name: str, uid: int) -> Iterator[Enclosure]:
        """Make an enclosure for processes of this user; it ends with the block."""
        enclosure = self.open(name, uid)
        try:
            yield enclosure
        finally:
            enclosure.end()

    def open(self, name: str, uid: int) -> Enclosure:
        """Make an enclosure, which `Enclosure.end` ends."""
        return Enclosure(self, f"{name}-{next(self._numbers)}", uid)

    def cgroups_of(self, host: str, name: str) -> list[Path]:
        """Return the cgroups that a process at a host enters, in order, and create missing ones: the host's
        limit's, then the enclosure's, which is below the first if both are in one hierarchy.
        """
        limit = self._limits.get(host)
        if self._folder is None:
            return [] if limit is None else [limit]
        is_one = limit is not None and limit.stat().st_dev == self._folder.stat().st_dev
        own = (limit if limit is not None and is_one else self._folder) / name
        own.mkdir(exist_ok=True)
        return [own] if limit is None or is_one else [limit, own]

    def enter(self, host: str, uid: int) -> int:
        """Record that this user has an enclosure at a host, and return the host's network namespace."""
        number = os.fstat(self._namespace(host)).st_ino
        with self._lock:
            self._users[number, uid] += 1
        return number

    def leave(self, namespaces: Sequence[int], uid: int) -> None:
        """Undo `enter` for these namespaces."""
        with self._lock:
            self._users.subtract((number, uid) for number in namespaces)

    def is_empty(self, namespace: int, uid: int) -> bool:
        """Return whether this user has no recorded enclosure in a network namespace."""
        with self._lock:
            return not self._users[namespace, uid]


class Enclosure:
    """One enclosure. `mark` must be in the environment of each of its processes."""

    def __init__(self, every: Enclosures, name: str, uid: int) -> None:
        self._every, self._name, self._uid = every, name, uid
        self.mark = {MARK: secrets.token_hex(8)}
        self._namespaces: dict[str, int] = {}
        self._cgroups: set[Path] = set()
        self._lock = threading.Lock()

    def hold(self, host: str, pid: int) -> None:
        """Add a process that was started elsewhere at a host. Raises OSError."""
        for cgroup in self.at(host):
            members(cgroup).write_text(str(pid))

    def at(self, host: str) -> list[Path]:
        """Return the cgroups that the next process at a host must enter. Raises OSError."""
        with self._lock:
            if host not in self._namespaces:
                self._namespaces[host] = self._every.enter(host, self._uid)
            cgroups = self._every.cgroups_of(host, self._name)
            self._cgroups.update(path for path in cgroups if path.name == self._name)
            return cgroups

    def end(self) -> int:
        """Kill all remaining processes, wait until they are gone, and return their number."""
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
            with contextlib.suppress(OSError):  # the keeper removes remaining cgroups with the testbed
                cgroup.rmdir()
        return ended
