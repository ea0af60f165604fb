"""A job: what was asked for, and what it holds while it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import RequestError
from testbed.jobs.board import JobBoard
from testbed.jobs.launch import JobProcesses
from testbed.jobs.placement import Placement, parse_place
from testbed.runtime import Caller
from testbed.topology import addresses


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What `testbed run` asks for, checked."""

    script: str
    arguments: tuple[str, ...]
    sync: str
    place: tuple[tuple[int, int], ...] | None
    caller: Caller
    cwd: str
    environ: Mapping[str, str]
    logs: Path | None
    timeout_s: float | None
    restarts: int
    with_series: bool = False
    preload: bool = False

    @classmethod
    def parse(cls, request: Mapping[str, Any], owner: Caller) -> JobRequest:
        """Raises RequestError. A testbed that a user started runs jobs as that user; one that root did, as any."""
        uid = int(request["uid"])
        if owner.uid not in (0, uid):
            raise RequestError(
                f"this testbed is {owner.user}'s and runs jobs as {owner.user} only, not as user id {uid}"
            )
        caller = Caller.of(uid)
        gid = int(request["gid"])
        if gid in caller.groups or uid == owner.uid:
            caller = Caller.of(uid, gid)
        wanted = request.get("place")
        return cls(
            script=str(request["script"]),
            arguments=tuple(str(argument) for argument in request["arguments"]),
            sync=str(request["sync"]),
            place=None if wanted is None else parse_place(str(wanted)),
            caller=caller,
            cwd=str(request["cwd"]),
            environ={str(name): str(value) for name, value in request["environ"].items()},
            logs=None if request.get("logs") is None else Path(request["logs"]),
            timeout_s=None if request.get("limit_s") is None else float(request["limit_s"]),
            restarts=int(request.get("restarts", 0)),
            with_series=bool(request.get("series", False)),
            preload=bool(request.get("preload", False)),
        )


@dataclass(slots=True)
class Job:
    """A job that holds hosts. `stop_reason` set ends it, `failure` its present generation."""

    id: int
    generation: int
    request: JobRequest
    placement: Placement
    state: str = "starting"
    began_unix: float = field(default_factory=time.time)
    stop_reason: str | None = None
    failure: str | None = None  # of something that it needs, not of its processes
    notes: list[str] = field(default_factory=list)  # what a reader of the result must know
    board: JobBoard | None = None
    processes: JobProcesses | None = None

    @property
    def hosts(self) -> list[str]:
        """Of the workers, by rank."""
        return [addresses.host_name(*host) for host in self.placement.workers]

    @property
    def ps_host(self) -> str | None:
        return addresses.host_name(*self.placement.ps) if self.placement.ps else None

    def status(self) -> dict[str, Any]:
        board = self.board  # another thread takes it away
        return {
            "id": self.id,
            "state": self.state,
            "user": self.request.caller.user,
            "script": self.request.script,
            "sync": self.placement.sync,
            "hosts": self.hosts,
            "ps_host": self.ps_host,
            "running_s": round(time.time() - self.began_unix, 3),
            "progress": board.progress() if board else [],
        }
