"""The messages between the daemon and the template process of forked workers (testbed/emulation/template.py,
workloads/template.py). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A request for a new fork; or, with `wait`, for the exit code of the ended fork with this number."""

    wait: int | None = None


@dataclass(frozen=True, slots=True)
class ForkReply:
    """The number of a new fork, or why the kernel `refused` it; or the requested exit `code`."""

    pid: int | None = None
    refused: str | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedWorker:
    """The worker that a fork becomes: its command line, environment, working folder, user, and descriptor
    numbers.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    fds: tuple[int, ...]
