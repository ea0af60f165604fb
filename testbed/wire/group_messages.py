"""The messages between a worker that makes a further group, and the testbed that gives the group places
(workloads/groups.py, testbed/jobs/groups.py). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.wire.settings import BoardSettings, EndpointSettings


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """The answer to a worker that asked for a group by its `key`: the ranks of its members, and the group's
    settings; or `why` gloo sums for it instead. `fds` are the descriptors' numbers in the daemon.
    """

    key: str
    why: str | None
    ranks: tuple[int, ...] = ()
    endpoint: EndpointSettings | None = None
    board: BoardSettings | None = None
    fds: tuple[int, ...] = ()
