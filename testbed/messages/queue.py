"""The queue: a session's policy, time slots and jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.coding import Number


@dataclass(frozen=True, slots=True)
class QueuedStatus:
    """A queued job. Times are in s since the session's first time slot, None until they are reached.
    `progress` is the share of its gradients that is summed; `mode` is the system that sums it; `inc_unit` is
    the unit whose switch sums for it.
    """

    id: int
    name: str
    state: str
    workers: int
    hosts: tuple[str, ...]
    units: tuple[str, ...]
    ps_host: str | None
    mode: str | None
    inc_unit: str | None
    rate_gbps: Number
    progress: Number
    arrival_s: Number
    placed_s: Number | None
    ready_s: Number | None
    started_s: Number | None
    trained_s: Number | None
    ended_s: Number | None
    restarts: int
    failure: str | None
    cancelled: bool


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A session of jobs under a policy, `seconds` after its first time slot. `complaints` are the last ones
    about the policy.
    """

    policy: str
    slot: int
    slot_s: Number
    seconds: Number
    jobs: tuple[QueuedStatus, ...]
    reconfigured_connections: int
    reconfigurations: int
    overruns: int
    policy_failures: int
    complaints: tuple[str, ...] = ()
