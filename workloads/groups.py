"""Request trees and slots for the groups that a script makes in addition to its job's own. The testbed
(testbed/jobs/groups.py) grants them while it has room; otherwise gloo sums for the group.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from testbed.wire.group_messages import GroupAnswer
from testbed.wire.settings import read
from testbed.wire.transports import GLOO
from workloads.job_env import JobEnv, Part

ANSWER_S = 90.0  # longer than the testbed waits for the members and for a slow switch's table entries
_LARGEST_MESSAGE_BYTES = 1 << 16
_MOST_FDS = 8
_ADDED = frozenset({"pushed", "retransmits", "timeouts", "wakes", "ecn", "degraded", "left_out", "asked"})


class NoAnswerError(RuntimeError):
    """The testbed did not answer a request for a group."""


class Tally(Protocol):
    """The count of bytes that a group's backend handed to gloo."""

    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Membership:
    """This worker's part in a group: the ranks of its members in the job, and the job's environment as the
    group uses it (None: gloo sums for the group).
    """

    key: str
    ranks: tuple[int, ...]
    job: JobEnv | None


class Desk:
    """The socket on which this worker requests groups. One thread requests at a time; `leave` waits for
    nothing.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self._lock = threading.Lock()

    def ask(self, key: str, size: int, port: int) -> tuple[GroupAnswer, dict[int, int]]:
        """Request a group, and return the answer and its descriptors: numbers in the message to numbers in
        this process.

        Raises NoAnswerError when the testbed has ended or does not answer for ANSWER_S.
        """
        deadline = time.monotonic() + ANSWER_S
        with self._lock:
            try:
                self._socket.sendall(json.dumps({"ask": key, "size": size, "port": port}).encode())
                while True:
                    self._socket.settimeout(max(0.01, deadline - time.monotonic()))
                    message, fds, _, _ = socket.recv_fds(self._socket, _LARGEST_MESSAGE_BYTES, _MOST_FDS)
                    if not message:
                        raise NoAnswerError("the testbed ended before it answered for a group")
                    answer = read(GroupAnswer, message)
                    if answer.key == key:
                        return answer, dict(zip(answer.fds, fds, strict=True))
                    for fd in fds:  # the answer to a request that timed out
                        os.close(fd)
            except OSError as error:
                raise NoAnswerError(f"no answer of the testbed for a group: {error}") from error

    def leave(self, key: str) -> None:
        """Tell the testbed that this worker left a group."""
        # the testbed ended, and the group with it; or it does not read now, and releases the group when this
        # process ends
        with contextlib.suppress(ConnectionError, TimeoutError):
            self._socket.sendall(json.dumps({"leave": key}).encode())


@functools.cache
def desk(fd: int) -> Desk:
    """Return this process's desk, made at the first call."""
    return Desk(fd)


def enter(job: JobEnv, word: int, size: int) -> Membership:
    """Request a group of `size` workers. `word` identifies it: no other group of the job has the same.

    All members request at once, since gloo has joined them before. Raises NoAnswerError.
    """
    key = f"{word:016x}"
    if job.groups is None:
        return Membership(key, (), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("", 0))
        answer, fds = desk(job.groups).ask(key, size, udp.getsockname()[1])
        ranks = answer.ranks
        if answer.endpoint is None or answer.board is None:
            return Membership(key, ranks, None)
        endpoint = replace(answer.endpoint.renumbered(fds), socket_fd=udp.detach())
        records = answer.board.renumbered(fds)
        board = Part.of(job.board, ranks, records, ranks.index(job.rank))
        os.close(records.fd)  # it is mapped
    return Membership(key, ranks, replace(job, world_size=size, endpoint=endpoint, board=board))


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Statistics: the bytes of tensors of all groups of the same workers, by transport."""

    workers: tuple[int, ...]
    bytes_by: Mapping[str, int]


@dataclass(slots=True)
class Ledger:
    """The bytes that a job's groups summed, by group and way. Groups of the same workers are one row."""

    _rows: list[tuple[tuple[int, ...], Callable[[], Counter[str]], Tally]] = field(default_factory=list)
    _counters: Counter[str] = field(default_factory=Counter)

    def add(self, ranks: tuple[int, ...], summed: Callable[[], Counter[str]], by_gloo: Tally) -> None:
        """Add a group. `summed` and `by_gloo` are read later, when its counts have grown."""
        self._rows.append((ranks, summed, by_gloo))

    def summed(self) -> Counter[str]:
        """Return the bytes that all groups' sums had, by transport."""
        return sum((summed() for _, summed, _ in self._rows), Counter())

    def count(self, counters: Mapping[str, float]) -> None:
        """Add the counters of a group's endpoint when the group ends."""
        for name in _ADDED & counters.keys():
            self._counters[name] += int(counters[name])

    def counted(self, counters: Mapping[str, float]) -> dict[str, float]:
        """Return the counters of the job's own endpoint, plus those of groups that have ended."""
        return {name: value + self._counters[name] for name, value in counters.items()}

    def rows(self) -> list[GroupRow]:
        """Return one row per set of workers, with the bytes that gloo carried for their groups included."""
        totals: defaultdict[tuple[int, ...], Counter[str]] = defaultdict(Counter)
        for ranks, summed, by_gloo in self._rows:
            totals[ranks].update(summed())
            totals[ranks][GLOO] += by_gloo.size_bytes
        return [GroupRow(ranks, dict(by)) for ranks, by in totals.items()]
