"""The hosts that jobs hold: each job's layout and user, by its number; and the hosts in which users run
`testbed exec`. Thread-safe; owns nothing else of a job.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from testbed.aggregation.site import Rack
from testbed.aggregation.system import Layout
from testbed.errors import RequestError, TestbedError
from testbed.topology import addresses
from testbed.topology.places import Host

MAX_JOB_ID = 65535  # 16 bits in the wire format
ROOT = 0
_GENERATION_BITS = 32  # in the wire format


class Holdings:
    """The hosts of one testbed, each held by one job at a time, and the numbers of its jobs and
    generations.
    """

    def __init__(
        self, racks: Sequence[Rack], tell_users: Callable[[Mapping[Host, int]], None] = lambda users: None
    ) -> None:
        """`tell_users` gets the user of each held host, at each change and before the change is visible to
        others.
        """
        self.racks, self._tell_users = tuple(racks), tell_users
        self._layouts: dict[int, Layout] = {}
        self._users: dict[int, int] = {}  # each job's user id
        self._guests: Counter[tuple[Host, int]] = Counter()  # commands in a host, by user
        self._numbers, self._generations = itertools.count(), set[int]()
        self._closed = False
        self._lock = threading.Lock()  # guards the fields above

    def generation(self) -> int:
        """Return a new generation, for a job or for a group of a job's workers. The kernel draws it at
        random, so that forged packets have another one.
        """
        with self._lock:
            return self._generation()

    def number(self) -> int:
        """Return a number that no other job has."""
        with self._lock:
            return self._number()

    def take(self, layout: Layout, number: int | None = None, user: int = ROOT) -> tuple[int, int] | None:
        """Give the layout's hosts to a job of this user. Return its number (a new one unless given) and its
        first generation; None if a host is another job's, or another user runs a command in it. Raises
        TestbedError after `close`.
        """
        with self._lock:
            if self._closed:
                raise TestbedError("the testbed is ending")
            if layout.hosts() & (self._busy() | self._visited(user)):
                return None
            number = self._number() if number is None else number
            self._tell_users(self._holders() | dict.fromkeys(layout.hosts(), user))
            self._layouts[number], self._users[number] = layout, user
            return number, self._generation()

    def replace(self, number: int, layout: Layout) -> bool:
        """Give a job this layout's hosts in place of its own. Return False, and change nothing, if one of
        them is another job's.
        """
        with self._lock:
            held = self._layouts.get(number)
            more = layout.hosts() - (held.hosts() if held else frozenset())
            user = self._users.get(number, ROOT)
            if more & (self._busy(number) | self._visited(user)):
                return False
            self._tell_users(self._holders() | dict.fromkeys(more, user))
            self._layouts[number] = layout
            self._tell_users(self._holders())
            return True

    def free(self, number: int) -> None:
        """Free a job's hosts; does nothing if they are free."""
        with self._lock:
            self._layouts.pop(number, None)
            self._users.pop(number, None)
            self._tell_users(self._holders())

    @contextlib.contextmanager
    def visited(self, host: Host, user: int, runs_as: int) -> Iterator[None]:
        """Keep a host from jobs of users other than `user` while the block runs. Raises RequestError if a job
        holds the host whose user is not `runs_as`, the user of the command; root may enter any host.
        """
        with self._lock:
            if runs_as not in (ROOT, self._holders().get(host, runs_as)):
                raise RequestError(f"{addresses.host_name(*host)}: it is held by a job of another user's")
            self._guests[host, user] += 1
        try:
            yield
        finally:
            with self._lock:
                self._guests[host, user] -= 1

    def guests(self, user: int | None = None) -> dict[Host, frozenset[int]]:
        """Return the users who run commands in hosts, except this one."""
        with self._lock:
            at = {place for place, count in self._guests.items() if count and place[1] != user}
        return {host: frozenset(user for place, user in at if place == host) for host, _ in sorted(at)}

    def close(self) -> None:
        """Accept no further jobs."""
        with self._lock:
            self._closed = True

    def busy(self, beside: int | None = None, user: int | None = None) -> frozenset[Host]:
        """Return the hosts that jobs hold, except the job `beside`; also those kept from a job of this user
        (or that job's user) by other users' commands.
        """
        with self._lock:
            if user is None and beside is not None:
                user = self._users.get(beside)
            return frozenset(self._busy(beside) | (set() if user is None else self._visited(user)))

    def layouts(self) -> dict[int, Layout]:
        """Return the layout of each job, by its number."""
        with self._lock:
            return dict(self._layouts)

    def _busy(self, beside: int | None = None) -> set[Host]:
        return {host for number, held in self._layouts.items() if number != beside for host in held.hosts()}

    def _holders(self) -> dict[Host, int]:
        users = self._users
        return {
            host: users.get(number, ROOT) for number, held in self._layouts.items() for host in held.hosts()
        }

    def _visited(self, user: int) -> set[Host]:
        return {host for (host, guest), count in self._guests.items() if count and guest != user}

    def _generation(self) -> int:
        generation = secrets.randbits(_GENERATION_BITS)
        while generation in self._generations:
            generation = secrets.randbits(_GENERATION_BITS)
        self._generations.add(generation)
        return generation

    def _number(self) -> int:
        number = next(self._numbers) % MAX_JOB_ID + 1
        if number in self._layouts:
            raise TestbedError(f"job number {number} is still running, after {MAX_JOB_ID} others")
        return number
