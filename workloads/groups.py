"""The groups that a script makes beside its job's first: asked for at the testbed (testbed/jobs/groups.py),
which gives each trees and slots of its own while there is room.
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

ANSWER_S = 90.0  # more than the testbed waits for members, and a slow switch for its entries
_LARGEST_MESSAGE_BYTES = 1 << 16
_MOST_FDS = 8
_ADDED = frozenset({"pushed", "retransmits", "timeouts", "wakes", "ecn", "degraded", "left_out", "asked"})


class NoAnswerError(RuntimeError):
    """The testbed did not say what becomes of a group."""


class Tally(Protocol):
    """The count of bytes that a group's backend handed to gloo."""

    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Membership:
    """This worker's part in a group: the ranks of its members in the job, and the job as the group has it;
    None where it is summed by gloo.
    """

    key: str
    ranks: tuple[int, ...]
    job: JobEnv | None


class Desk:
    """The socket by which this worker asks. One asks at a time; leaving waits for nobody."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self._lock = threading.Lock()

    def ask(self, key: str, size: int, port: int) -> tuple[GroupAnswer, dict[int, int]]:
        """Ask for a group, and return the answer, and its descriptors as they are here, by their numbers
        there. Raises NoAnswerError.
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
                    for fd in fds:  # of a question that was given up
                        os.close(fd)
            except OSError as error:
                raise NoAnswerError(f"no answer of the testbed for a group: {error}") from error

    def leave(self, key: str) -> None:
        # the testbed is gone, and the group too; or it does not read, and the group goes with this process
        with contextlib.suppress(ConnectionError, TimeoutError):
            self._socket.sendall(json.dumps({"leave": key}).encode())


@functools.cache
def desk(fd: int) -> Desk:
    """Return the desk of this process."""
    return Desk(fd)


def enter(job: JobEnv, word: int, size: int) -> Membership:
    """Ask for a group of `size` workers by its word, which no other group of the job has; all of them are
    here, since gloo has joined them. Raises NoAnswerError.
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
    """The bytes of tensors of the groups of the same workers, by the way that they went; statistics."""

    workers: tuple[int, ...]
    bytes_by: Mapping[str, int]


@dataclass(slots=True)
class Ledger:
    """The account of what went which way, by group; groups of the same workers are told as one."""

    _rows: list[tuple[tuple[int, ...], Callable[[], Counter[str]], Tally]] = field(default_factory=list)
    _counters: Counter[str] = field(default_factory=Counter)

    def add(self, ranks: tuple[int, ...], summed: Callable[[], Counter[str]], by_gloo: Tally) -> None:
        """Note a group, whose counts go on."""
        self._rows.append((ranks, summed, by_gloo))

    def summed(self) -> Counter[str]:
        """Return the bytes that their sums had, by the way that these went."""
        return sum((summed() for _, summed, _ in self._rows), Counter())

    def count(self, counters: Mapping[str, float]) -> None:
        """Note what the endpoint of a group that has ended did."""
        for name in _ADDED & counters.keys():
            self._counters[name] += int(counters[name])

    def counted(self, counters: Mapping[str, float]) -> dict[str, float]:
        """Return the counters of the job's own endpoint, with those of groups that have ended."""
        return {name: value + self._counters[name] for name, value in counters.items()}

    def rows(self) -> list[GroupRow]:
        """Return what the groups of the same workers summed, and what gloo did for them."""
        totals: defaultdict[tuple[int, ...], Counter[str]] = defaultdict(Counter)
        for ranks, summed, by_gloo in self._rows:
            totals[ranks].update(summed())
            totals[ranks][GLOO] += by_gloo.size_bytes
        return [GroupRow(ranks, dict(by)) for ranks, by in totals.items()]
