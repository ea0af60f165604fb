"""The settings of a worker, in its environment variable and through its gate. Each is declared once, for the
daemon that writes it and the worker that reads it. Pure; workers import it before their scripts, so it is
small and does not import msgspec.
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
    """A worker's settings for a tree: the address to which it pushes, the tree's first slot there, the
    fraction of the fragments that use this tree, and whether the place accepts pushes without lanes.
    """

    address: str
    slot_base: int
    fraction: float
    takes_empties: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """The settings of a worker's endpoint (workloads/endpoint.py). `worker` is its number among the `workers`
    that contribute, `sender` its number on the wire. `rate_mbps` is the rate of its host's slowest link,
    None: unlimited. `ring_fd`, `wake_fd` and `socket_fd` are descriptors; without `socket_fd`, it opens
    `port` itself.
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
        """Return the settings with the descriptors' numbers in this process."""
        return replace(self, ring_fd=fds[self.ring_fd], wake_fd=fds[self.wake_fd])


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """The layout of a job board (testbed/jobs/board.py): its descriptor, the number and fields of its
    records, the state of a process that `exited`, the numbers of the phases, and the byte offset of the
    tables of calls (None: there are none).
    """

    fd: int
    records: int
    fields: tuple[tuple[str, str], ...]
    exited: int
    phases: Mapping[str, int]
    calls: int | None

    def renumbered(self, fds: Mapping[int, int]) -> BoardSettings:
        """Return the settings with the descriptor's number in this process."""
        return replace(self, fd=fds[self.fd])


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a job that its workers implement (testbed/jobs/options.py)."""

    strict_finite: bool = False
    error_feedback: bool = False
    fine_sums: bool = False
    init_group: bool = False
    stragglers: str | None = None
    circuits: str = "static"


@dataclass(frozen=True, slots=True)
class SumSettings:
    """The method by which a job sums. `endpoint` is None if no place aggregates for it; `ps` is the address
    and port of the process that serves the workers, on `ps_host`, and `service` its name in words.
    """

    system: str
    transport: str
    endpoint: EndpointSettings | None
    ps: tuple[str, int] | None
    ps_host: str | None
    service: str = "parameter server"


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The message through a worker's gate (testbed/jobs/gates.py), and the numbers in the daemon of the
    descriptors that accompany it.
    """

    sums: SumSettings
    fds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker's process: `TESTBED_JOB`. `stats` and `stacks` are files that it writes. By
    the descriptor `groups` it asks for groups, by `circuits` for circuits. `asked_in` is the caller's working
    folder; `master` is where its workers meet. A message through the descriptor `gate` replaces `sums`.
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
    circuits: int | None = None
    stacks: str | None = None
    master: str = ""
    gate: int | None = None


def written(settings: Any) -> str:
    """Encode settings of any kind as JSON, for `read`."""
    return json.dumps(asdict(settings))


def read(kind: type[T], text: str | bytes) -> T:
    """Decode settings from JSON. ValueError or TypeError, with the name of a missing or unknown field, if the
    JSON is something else.
    """
    return decoded(kind, json.loads(text))


def decoded(kind: type[T], data: Any) -> T:
    """Convert parsed JSON to settings. Raises as `read` does."""
    return from_json(kind, data, {Recovery: Recovery})
