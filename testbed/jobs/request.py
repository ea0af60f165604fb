"""The request for a job, checked."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.aggregation.packets import Packets
from testbed.client.caller import Caller
from testbed.contract.blocks import (
    LEAST_AGE_OUT_MS,
    LEAST_LEAVE_AFTER,
    MOST_AGE_OUT_MS,
    MOST_LEAVE_AFTER,
    MOST_WINDOW,
)
from testbed.contract.recovery import Recovery
from testbed.contract.spec import MAX_MTU, MIN_LANES, lanes_for
from testbed.contract.stragglers import SlowWorkers
from testbed.discovery.registry import find
from testbed.discovery.user_class import is_users
from testbed.errors import RequestError
from testbed.jobs.placement import parse_place, parse_server
from testbed.topology.addresses import Dpid
from testbed.topology.fields import integer, is_number, shown

MOST_RESTARTS = 100


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job as `testbed run` asks for it, and `testbed submit` for each of its own. It runs as `caller`.
    `script` is a path, or the name of a module.
    """

    script: str
    arguments: tuple[str, ...]
    sync: str
    place: tuple[tuple[Dpid, int], ...] | None
    caller: Caller
    cwd: str
    environ: Mapping[str, str]
    logs: Path | None
    timeout_s: float | None
    restarts: int
    with_series: bool = False
    preload: bool = False
    lanes: int | None = None  # of its packets; None: as many as fit
    recovery: Recovery = Recovery.WINDOW
    age_out_ms: float | None = None  # None: as its system says
    window: int | None = None
    leave_after: int | None = None  # looks in vain until a worker leaves; None: never
    strict_finite: bool = False
    error_feedback: bool = False  # what rounding leaves out of a gradient is added to the next one
    fine_sums: bool = False  # or is summed as a second vector
    init_group: bool = False  # its process group is there before its script
    module: bool = False  # its script is named as python -m has it
    folders: Path | None = None  # each worker starts in one of its own below it; None: all in `cwd`
    stragglers: SlowWorkers | None = None  # its workers are slow on purpose, in this pattern
    server_at: Dpid | None = (
        None  # the unit or rack whose host is to be its server's; None: its system's choice
    )
    python: Path | None = None  # of an environment of its user's own; None: the project's
    bounded_logs: bool = False  # in `logs`, too, a log gets so many bytes at most

    @classmethod
    def parse(cls, request: Mapping[str, Any], caller: Caller) -> JobRequest:
        """Return the request of a job that runs as `caller`, whatever it says. Raises RequestError."""
        place, limit_s = request.get("place"), request.get("limit_s")
        cwd = absolute(request.get("cwd"), "cwd")
        if request.get("error_feedback") is True and request.get("fine_sums") is True:
            raise RequestError("error_feedback and fine_sums: one of them is accepted")
        if limit_s is not None and not (is_number(limit_s) and 0 < limit_s < math.inf):
            raise RequestError(f"limit_s: {shown(limit_s)}; a number of seconds above 0 is accepted")
        return cls(
            script=word(request.get("script"), "script"),
            arguments=words(request.get("arguments"), "arguments"),
            sync=system_name(word(request.get("sync"), "sync")),
            place=None if place is None else parse_place(word(place, "place")),
            caller=caller,
            cwd=str(cwd),
            environ=environ(request.get("environ")),
            logs=None if request.get("logs") is None else absolute(request["logs"], "logs"),
            timeout_s=None if limit_s is None else float(limit_s),
            restarts=integer(request, "restarts", 0, low=0, high=MOST_RESTARTS),
            with_series=request.get("series") is True,
            preload=request.get("preload") is True,
            lanes=lanes(request, "lanes"),
            recovery=recovery(request, "recovery"),
            age_out_ms=age_out_ms(request, "age_out_ms"),
            window=window(request, "window"),
            leave_after=leave_after(request, "leave_after"),
            strict_finite=request.get("strict_finite") is True,
            error_feedback=request.get("error_feedback") is True,
            fine_sums=request.get("fine_sums") is True,
            init_group=request.get("init_group") is True,
            module=request.get("module") is True,
            folders=cwd if request.get("folder_per_worker") is True else None,
            stragglers=stragglers(request),
            server_at=None
            if request.get("server_at") is None
            else parse_server(word(request["server_at"], "--ps")),
            python=None if request.get("python") is None else absolute(request["python"], "--python"),
            bounded_logs=request.get("bounded_logs") is True,
        )

    @property
    def packets(self) -> Packets:
        """The choices for its packets."""
        return Packets(self.lanes, self.recovery, self.age_out_ms, self.window, self.leave_after)

    @property
    def arguments_of_python(self) -> tuple[str, ...]:
        """The words by which Python is told what to run."""
        return ("-m", self.script) if self.module else (self.script,)


def lanes(request: Mapping[str, Any], key: str, path: str = "") -> int | None:
    """Return how many lanes a job's packets are to have; None where it does not say. What the testbed's MTU
    holds is checked when it is known. Raises RequestError.
    """
    if request.get(key) is None:
        return None
    return integer(request, key, 0, low=MIN_LANES, high=lanes_for(MAX_MTU), path=path)


def recovery(request: Mapping[str, Any], key: str, path: str = "") -> Recovery:
    """Return how a job's lost packets are to come again; Recovery.WINDOW where it does not say. Raises
    RequestError.
    """
    if request.get(key) is None:
        return Recovery.WINDOW
    try:
        return Recovery(request[key])
    except ValueError:
        *first, last = Recovery
        accepted = f"{', '.join(first)} and {last}"
        raise RequestError(f"{path}{key}: {shown(request[key])}; {accepted} are accepted") from None


def stragglers(request: Mapping[str, Any], path: str = "") -> SlowWorkers | None:
    """Return in which pattern a job's workers are to be slow; None where it does not say. Raises
    RequestError.
    """
    said = request.get("stragglers")
    return None if said is None else SlowWorkers.parse(said, path)


def age_out_ms(request: Mapping[str, Any], key: str, path: str = "") -> float | None:
    """Return how long a sum waits for a worker, 0: as long as it takes; None where it is not said. Raises
    RequestError.
    """
    raw = request.get(key)
    if raw is None or (is_number(raw) and (raw == 0 or LEAST_AGE_OUT_MS <= raw <= MOST_AGE_OUT_MS)):
        return None if raw is None else float(raw)
    raise RequestError(
        f"{path}{key}: {shown(raw)}; {LEAST_AGE_OUT_MS:g} to {MOST_AGE_OUT_MS:g} ms are accepted, and 0: as "
        "long as it takes"
    )


def window(request: Mapping[str, Any], key: str, path: str = "") -> int | None:
    """Return how many blocks a worker may have under way; None where it is not said. Raises RequestError."""
    if request.get(key) is None:
        return None
    return integer(request, key, 0, low=1, high=MOST_WINDOW, path=path)


def leave_after(request: Mapping[str, Any], key: str, path: str = "") -> int | None:
    """Return after how many looks in vain a worker leaves; None where it is not said. Raises RequestError."""
    if request.get(key) is None:
        return None
    return integer(request, key, 0, low=LEAST_LEAVE_AFTER, high=MOST_LEAVE_AFTER, path=path)


def system_name(name: str) -> str:
    """Return the name of a system, or of a user's class of a system. RequestError for another name."""
    return name if is_users(name) else find(name).name


def word(raw: object, key: str) -> str:
    """Return a text that can be an argument or a part of a path. Raises RequestError."""
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
    """Return a path. Raises RequestError for a path that depends on who looks."""
    path = Path(word(raw, key))
    if not path.is_absolute():
        raise RequestError(f"{key}: {path}; an absolute path is accepted")
    return path


def numbers(raw: object, key: str) -> list[int]:
    """Return numbers of jobs. Raises RequestError."""
    if not isinstance(raw, list) or not all(
        isinstance(each, int) and not isinstance(each, bool) for each in raw
    ):
        raise RequestError(f"{key}: {shown(raw)}; numbers of jobs are accepted")
    return list(raw)


def reason(request: Mapping[str, Any], default: str) -> str:
    """Return the reason why something is to end, in one line of bounded length."""
    return " ".join(shown(request.get("reason", default)).split())


def environ(raw: object) -> dict[str, str]:
    """Return names and values. Raises RequestError."""
    if not isinstance(raw, dict) or any(not name or "=" in name for name in raw):
        raise RequestError("environ: names and values are accepted, the names without an equals sign")
    return {word(name, "environ"): word(value, f"environ: {name}") for name, value in raw.items()}
