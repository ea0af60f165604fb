"""The settings of a worker, in its environment variable and at its gate. Each is declared here once, for the
daemon that writes it and the worker that reads it. Pure; workers import it before their scripts, so it is
small, and imports no msgspec.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from testbed.encoding import from_json
from testbed.wire.recovery import Recovery

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """A worker's way to a tree: the address that it pushes to, the tree's first slot there, the fraction of
    the fragments that go by it, and whether the place takes pushes without lanes.
    """

    address: str
    slot_base: int
    fraction: float
    takes_empties: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """The settings of a worker's endpoint (workloads/endpoint.py). `worker` is its number among the `workers`
    who sum, `sender` its number on the wire; `rate_mbps` is that of its hosts' slowest link, None: unlimited.
    `ring_fd`, `wake_fd` and `socket_fd` are descriptors; without a `socket_fd`, it opens `port` itself.
    """

    engine: str
    port: int
    job: int
    generation: int
    worker: int
    sender: int
    workers: int
    lanes: int
    recovery: Recovery
    slots: int
    vote_slots: int
    window: int
    vote_window: int
    spare_bits: int
    first_tree: int
    trees: tuple[TreeSettings, ...]
    rate_mbps: float | None
    queue_packets: int | None
    ring_fd: int
    ring_entries: int
    ring_lanes: int
    wake_fd: int
    socket_fd: int | None = None

    def renumbered(self, fds: Mapping[int, int]) -> EndpointSettings:
        """Return the settings with descriptors as they are numbered in this process."""
        return replace(self, ring_fd=fds[self.ring_fd], wake_fd=fds[self.wake_fd])


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """The layout of a job board (testbed/jobs/board.py): its descriptor, how many records of which fields it
    has, the state of a process that `exited`, the numbers of the phases, and the byte at which the tables of
    calls begin, None: there are none.
    """

    fd: int
    records: int
    fields: tuple[tuple[str, str], ...]
    exited: int
    phases: Mapping[str, int]
    calls: int | None

    def renumbered(self, fds: Mapping[int, int]) -> BoardSettings:
        """Return the settings with the descriptor as it is numbered in this process."""
        return replace(self, fd=fds[self.fd])


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a job that its workers carry out (testbed/jobs/options.py)."""

    strict_finite: bool = False
    error_feedback: bool = False
    fine_sums: bool = False
    init_group: bool = False
    stragglers: str | None = None


@dataclass(frozen=True, slots=True)
class SumSettings:
    """The way by which a job sums. `endpoint` is None where no place sums for it; `ps` is the address and the
    port of the process that serves the workers, on `ps_host`, and `service` its name in words.
    """

    system: str
    transport: str
    endpoint: EndpointSettings | None
    ps: tuple[str, int] | None
    ps_host: str | None
    service: str = "parameter server"


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The message through a worker's gate (testbed/jobs/gates.py), and the numbers that the descriptors which
    come along have in the daemon.
    """

    sums: SumSettings
    fds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker's process: `TESTBED_JOB`. `stats` and `stacks` are the files that it writes,
    `groups` is the descriptor by which it asks for groups, `asked_in` the caller's working folder, `master`
    where its workers meet. A message that comes through the `gate`, a descriptor, replaces `sums`.
    """

    testbed: str
    job_id: int
    generation: int
    rank: int
    hosts: tuple[str, ...]
    board: BoardSettings
    stats: str
    sums: SumSettings
    options: WorkerOptions = WorkerOptions()
    asked_in: str | None = None
    groups: int | None = None
    stacks: str | None = None
    master: str = ""
    gate: int | None = None


def written(settings: Any) -> str:
    """Return the JSON of settings, of any kind, that `read` reads."""
    return json.dumps(asdict(settings))


def read(kind: type[T], text: str | bytes) -> T:
    """Return the settings of that JSON. ValueError or TypeError, with the name of a field that is missing or
    unknown, where it is something else.
    """
    return decoded(kind, json.loads(text))


def decoded(kind: type[T], data: Any) -> T:
    """Return the settings of JSON that is parsed. Raises as `read` does."""
    return from_json(kind, data, {Recovery: Recovery})
