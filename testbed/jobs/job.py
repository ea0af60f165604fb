"""A job: what was asked for, and what it holds while it runs."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.aggregation.registry import find
from testbed.aggregation.system import Layout
from testbed.contract.user_class import is_users
from testbed.errors import RequestError
from testbed.jobs.board import JobBoard
from testbed.jobs.launch import JobProcesses
from testbed.jobs.placement import parse_place
from testbed.runtime import Caller
from testbed.topology import addresses
from testbed.topology.fields import integer, is_number, shown

MOST_RESTARTS = 100


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
    def parse(cls, request: Mapping[str, Any], caller: Caller) -> JobRequest:
        """Raises RequestError. It runs as `caller`, whatever the request says."""
        place, limit_s = request.get("place"), request.get("limit_s")
        if limit_s is not None and not (is_number(limit_s) and 0 < limit_s < math.inf):
            raise RequestError(f"limit_s: {shown(limit_s)}; a number of seconds above 0 is accepted")
        return cls(
            script=word(request.get("script"), "script"),
            arguments=words(request.get("arguments"), "arguments"),
            sync=_sync(word(request.get("sync"), "sync")),
            place=None if place is None else parse_place(word(place, "place")),
            caller=caller,
            cwd=str(absolute(request.get("cwd"), "cwd")),
            environ=environ(request.get("environ")),
            logs=None if request.get("logs") is None else absolute(request["logs"], "logs"),
            timeout_s=None if limit_s is None else float(limit_s),
            restarts=integer(request, "restarts", 0, low=0, high=MOST_RESTARTS),
            with_series=request.get("series") is True,
            preload=request.get("preload") is True,
        )


def _sync(name: str) -> str:
    """The name of a system, or of a user's class of one. RequestError for another."""
    return name if is_users(name) else find(name).name


def word(raw: object, key: str) -> str:
    """A text that can be an argument or a part of a path. Raises RequestError."""
    try:
        if isinstance(raw, str) and b"\0" not in os.fsencode(raw):
            return raw
    except UnicodeEncodeError:
        pass
    raise RequestError(f"{key}: {shown(raw)!a}; a text without NUL characters is accepted")


def words(raw: object, key: str) -> tuple[str, ...]:
    if not isinstance(raw, list):
        raise RequestError(f"{key}: {shown(raw)}; a list of texts is accepted")
    return tuple(word(each, key) for each in raw)


def absolute(raw: object, key: str) -> Path:
    """A path. Raises RequestError for one that depends on who looks."""
    path = Path(word(raw, key))
    if not path.is_absolute():
        raise RequestError(f"{key}: {path}; an absolute path is accepted")
    return path


def numbers(raw: object, key: str) -> list[int]:
    """Numbers of jobs. Raises RequestError."""
    if not isinstance(raw, list) or not all(
        isinstance(each, int) and not isinstance(each, bool) for each in raw
    ):
        raise RequestError(f"{key}: {shown(raw)}; numbers of jobs are accepted")
    return list(raw)


def reason(request: Mapping[str, Any], default: str) -> str:
    """Why something is to end, in one line of bounded length."""
    return " ".join(shown(request.get("reason", default)).split())


def environ(raw: object) -> dict[str, str]:
    """Names and values. Raises RequestError."""
    if not isinstance(raw, dict) or any(not name or "=" in name for name in raw):
        raise RequestError("environ: names and values are accepted, the names without an equals sign")
    return {word(name, "environ"): word(value, f"environ: {name}") for name, value in raw.items()}


@dataclass(slots=True)
class Job:
    """A job that holds hosts. `stop_reason` set ends it, `failure` its present generation."""

    id: int
    generation: int
    request: JobRequest
    layout: Layout
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
        return [addresses.host_name(*host) for host in self.layout.workers]

    @property
    def ps_host(self) -> str | None:
        return addresses.host_name(*self.layout.server) if self.layout.server else None

    def status(self) -> dict[str, Any]:
        board = self.board  # another thread takes it away
        return {
            "id": self.id,
            "state": self.state,
            "user": self.request.caller.user,
            "script": self.request.script,
            "sync": self.layout.system,
            "hosts": self.hosts,
            "ps_host": self.ps_host,
            "running_s": round(time.time() - self.began_unix, 3),
            "progress": board.progress() if board else [],
        }
