"""A job as one place that sums for it knows it, and who may send for it. Pure data, the same for every
engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.contract.places import Role as Role


@dataclass(frozen=True, slots=True)
class Job:
    """A job as one aggregator knows it; testbed/contract/places.py has its records in the data planes."""

    members: int  # bitmap of the contributors expected here
    generation: int
    role: Role
    base: int  # MemID
    size: int
    total: int  # workers of the job
    local: int  # workers (at a PS: units) summed here
    index: int  # this unit's, the worker field of its partial sums
    up_base: int  # MemID at the PS
    self_ip: str
    up_ip: str  # of the PS
    group_ip: str


@dataclass(frozen=True, slots=True)
class Sender:
    """Who runs at a host's port: a worker of a job, or (worker None) its parameter server."""

    job: int
    worker: int | None
