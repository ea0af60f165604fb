"""Requests to the daemon, by operation: the arguments that each has, as they came. Whoever carries a request
out checks them, and says in one line what is accepted. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRequest:
    """The request `fault`: an action (set, list or clear), the names of links (None: all of them), the
    fault's rates by name, and the direction that gets it.
    """

    action: Any = None
    links: Any = None
    fault: Any = None
    direction: Any = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRequest:
    """The request `link`: an action (set, reset or list), the names of links, and what they get: a rate in
    Mb/s, whether they are up, times like "5ms". None: it stays.
    """

    action: Any = None
    links: Any = None
    rate_mbps: Any = None
    up: Any = None
    delay: Any = None
    jitter: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitsRequest:
    """The request `circuits`: an action (request, set, clear or reset), with its pairs of units or of optical
    ports, and whether running jobs may lose circuits by it.
    """

    action: Any = None
    force: Any = False
    demands: Any = None
    circuits: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """The request `capture`: a link, how many frames and how many seconds at most, and the file that they go
    to.
    """

    link: Any = None
    count: Any = None
    seconds: Any = None
    output: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRequest:
    """The request `submit`, but for what it shares with `run`: the content of a submission, whether its
    client waits for its jobs, and the files that get the result.
    """

    submission: Any = None
    wait: Any = True
    json: Any = None
    record: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """The request `exec`: a host, a program and its arguments, its folder and environment, and the user for
    whom root asks.
    """

    host: Any = None
    argv: Any = None
    cwd: Any = None
    environ: Any = None
    behind: Any = None


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The answer to `exec`: the exit code, and what kept the command from being run, if something did."""

    exit_code: int
    failure: str | None


def asked(kind: type[T], request: Mapping[str, Any]) -> T:
    """Return the request of a kind; what its operation does not read is passed over."""
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: request[name] for name in names if name in request})
