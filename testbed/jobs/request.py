"""A checked request for a job."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.jobs.option_table import ALL_OPTIONS, AS_USUAL
from testbed.jobs.options import CommonOptions
from testbed.jobs.placement import parse_place, parse_server
from testbed.plugins.registry import AUTO, find
from testbed.plugins.user_class import is_users
from testbed.topology.addresses import Dpid
from testbed.topology.fields import is_number, shown


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job as requested by `testbed run`, or as one of `testbed submit`'s. It runs as `caller`. `script` is
    a path, or the name of a module.
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
    options: CommonOptions = AS_USUAL
    with_series: bool = False
    preload: bool = False
    folders: Path | None = None  # each worker starts in its own folder below this; None: all in `cwd`
    server_at: Dpid | None = None  # the unit or rack of its server's host; None: its system's choice
    python: Path | None = None  # the Python of its user's own environment; None: the project's
    bounded_logs: bool = False  # bound the logs in `logs` too

    @classmethod
    def parse(cls, request: Mapping[str, Any], caller: Caller) -> JobRequest:
        """Check a request for a job that runs as `caller`, whatever user the request names. Raises
        RequestError.
        """
        place, limit_s = request.get("place"), request.get("limit_s")
        cwd = absolute(request.get("cwd"), "cwd")
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
            options=(options := ALL_OPTIONS.parse(request)),
            with_series=request.get("series") is True,
            preload=request.get("preload") is True,
            folders=cwd if options.folder_per_worker else None,
            server_at=None
            if request.get("server_at") is None
            else parse_server(word(request["server_at"], "--ps")),
            python=None if request.get("python") is None else absolute(request["python"], "--python"),
            bounded_logs=request.get("bounded_logs") is True,
        )

    @property
    def arguments_of_python(self) -> tuple[str, ...]:
        """The arguments by which Python runs the script or module."""
        return ("-m", self.script) if self.options.module else (self.script,)


def system_name(name: str) -> str:
    """Check the name of a system, or of a user's class of a system, or the word AUTO. Raises RequestError for
    an unknown name.
    """
    return name if is_users(name) or name == AUTO else find(name).name


def word(raw: object, key: str) -> str:
    """Check a text for an argument or a part of a path. Raises RequestError."""
    try:
        if isinstance(raw, str) and b"\0" not in os.fsencode(raw):
            return raw
    except UnicodeEncodeError:
        pass
    raise RequestError(f"{key}: {shown(raw)!a}; a text without NUL characters is accepted")


def words(raw: object, key: str) -> tuple[str, ...]:
    """Check a list of texts. Raises RequestError."""
    if not isinstance(raw, list):
        raise RequestError(f"{key}: {shown(raw)}; a list of texts is accepted")
    return tuple(word(each, key) for each in raw)


def absolute(raw: object, key: str) -> Path:
    """Check an absolute path. Raises RequestError for a relative one."""
    path = Path(word(raw, key))
    if not path.is_absolute():
        raise RequestError(f"{key}: {path}; an absolute path is accepted")
    return path


def numbers(raw: object, key: str) -> list[int]:
    """Check a list of job numbers. Raises RequestError."""
    if not isinstance(raw, list) or not all(
        isinstance(each, int) and not isinstance(each, bool) for each in raw
    ):
        raise RequestError(f"{key}: {shown(raw)}; numbers of jobs are accepted")
    return list(raw)


def reason(raw: object) -> str:
    """Return the reason in a request to end something, as one line of bounded length."""
    return " ".join(shown(raw).split())


def environ(raw: object) -> dict[str, str]:
    """Check environment variables. Raises RequestError."""
    if not isinstance(raw, dict) or any(not name or "=" in name for name in raw):
        raise RequestError("environ: names and values are accepted, the names without an equals sign")
    return {word(name, "environ"): word(value, f"environ: {name}") for name, value in raw.items()}
