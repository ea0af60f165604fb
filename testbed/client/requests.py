"""The daemon's requests: the arguments of each operation, unchecked. The code that carries a request out
checks them, and says in one line what is accepted. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRequest:
    """The request `fault`: an action (set, list or clear), the links' names (None: all links), the fault's
    rates by name, and the direction.
    """

    action: Any = None
    links: Any = None
    fault: Any = None
    direction: Any = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRequest:
    """The request `link`: an action (set, reset or list), the links' names, and the new values: a rate in
    Mb/s, whether they are up, times like "5ms". None: unchanged.
    """

    action: Any = None
    links: Any = None
    rate_mbps: Any = None
    up: Any = None
    delay: Any = None
    jitter: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitsRequest:
    """The request `circuits`: an action of testbed/daemon/circuits.py, its pairs of units or of optical
    ports, or its timetable, and whether it may take circuits from running jobs.
    """

    action: Any = None
    force: Any = False
    demands: Any = None
    circuits: Any = None
    schedule: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """The request `capture`: a link, the largest number of frames and of seconds, and the output file."""

    link: Any = None
    count: Any = None
    seconds: Any = None
    output: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """The request `submit`, without the arguments that it shares with `run`: a submission's content, whether
    the client waits for the jobs, and the files that get the result.
    """

    submission: Any = None
    wait: Any = True
    json: Any = None
    record: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """The request `exec`: a host, a program with its arguments, its folder and environment, and the user for
    whom root asks.
    """

    host: Any = None
    argv: Any = None
    cwd: Any = None
    environ: Any = None
    behind: Any = None


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The answer to `exec`: the exit code, and the reason if the command could not be run."""

    exit_code: int
    failure: str | None


def asked(kind: type[T], request: Mapping[str, Any]) -> T:
    """Make a request of a kind from its arguments; arguments that the operation does not read are ignored."""
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: request[name] for name in names if name in request})
