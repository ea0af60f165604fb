"""The hosts that jobs hold: the layout of each job, by its number. Thread-safe; owns nothing else of
a job.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Sequence

from testbed.aggregation.site import Rack
from testbed.aggregation.system import Layout
from testbed.errors import TestbedError
from testbed.topology.places import Host

MAX_JOB_ID = 65535  # 16 bits in the wire format
_GENERATION_BITS = 32  # in the wire format


class Holdings:
    """The hosts of one testbed, a job at a time each, and the numbers that its jobs and their generations
    have.
    """

    def __init__(self, racks: Sequence[Rack]) -> None:
        self.racks = tuple(racks)
        self._layouts: dict[int, Layout] = {}
        self._numbers, self._generations = itertools.count(), set[int]()
        self._closed = False
        self._lock = threading.Lock()  # the fields above

    def generation(self) -> int:
        """Return a number that no generation had before, of a job or of a group of one's workers. The kernel
        draws it: packets that others forge have another one.
        """
        with self._lock:
            return self._generation()

    def number(self) -> int:
        """Return a number that no other job has."""
        with self._lock:
            return self._number()

    def take(self, layout: Layout, number: int | None = None) -> tuple[int, int] | None:
        """Give a job the layout's hosts; return its number, a new one unless it has one, and its first
        generation. None if one of the hosts is another job's. TestbedError once `close` was called.
        """
        with self._lock:
            if self._closed:
                raise TestbedError("the testbed is ending")
            if layout.hosts() & self._busy():
                return None
            number = self._number() if number is None else number
            self._layouts[number] = layout
            return number, self._generation()

    def replace(self, number: int, layout: Layout) -> bool:
        """Give a job this layout's hosts in place of those that it has. False, and nothing is changed, if
        one of them is another job's.
        """
        with self._lock:
            if layout.hosts() & self._busy(number):
                return False
            self._layouts[number] = layout
            return True

    def free(self, number: int) -> None:
        """Free the hosts of a job; nothing if they are free."""
        with self._lock:
            self._layouts.pop(number, None)

    def close(self) -> None:
        """Let no job take hosts any more."""
        with self._lock:
            self._closed = True

    def busy(self, beside: int | None = None) -> frozenset[Host]:
        """Return the hosts that jobs have, those of the job `beside` left out."""
        with self._lock:
            return frozenset(self._busy(beside))

    def layouts(self) -> dict[int, Layout]:
        """Return the layout of each job, by its number."""
        with self._lock:
            return dict(self._layouts)

    def _busy(self, beside: int | None = None) -> set[Host]:
        return {host for number, held in self._layouts.items() if number != beside for host in held.hosts()}

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
