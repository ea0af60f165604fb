"""Jobs that hold hosts: their progress, the places that sum for them, and the parts of the network that they
use. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NewType

from testbed.messages.coding import Number

WrittenCounts = NewType("WrittenCounts", dict[str, Any])
"""The counts of a job's sums by its data-plane program, as JSON: messages transfer them unchanged, and the
program's own type reads them (testbed/aggregation/counts.py).
"""


@dataclass(frozen=True, slots=True)
class SummingNode:
    """A place of a tree: the hosts of the workers that push to it, and the places below it."""

    place: str
    workers: tuple[str, ...]
    below: tuple[SummingNode, ...]


@dataclass(frozen=True, slots=True)
class SummingTree:
    """A tree of a job, with the place at its top and its share of the fragments."""

    share: Number
    place: str
    workers: tuple[str, ...]
    below: tuple[SummingNode, ...]


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """The circuits, links and places that a job uses."""

    circuits: tuple[tuple[str, str], ...]
    links: tuple[str, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job that holds hosts. `hosts` are its workers' hosts, by rank, as is `progress`. `sums` None: no
    place sums for it. `service` is the status that its workers' server process reports, with `lines` for
    people (testbed/wire/service_status.py). `waiting` says what its workers wait for, once they have waited
    long.
    """

    id: int
    state: str
    user: str
    script: str
    sync: str
    hosts: tuple[str, ...]
    ps_host: str | None
    other_hosts: tuple[str, ...]
    sums: tuple[SummingTree, ...] | None
    running_s: Number
    progress: tuple[int, ...]
    summed_bytes: int
    service: dict[str, Any] | None = None
    waiting: str | None = None
    blocks: WrittenCounts | None = None
    uses: NetworkUse | None = None

    @property
    def service_lines(self) -> list[str]:
        """Return the lines for people of its server process."""
        return [str(line) for line in self.service["lines"]] if self.service else []
